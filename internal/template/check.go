package template

import (
	"fmt"

	"github.com/dailyserial/serial/internal/checkdigit"
)

// checkOf appends a number's check characters to b. number has a place for them at offset at.
func checkOf(a checkdigit.Algorithm, b, number []byte, at int) []byte {
	before, after := number[:at], number[at+a.Width:]
	if a.Name == "97-10" { // as in ISO 11649, where RF and the check digits are printed first and covered last
		before, after = after, before
	}
	return a.Append(b, before, after)
}

// verifyCheck returns an error unless the check characters of a number are right.
func verifyCheck(a checkdigit.Algorithm, number string, at int) error {
	var whole [256]byte
	var buf [2]byte
	want := checkOf(a, buf[:0], append(whole[:0], number...), at)
	if got := number[at : at+a.Width]; got != string(want) {
		return fmt.Errorf("%w: got %s, want %s, unless another character is mistyped",
			ErrCheckDigit, readable(got), string(want)) // a copy, so buf stays on the stack
	}
	return nil
}
