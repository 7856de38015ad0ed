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

const maxBytes = 64

// Check returns an error if a type or a key prefix is invalid. The message contains the problem and what is allowed.
//
// A name must not contain colons or braces, because they are part of the syntax of keys. Names that look the same, or
// that a database treats as equal, must not belong to two series. Therefore a name must not contain invisible
// characters, and normalization (NFKC) must not change it. A mark may follow a letter if it belongs to a script, like
// the marks of Hindi, Bengali and Thai. Accents that are used with several scripts, such as U+0301, are refused,
// because the same accent twice on one letter looks like a single accent. Thai and Lao words often contain the letters
// U+0E33 and U+0EB3, which NFKC splits into two characters. Check allows these letters, and refuses the pairs of
// characters that look the same.
//
// Normalization needs large tables that grow with Unicode. The Go project maintains them in golang.org/x/text.
func Check(name string) error {
	const allowed = "want letters with their marks, digits and - _ . /"
	switch {
	case name == "":
		return errors.New("empty; want 1 to 64 bytes")
	case len(name) > maxBytes:
		return fmt.Errorf("%d bytes; want 1 to %d", len(name), maxBytes)
	case !strings.ContainsFunc(name, needsUnicode): // fast path: Check runs for every number, usually on ASCII
		return nil
	case !utf8.ValidString(name):
		return errors.New("not valid UTF-8; " + allowed)
	}
	// NFKC can change several characters at once, such as the parts of a Hangul syllable. This check comes first, so that
	// the error for an e that is followed by a separate accent mentions the normalization.
	for rest := name[norm.NFKC.QuickSpanString(name):]; rest != ""; {
		end := norm.NFKC.NextBoundaryInString(rest, true)
		part := rest[:end]
		if normal := norm.NFKC.String(part); normal != part && split.Replace(part) != normal {
			points := strings.Trim(fmt.Sprintf("%U", []rune(part)), "[]")
			return fmt.Errorf("it contains %q (%s), which Unicode normalization (NFKC) changes to %q; "+
				"want normalized letters and digits, and - _ . /", part, points, normal)
		}
		rest = rest[end:]
	}
	previous, afterLetter := rune(0), false
	for _, r := range name {
		isMark := unicode.In(r, unicode.Mn, unicode.Mc) && !unicode.Is(unicode.Inherited, r)
		switch {
		case !needsUnicode(r):
		case !unicode.IsLetter(r) && !unicode.IsDigit(r) && !isMark:
			return fmt.Errorf("it contains %q (%U); %s", r, r, allowed)
		case unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector),
			r == 0x13441, r == 0x13442, r == 0x16fe4, r == 0x1107f:
			// These are fillers and selectors, which Unicode lists as ignorable, the two blank hieroglyphs, the filler of
			// the Khitan script and the number joiner of the Brahmi script.
			return fmt.Errorf("it contains %U, which is invisible; %s", r, allowed)
		case isMark && !afterLetter:
			return fmt.Errorf("it contains the mark %U, which does not follow a letter; %s", r, allowed)
		case previous == 0xe4d && r == 0xe32, previous == 0xecd && r == 0xeb2:
			return fmt.Errorf("it contains %q (%U %U); want %U instead", string(previous)+string(r), previous, r, r+1)
		}
		previous, afterLetter = r, isMark || unicode.IsLetter(r)
	}
	return nil
}

// split makes the same replacements as NFKC for the two letters that are allowed although NFKC changes them.
var split = strings.NewReplacer("\u0e33", "\u0e4d\u0e32", "\u0eb3", "\u0ecd\u0eb2")

// needsUnicode reports whether r needs a look at the tables of Unicode. An ASCII letter, a digit, and - . / _ do not.
func needsUnicode(r rune) bool {
	lower := r | 0x20
	return (lower < 'a' || lower > 'z') && (r < '-' || r > '9') && r != '_'
}
