// Package name validates business types and key prefixes.
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

// Check returns an error if a type or a key prefix is invalid, which says what is wrong and what is allowed. Neither
// may contain colons or braces, which are part of the syntax of keys. Names that look the same, or that a database
// treats as equal, must not be two series. So a name has no invisible letter, and Unicode's normalization form NFKC
// does not change it.
//
// Normalization needs large tables that grow with Unicode; the Go project keeps them in golang.org/x/text.
func Check(name string) error {
	const allowed = "want letters, digits and - _ . /"
	switch {
	case name == "":
		return errors.New("empty; want 1 to 64 bytes")
	case len(name) > longest:
		return fmt.Errorf("%d bytes; want 1 to %d", len(name), longest)
	case !strings.ContainsFunc(name, needsUnicode): // fast path: this runs for every number, and most names are ASCII
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
			return fmt.Errorf("it has %U, which is invisible; %s", r, allowed)
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

// needsUnicode reports whether r is not an ASCII character allowed in a name: a letter, a digit, - . / or _.
func needsUnicode(r rune) bool {
	lower := r | 0x20
	return (lower < 'a' || lower > 'z') && (r < '-' || r > '9') && r != '_'
}
