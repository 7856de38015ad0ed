package name_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"

	"github.com/dailyserial/serial/internal/name"
)

var kept = []string{
	"IS", "is", "0", "A-b_c.d/9", strings.Repeat("x", 64),
	"入库",      // Chinese
	"Счёт",    // Cyrillic, with a composed letter
	"فاتورة",  // Arabic
	"חשבונית", // Hebrew
	"é",       // composed
	"ß", "ı",  // Latin letters without a compatibility form
	"ά",      // U+03AC, what U+1F71 becomes
	"송장",     // Hangul syllables
	"\u1100", // a part of a syllable by itself
	"かきごぱ",   // Hiragana, two letters with composed marks
	"カタカナ",   // Katakana of the usual width
	"कखग",    // Devanagari letters without marks
	"१२३",    // Devanagari digits
	"٣",      // an Arabic digit
	"กขค",    // Thai letters
	"𠀀",      // a letter of four bytes
}

var refused = []struct{ name, says string }{
	{"", "empty; want 1 to 64 bytes"},
	{strings.Repeat("x", 65), "65 bytes; want 1 to 64"},
	{strings.Repeat("入", 22), "66 bytes"},
	{"a\xff", "not valid UTF-8"},
	{"a b", "it has ' ' (U+0020); want letters, digits and - _ . /"},
	{"a:b", "it has ':' (U+003A)"},
	{"{a}", "it has '{' (U+007B)"},
	{"a\x00", `it has '\x00' (U+0000)`},
	{"入 库", "it has ' ' (U+0020)"},
	{"a\u00a0b", `it has '\u00a0' (U+00A0)`},
	{"a\u200bb", `(U+200B)`}, // zero width space
	{"a\u00adb", `(U+00AD)`}, // soft hyphen
	{"a\ufe0f", `(U+FE0F)`},  // variation selector
	{"a\u2800", `(U+2800)`},  // Braille without a dot
	{"x²", "it has '²' (U+00B2); want letters, digits"},
	{"Ⅷ", "it has 'Ⅷ' (U+2167); want letters, digits"},
	{"e\u0301", "(U+0301); want letters, digits"}, // é in two characters
	{"हिन्दी", "(U+093F)"},

	// Letters that print nothing.
	{"IS\u115f", "it has U+115F, which is invisible; want letters, digits and - _ . /"},
	{"IS\u1160", "it has U+1160, which is invisible"},
	{"\u3164", "it has U+3164, which is invisible"},
	{"IS\uffa0", "it has U+FFA0, which is invisible"},
	{"IS\U00013441", "it has U+13441, which is invisible"},
	{"IS\U00013442", "it has U+13442, which is invisible"},

	// What NFKC changes.
	{"\u212a", `it has "` + "\u212a" + `" (U+212A), which NFKC changes to "K"; want letters and digits as NFKC ` +
		`leaves them, and - _ . /`},
	{"入\u212b1", `(U+212B), which NFKC changes to "Å"`},
	{"\u2126", `(U+2126), which NFKC changes to "Ω"`},
	{"ＩＳ", `it has "Ｉ" (U+FF29), which NFKC changes to "I"`},
	{"１", `it has "１" (U+FF11), which NFKC changes to "1"`},
	{"ｱ", `(U+FF71), which NFKC changes to "ア"`},
	{"oﬃce", `it has "ﬃ" (U+FB03), which NFKC changes to "ffi"`},
	{"ſ", `(U+017F), which NFKC changes to "s"`},
	{"ª", `(U+00AA), which NFKC changes to "a"`},
	{"xⁿ", `(U+207F), which NFKC changes to "n"`},
	{"𝐀", `(U+1D400), which NFKC changes to "A"`},
	{"𝟙", `(U+1D7D9), which NFKC changes to "1"`},
	{"ǆ", `(U+01C6), which NFKC changes to "dž"`},
	{"\uf900", `(U+F900), which NFKC changes to "豈"`},
	{"\u1f71", `(U+1F71), which NFKC changes to "ά"`},
	{"ﻡ", `(U+FEE1), which NFKC changes to "م"`},
	{"\u0958", `(U+0958), which NFKC changes to "` + "\u0915\u093c" + `"`},
	{"\u1100\u1161", `it has "` + "\u1100\u1161" + `" (U+1100 U+1161), which NFKC changes to "가"`},
	{"가\u11a8", `(U+AC00 U+11A8), which NFKC changes to "각"`},
}

func TestNames(t *testing.T) {
	for _, s := range kept {
		require.NoError(t, name.Check(s), s)
	}
	for _, c := range refused {
		require.ErrorContains(t, name.Check(c.name), c.says, "%q", c.name)
	}
}

// Every letter and digit that Unicode calls ignorable is refused, and so is every one that NFKC changes.
func TestEveryLetter(t *testing.T) {
	for r := range rune(unicode.MaxRune) {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			continue
		}
		err := name.Check(string(r))
		blank := unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) || r == 0x13441 || r == 0x13442
		if blank || norm.NFKC.String(string(r)) != string(r) {
			require.Error(t, err, "%U", r)
		} else {
			require.NoError(t, err, "%U", r)
		}
	}
}

// The check runs with every number.
func TestAllocations(t *testing.T) {
	for _, s := range []string{"IS", "WAREHOUSE-7/2", "入库", "송장", "Счёт"} {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if name.Check(s) != nil {
				panic(s)
			}
		}), s)
	}
}
