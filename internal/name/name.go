// Package name says what a business type or a key prefix may be.
package name

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

const longest = 64 // bytes

// Check returns an error that says what is wrong with a type or a key prefix, and what is allowed. Neither may contain
// colons or braces, which keys are built with. Names that look the same, or that a database takes for the same, must
// not be two series. So a name has no letter that prints nothing, and Unicode's normalization form NFKC leaves it as it
// is.
//
// Normalization takes large tables that grow with Unicode; golang.org/x/text is where the Go project keeps them.
func Check(name string) error {
	const allowed = "want letters, digits and - _ . /"
	switch {
	case name == "":
		return errors.New("empty; want 1 to 64 bytes")
	case len(name) > longest:
		return fmt.Errorf("%d bytes; want 1 to %d", len(name), longest)
	case !strings.ContainsFunc(name, needsUnicode): // checked for every number, and true of most names
		return nil
	case !utf8.ValidString(name):
		return errors.New("not valid UTF-8; " + allowed)
	}
	for _, r := range name {
		switch {
		case !needsUnicode(r):
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			return fmt.Errorf("it has %q (%U); %s", r, r, allowed)
		case unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r), r == 0x13441, r == 0x13442:
			// Fillers, which Unicode lists as ignorable, and two blanks among hieroglyphs.
			return fmt.Errorf("it has %U, which prints nothing; %s", r, allowed)
		}
	}
	// NFKC can change several characters at once, such as the parts of a Hangul syllable.
	for rest := name[norm.NFKC.QuickSpanString(name):]; rest != ""; {
		end := norm.NFKC.NextBoundaryInString(rest, true)
		part := rest[:end]
		if normal := norm.NFKC.String(part); normal != part {
			points := strings.Trim(fmt.Sprintf("%U", []rune(part)), "[]")
			return fmt.Errorf("it has %q (%s), which NFKC changes to %q; want letters and digits "+
				"as NFKC leaves them, and - _ . /", part, points, normal)
		}
		rest = rest[end:]
	}
	return nil
}

// needsUnicode reports whether r is anything but an ASCII character that a name may have: letters, - . / and digits, or
// _.
func needsUnicode(r rune) bool {
	lower := r | 0x20
	return (lower < 'a' || lower > 'z') && (r < '-' || r > '9') && r != '_'
}
