package template

import (
	"fmt"
	"strconv"
	"strings"
)

// An alphabet is a set of digits for printing sequences.
type alphabet struct {
	name, digits string
	maxWidth     int    // largest width at which every sequence is below 10^15
	noun         string // word for the digits in messages
	least        int64  // smallest sequence, which is printed with only the first digit
}

var decimal = &alphabet{"decimal", digits, maxDigits, "decimal digits", 0}

// alphabets maps names in templates to alphabets. base32 is Crockford's, which leaves out letters that look like
// digits.
var alphabets = map[string]*alphabet{
	"base32":  {"base32", "0123456789ABCDEFGHJKMNPQRSTVWXYZ", 9, "base32 digits", 0},
	"base36":  {"base36", "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", 9, "base36 digits", 0},
	"letters": {"letters", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", 9, "letters", 0},
	"alpha":   {"alpha", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", 9, "letters", 1},
}

// zeros contains the widest possible padding.
const zeros = "000000000000000"

// largest returns the largest sequence of the given width, which must be at most maxWidth.
func (a *alphabet) largest(width int) int64 {
	n := int64(1)
	for range width {
		n *= int64(len(a.digits))
	}
	return n - 1 + a.least
}

// appendPadded appends n, padded on the left to width digits. If n needs more digits, or is less than a.least, it is
// appended in decimal.
func appendPadded(b []byte, n int64, width int, a *alphabet) []byte {
	// The difference is unsigned. So if n is too small, it is a large number that does not fit into any field.
	at, base, rest := len(b), uint64(len(a.digits)), uint64(n-a.least)
	b = append(b, zeros[:width]...)
	for i := len(b) - 1; i >= at && (rest > 0 || a.digits[0] != '0'); i-- {
		b[i] = a.digits[rest%base]
		rest /= base
	}
	if rest > 0 {
		return strconv.AppendInt(b[:at], n, 10)
	}
	return b
}

// readable returns a part of a number for an error message. If the part begins or ends in the middle of a character,
// the result contains … instead of the incomplete character.
func readable(part string) string { return strings.ToValidUTF8(part, "…") }

// parseDigits is the inverse of appendPadded for integers that fit into the width.
func parseDigits(s string, a *alphabet) (int64, error) {
	v := int64(0)
	for i := range len(s) {
		digit := strings.IndexByte(a.digits, s[i])
		if digit < 0 {
			return 0, fmt.Errorf("got %q, want %d %s (%s)", readable(s), len(s), a.noun, a.digits)
		}
		v = v*int64(len(a.digits)) + int64(digit)
	}
	return v + a.least, nil
}
