package serial

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

const maxName = 64 // bytes of a type or a key prefix

// checkType checks a business type.
func checkType(typ string) error {
	if msg := checkName(typ); msg != "" {
		return fmt.Errorf("%w %.80q: %s", ErrInvalidType, typ, msg)
	}
	return nil
}

// checkName says what is wrong with a type or a key prefix, or "" if nothing is. Neither may hold colons and braces, which
// keys are built with. Names that look the same, or that a database takes for the same, must not be two series. So
// a name has no letter that prints nothing, and Unicode's normalization form NFKC leaves it as it is.
func checkName(name string) string {
	switch {
	case name == "":
		return "empty; allowed are 1 to 64 bytes"
	case len(name) > maxName:
		return fmt.Sprintf("%d bytes; allowed are 1 to %d", len(name), maxName)
	}
	for i := range len(name) { // runs for every number, and most names are ASCII
		if !nameASCII(name[i]) {
			return checkUnicodeName(name)
		}
	}
	return ""
}

// nameASCII reports whether c is an ASCII character that a name may have.
func nameASCII(c byte) bool {
	return isASCIILetter(c) || isASCIIDigit(c) || strings.IndexByte("-_./", c) >= 0
}

// checkUnicodeName is checkName for a name that is not ASCII. Normalization takes large tables that grow with Unicode;
// golang.org/x/text is where the Go project keeps them.
func checkUnicodeName(name string) string {
	const allowed = "allowed are letters, digits and - _ . /"
	if !utf8.ValidString(name) {
		return "not valid UTF-8; " + allowed
	}
	for _, r := range name {
		switch {
		case r < utf8.RuneSelf && nameASCII(byte(r)):
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			return fmt.Sprintf("it has %q (%U); %s", r, r, allowed)
		case printsNothing(r):
			return fmt.Sprintf("it has %U, which prints nothing; %s", r, allowed)
		}
	}
	if norm.NFKC.QuickSpanString(name) == len(name) {
		return ""
	}
	// One change can involve several characters, such as the parts of a Hangul syllable.
	for rest := name; rest != ""; {
		end := norm.NFKC.NextBoundaryInString(rest, true)
		part := rest[:end]
		if normal := norm.NFKC.String(part); normal != part {
			points := strings.Trim(fmt.Sprintf("%U", []rune(part)), "[]")
			return fmt.Sprintf("it has %q (%s), which NFKC changes to %q; allowed are letters and digits as NFKC leaves them, "+
				"and - _ . /", part, points, normal)
		}
		rest = rest[end:]
	}
	return ""
}

// printsNothing reports whether a letter is blank: a filler, which Unicode lists as ignorable, or a blank among hieroglyphs.
func printsNothing(r rune) bool {
	const fullBlank, halfBlank = 0x13441, 0x13442
	return unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) || r == fullBlank || r == halfBlank
}

func isASCIILetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isASCIIDigit(c byte) bool  { return c >= '0' && c <= '9' }
