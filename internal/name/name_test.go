package name_test

import (
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/unicode/norm"

	"github.com/dailyserial/serial/internal/name"
)

// Names of several characters. TestEveryCharacter tries single ones.
func TestNames(t *testing.T) {
	for _, s := range []string{
		"IS", "is", "0", "A-b_c.d/9", strings.Repeat("x", 64), "入库", "Счёт", "فاتورة", "송장", "かきごぱ", "१२३", "𠀀",
		"हिन्दी", "ক্ষেত্র", "ใบกำกับ", "น้ำ", "ຄຳ", "தமிழ்", "ខ្មែរ", "עִבְרִית", // letters with marks
		"क\u093c", "A1-हि/ที่",
	} {
		require.NoError(t, name.Check(s), s)
	}
	for s, want := range map[string]string{
		"": "empty; want 1 to 64 bytes", strings.Repeat("x", 65): "65 bytes; want 1 to 64",
		strings.Repeat("入", 22): "66 bytes", "a\xff": "not valid UTF-8",
		"a b": "it contains ' ' (U+0020); want letters with their marks, digits and - _ . /",
		"a:b": "it contains ':' (U+003A)", "{a}": "it contains '{' (U+007B)", "a\x00": `it contains '\x00' (U+0000)`,
		"入 库":      "it contains ' ' (U+0020)",
		"क\u200dष": `it contains '\u200d' (U+200D); want letters`, // a joiner
		"A\u20dd":  "(U+20DD); want letters with their marks",     // a circle around a letter
		"q\u0301":  "(U+0301); want letters with their marks",     // an accent of no script
		"e\u0301":  `(U+0065 U+0301), which Unicode normalization (NFKC) changes to "é"; want norm`,
		"1\u093f":  "it contains the mark U+093F, which does not follow a letter; want letters",
		"क-\u093f": "the mark U+093F", "ก/\u0e49": "the mark U+0E49",
		"IS\u115f":      "it contains U+115F, which is invisible; want letters with their marks",
		"ＩＳ":            `it contains "Ｉ" (U+FF29), which Unicode normalization (NFKC) changes to "I"; want norm`,
		"oﬃce":          `it contains "ﬃ" (U+FB03), which Unicode normalization (NFKC) changes to "ffi"`,
		"\u1100\u1161":  "(U+1100 U+1161), which Unicode normalization (NFKC) changes to \"가\"",
		"가\u11a8":       `(U+AC00 U+11A8), which Unicode normalization (NFKC) changes to "각"`,
		"ক\u09c7\u09be": "changes to \"\u09cb\"",        // one vowel in two characters
		"ก\u0e49\u0e38": "changes to \"ก\u0e38\u0e49\"", // two marks in the wrong order
		"กำＩ":           `it contains "Ｉ" (U+FF29), which Unicode normalization (NFKC) changes to "I"`,
		"ก\u0e4d\u0e32": "it contains \"\u0e4d\u0e32\" (U+0E4D U+0E32); want U+0E33",
		"ຄ\u0ecd\u0eb2": `(U+0ECD U+0EB2); want U+0EB3`, "ก\u0e4d\u0e32\u0e4d\u0e32": "want U+0E33",
	} {
		require.ErrorContains(t, name.Check(s), want, "%q", s)
	}
}

// A letter, a digit, or a mark of a script after a letter is allowed unless Unicode calls it ignorable or NFKC changes
// it, with two exceptions. Every other character is refused.
func TestEveryCharacter(t *testing.T) {
	for r := rune(0); r <= unicode.MaxRune; r++ {
		if testing.Short() && r > unicode.MaxLatin1 && r%16 != 0 {
			continue
		}
		text := string(r)
		isMark := unicode.In(r, unicode.Mn, unicode.Mc) && !unicode.Is(unicode.Inherited, r)
		if isMark {
			if name.Check(text) == nil {
				t.Errorf("%U is allowed without a letter", r)
			}
			text = "ক" + text
		}
		blank := unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector) ||
			r == 0x13441 || r == 0x13442 || r == 0x16fe4 || r == 0x1107f
		known := isMark || unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./", r)
		allowed := known && !blank && (norm.NFKC.String(text) == text || r == 0xe33 || r == 0xeb3)
		if err := name.Check(text); allowed != (err == nil) {
			t.Errorf("%U: %v", r, err)
		}
	}
}

// Check runs for every number.
func TestAllocations(t *testing.T) {
	for _, s := range []string{"IS", "WAREHOUSE-7/2", "入库", "송장", "Счёт", "हिन्दी", "ที่"} {
		require.Zero(t, testing.AllocsPerRun(100, func() { _ = name.Check(s) }), s)
	}
}
