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
	"ά",                                   // U+03AC, what U+1F71 becomes
	"송장",                                  // Hangul syllables
	"\u1100",                              // a part of a syllable by itself
	"かきごぱ",                                // Hiragana, two letters with composed marks
	"カタカナ",                                // Katakana of the usual width
	"कखग",                                 // Devanagari letters without marks
	"१२३",                                 // Devanagari digits
	"٣",                                   // an Arabic digit
	"กขค",                                 // Thai letters
	"हिन्दी", "ক্ষেত্র", "ใบกำกับ", "น้ำ", // Hindi, Bengali and Thai: letters with one or more marks
	"ຄຳ", "தமிழ்", "ខ្មែរ", "עִבְרִית", // Lao, Tamil, Khmer, Hebrew with points
	"क\u093c",   // what U+0958 becomes
	"A1-हि/ที่", // marks beside what else is allowed
	"𠀀",         // a letter of four bytes
}

var refused = []struct{ name, says string }{
	{"", "empty; want 1 to 64 bytes"},
	{strings.Repeat("x", 65), "65 bytes; want 1 to 64"},
	{strings.Repeat("入", 22), "66 bytes"},
	{"a\xff", "not valid UTF-8"},
	{"a b", "it contains ' ' (U+0020); want letters with their marks, digits and - _ . /"},
	{"a:b", "it contains ':' (U+003A)"},
	{"{a}", "it contains '{' (U+007B)"},
	{"a\x00", `it contains '\x00' (U+0000)`},
	{"入 库", "it contains ' ' (U+0020)"},
	{"a\u00a0b", `it contains '\u00a0' (U+00A0)`},
	{"a\u200bb", `(U+200B)`}, // zero width space
	{"a\u00adb", `(U+00AD)`}, // soft hyphen
	{"a\ufe0f", `(U+FE0F)`},  // variation selector
	{"a\u2800", `(U+2800)`},  // Braille without a dot
	{"x²", "it contains '²' (U+00B2); want letters with their marks, digits"},
	{"Ⅷ", "it contains 'Ⅷ' (U+2167); want letters with their marks, digits"},
	{"क\u200dष", "it contains '\\u200d' (U+200D); want letters"},   // a joiner between two letters
	{"A\u20dd", "(U+20DD); want letters with their marks, digits"}, // a circle around a letter

	// Marks that belong to no script.
	{"e\u0301", "(U+0301); want letters with their marks, digits"}, // é in two characters
	{"é\u0301", "(U+0301)"},
	{"か\u3099", "(U+3099)"},
	{"क\u034f", "(U+034F)"},      // invisible
	{"क\ufe00", "(U+FE00)"},      // a variation selector
	{"入\U000e0100", "(U+E0100)"}, // another

	// Marks that follow no letter.
	{"\u093f", "it contains the mark U+093F, which does not follow a letter; want letters with their marks, digits"},
	{"1\u093f", "the mark U+093F"},
	{"१\u093f", "the mark U+093F"},
	{"क-\u093f", "the mark U+093F"},
	{"ก/\u0e49", "the mark U+0E49"},

	// Letters and marks that print nothing.
	{"IS\u115f", "it contains U+115F, which is invisible; want letters with their marks, digits and - _ . /"},
	{"IS\u1160", "it contains U+1160, which is invisible"},
	{"\u3164", "it contains U+3164, which is invisible"},
	{"IS\uffa0", "it contains U+FFA0, which is invisible"},
	{"IS\U00013441", "it contains U+13441, which is invisible"},
	{"IS\U00013442", "it contains U+13442, which is invisible"},
	{"ក\u17b4", "it contains U+17B4, which is invisible"},
	{"ᠠ\u180b", "it contains U+180B, which is invisible"},

	// What NFKC changes.
	{"\u212a", `it contains "` + "\u212a" + `" (U+212A), which Unicode normalization (NFKC) changes to "K"; ` +
		`want normalized letters and digits, and - _ . /`},
	{"入\u212b1", `(U+212B), which Unicode normalization (NFKC) changes to "Å"`},
	{"\u2126", `(U+2126), which Unicode normalization (NFKC) changes to "Ω"`},
	{"ＩＳ", `it contains "Ｉ" (U+FF29), which Unicode normalization (NFKC) changes to "I"`},
	{"１", `it contains "１" (U+FF11), which Unicode normalization (NFKC) changes to "1"`},
	{"ｱ", `(U+FF71), which Unicode normalization (NFKC) changes to "ア"`},
	{"oﬃce", `it contains "ﬃ" (U+FB03), which Unicode normalization (NFKC) changes to "ffi"`},
	{"ſ", `(U+017F), which Unicode normalization (NFKC) changes to "s"`},
	{"ª", `(U+00AA), which Unicode normalization (NFKC) changes to "a"`},
	{"xⁿ", `(U+207F), which Unicode normalization (NFKC) changes to "n"`},
	{"𝐀", `(U+1D400), which Unicode normalization (NFKC) changes to "A"`},
	{"𝟙", `(U+1D7D9), which Unicode normalization (NFKC) changes to "1"`},
	{"ǆ", `(U+01C6), which Unicode normalization (NFKC) changes to "dž"`},
	{"\uf900", `(U+F900), which Unicode normalization (NFKC) changes to "豈"`},
	{"\u1f71", `(U+1F71), which Unicode normalization (NFKC) changes to "ά"`},
	{"ﻡ", `(U+FEE1), which Unicode normalization (NFKC) changes to "م"`},
	{"\u0958", `(U+0958), which Unicode normalization (NFKC) changes to "` + "\u0915\u093c" + `"`},
	{"\u1100\u1161", `it contains "` + "\u1100\u1161" + `" (U+1100 U+1161), ` +
		`which Unicode normalization (NFKC) changes to "가"`},
	{"가\u11a8", `(U+AC00 U+11A8), which Unicode normalization (NFKC) changes to "각"`},
	{"ক\u09c7\u09be", `Unicode normalization (NFKC) changes to "` + "\u09cb" + `"`},        // one vowel in two characters
	{"ก\u0e49\u0e38", `Unicode normalization (NFKC) changes to "ก` + "\u0e38\u0e49" + `"`}, // the order of two marks
	{"กำＩ", `it contains "Ｉ" (U+FF29), which Unicode normalization (NFKC) changes to "I"`},
	{"ຫ\u0edc", `it contains "ໜ" (U+0EDC), which Unicode normalization (NFKC) changes to "ຫນ"`},

	// What NFKC makes of the two letters that it changes and that are allowed: they look the same.
	{"ก\u0e4d\u0e32", `it contains "` + "\u0e4d\u0e32" + `" (U+0E4D U+0E32); want U+0E33`},
	{"ຄ\u0ecd\u0eb2", `(U+0ECD U+0EB2); want U+0EB3`},
}

func TestNames(t *testing.T) {
	for _, s := range kept {
		require.NoError(t, name.Check(s), s)
	}
	for _, c := range refused {
		require.ErrorContains(t, name.Check(c.name), c.says, "%q", c.name)
	}
}

// Every letter, digit and mark of a script after a letter is refused if Unicode calls it ignorable or if NFKC changes it, with two
// exceptions. Every other character is refused.
func TestEveryCharacter(t *testing.T) {
	for r := rune(0x80); r <= unicode.MaxRune; r++ {
		text := string(r)
		isMark := unicode.In(r, unicode.Mn, unicode.Mc) && !unicode.Is(unicode.Inherited, r)
		if isMark {
			if name.Check(text) == nil {
				t.Errorf("%U is allowed without a letter", r)
			}
			text = "ক" + text
		}
		blank := unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) ||
			r == 0x13441 || r == 0x13442
		known := isMark || unicode.IsLetter(r) || unicode.IsDigit(r)
		allowed := known && !blank && (norm.NFKC.String(text) == text || r == 0xe33 || r == 0xeb3)
		if err := name.Check(text); allowed != (err == nil) {
			t.Errorf("%U: %v", r, err)
		}
	}
}

// The check runs with every number.
func TestAllocations(t *testing.T) {
	for _, s := range []string{"IS", "WAREHOUSE-7/2", "入库", "송장", "Счёт", "हिन्दी", "ที่"} {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			if name.Check(s) != nil {
				panic(s)
			}
		}), s)
	}
}
