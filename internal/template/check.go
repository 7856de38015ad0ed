package template

import (
	"fmt"
	"strings"

	"github.com/dailyserial/serial/internal/checkdigit"
)

// A check is the check field of a template.
type check struct{ checkdigit.Algorithm }

// checksOfLetters are the algorithms that cover letters, for messages.
const checksOfLetters = "97-10 or 37-36"

func newCheck(name string) (*check, error) {
	a, ok := checkdigit.Find(name)
	if !ok {
		return nil, fmt.Errorf("%q is no check digit; allowed are %s", name, strings.Join(checkdigit.Names(), ", "))
	}
	return &check{a}, nil
}

// digitsOnly reports whether letters are not covered.
func (c *check) digitsOnly() bool { return !c.Letters }

// blank stands for the check's characters until they are known.
func (c *check) blank() string { return "00"[:c.Width] }

// characters appends the check's characters to b. number is whole, and they belong at a place of it.
func (c *check) characters(b, number []byte, at int) []byte {
	before, after := number[:at], number[at+c.Width:]
	if c.Name == "97-10" { // as ISO 11649 has it: RF and the check digits stand first, and count last
		return c.Append(b, after, before)
	}
	return c.Append(b, before, after)
}

// fill puts the check's characters where they belong.
func (c *check) fill(number []byte, at int) {
	var buf [2]byte
	copy(number[at:], c.characters(buf[:0], number, at))
}

// verify returns an error unless the check's characters are right.
func (c *check) verify(number string, at int) error {
	var whole [256]byte
	var buf [2]byte
	want := c.characters(buf[:0], append(whole[:0], number...), at)
	if got := number[at : at+c.Width]; got != string(want) {
		return fmt.Errorf("%w %s: it would have to be %s, or another character is mistyped",
			ErrCheckDigit, got, string(want)) // a copy, so that buf stays on the stack
	}
	return nil
}
