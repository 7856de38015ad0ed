package checkdigit_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/checkdigit"
)

const (
	digits  = "0123456789"
	letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

func check(name, number string) string {
	return string(checkdigit.Algorithms[name].Append(nil, []byte(number)))
}

// published has numbers of each algorithm that standards, banks and authorities have published, or cases in which a
// check is replaced. The check is at the end, after a space.
var published = map[string]string{
	// An IMEI, cards for tests, and the personal numbers of Sweden and Canada.
	"luhn": "7992739871 3, 49015420323751 8, 411111111111111 1, 37828224631000 5, 811218987 6, 04645428 6",
	// The last number uses every entry of Damm's table once, as does the last one of 10r.
	"damm": "572 4, 11294 6, " +
		"0100000000011111111222222221233333443233343444444555545566555666566667777767777889888887899999989989 0",
	// GTIN-13, GTIN-8, GTIN-12, GTIN-14, SSCC, ISBN-13.
	"gs1": "629104150021 3, 7351353 7, 03600029145 2, 1061414100041 5, 00614141123456789 0, 978-0-306-40615- 7",
	// The example of ISO 7064, German tax numbers, a German VAT number and a Croatian OIB.
	"11-10": "0794 5, 8609574271 9, 4703689281 6, DE13669597 6, 3339200596 1",
	// The example of ISO 7064, RF18 5390 0754 7034 of ISO 11649, an IBAN and an LEI.
	"97-10": "794 44, 539007547034RF 18, 2348231RF 71, WEST12345698765432GB 82, 5493001KJTIIGC8Y1R 12",
	// A GRid and two ISANs.
	"37-36": "A12425GABC1234002 M, 0000-0000-3A8D-0000 Z, 0000-0001-8CFA-0000-0000-0000 K",
	"731":   "123456 1, 1234567 2, 234823 6",
	"be97":  "090/9337/554 93, 010/8068/171 83, 000/0000/001 01, 000/0000/097 97",
	"10r": "21000000000313947143000901 7, 01-000162- 8, 80-000002- 2, " +
		"0100000000012111121111222222233333432333444434444555554566555667675666678877677778887889899989989999 0",
	// Access keys of Brazilian tax documents; the last one has the remainder 1.
	"11": "5206043300991100250655012000000780026730161 5, 5013124874035101179558000149000153134595274 5, " +
		"3515030077657400074155003005616108465900349 0",
	// The third number has the remainder 0, and the fourth one the remainder 1.
	"s10": "RR47312482 9, RB12345678 5, 00000015 5, 00000008 0",
}

func TestPublished(t *testing.T) {
	require.Len(t, checkdigit.Algorithms, len(published))
	for name, numbers := range published {
		for number := range strings.SplitSeq(numbers, ", ") {
			covered, want, _ := strings.Cut(number, " ")
			require.Equal(t, want, check(name, covered), "%s of %s", name, covered)
		}
	}
}

// FuzzUncovered checks that characters which an algorithm does not cover do not count, and that lower-case letters count
// as upper-case ones. TestPublished and TestMissedErrors check the algorithms.
func FuzzUncovered(f *testing.F) {
	for _, text := range []string{"", "is-2021/10/24-0001", "@A[Z`a{z/0:9", "٣é世\xff", strings.Repeat("4711-", 1000)} {
		f.Add(text)
	}
	uncovered := map[bool]*regexp.Regexp{false: regexp.MustCompile(`[^0-9]`), true: regexp.MustCompile(`[^0-9A-Za-z]`)}
	f.Fuzz(func(t *testing.T, text string) {
		for name, a := range checkdigit.Algorithms {
			covered := strings.ToUpper(uncovered[a.Letters].ReplaceAllString(text, ""))
			require.Equal(t, check(name, covered), check(name, text), name)
		}
	})
}

// The package comment and the documentation of templates state which errors are missed. The test tries all errors in
// two covered characters after prefixes that lead to every state of an algorithm once.
func TestMissedErrors(t *testing.T) {
	const fives, ten = "05 16 27 38 49 50 61 72 83 94", "0 1 2 3 4 5 6 7 8 9"
	all, remainders := strings.Join(strings.Split(digits+letters, ""), " "), ""
	for n := range 97 {
		remainders += fmt.Sprintf("%02d ", n)
	}
	for _, row := range []struct {
		name, prefixes string
		right, wrong   string // characters that are exchanged
		singles, swaps int    // 1 in so many wrong characters, or swaps, is missed, rounded down; 0 for none
		pairs          string // pairs that are missed after every prefix, if there are any
	}{
		{"luhn", ten, digits, digits, 0, 45, "09 90"},
		{"damm", ten, digits, digits, 0, 0, ""},
		{"gs1", ten, digits, digits, 0, 9, fives},
		{"731", ten, digits, digits, 0, 9, fives},
		{"11-10", ten, digits, digits, 0, 45, ""},
		{"10r", ten, digits, digits, 0, 45, ""},
		{"be97", remainders, digits, digits, 0, 0, ""},
		{"97-10", remainders, digits, digits, 0, 0, ""},
		{"97-10", remainders, letters, letters, 0, 0, ""},
		{"97-10", remainders, digits, letters, 97, 86, "1B 2M 3X"}, // 3 of 260 pairs
		{"37-36", all, digits, digits, 0, 180, ""},
		{"37-36", all, digits + letters, digits + letters, 0, 630, ""},
		{"11", ten + " 16", digits, digits, 55, 55, ""}, // 16 leads to the remainder that no digit leads to
		{"s10", ten + " 20", digits, digits, 55, 55, ""},
	} {
		tried, singles, swaps, pairs := 0, 0, 0, map[string]int{}
		prefixes := strings.Fields(row.prefixes)
		for _, prefix := range prefixes {
			for _, a := range strings.Split(row.right, "") {
				for _, b := range strings.Split(strings.Replace(row.wrong, a, "", 1), "") {
					tried++
					if check(row.name, prefix+a+"0") == check(row.name, prefix+b+"0") {
						singles++
					}
					if check(row.name, prefix+a+b) == check(row.name, prefix+b+a) {
						swaps++
						pairs[a+b]++
					}
				}
			}
		}
		if singles > 0 {
			singles = tried / singles
		}
		if swaps > 0 {
			swaps = tried / swaps
		}
		require.Equal(t, []int{row.singles, row.swaps}, []int{singles, swaps}, "%v", row)
		for pair := range strings.FieldsSeq(row.pairs) {
			require.Len(t, prefixes, pairs[pair], "%s: %s", row.name, pair)
		}
	}
}

// The map has the algorithms under their own names. The parts count as one string, and the
// check may be written into the middle of what it covers, without allocations.
func TestAlgorithms(t *testing.T) {
	require.Empty(t, checkdigit.Algorithm{}.Append(nil, []byte("4711")))
	for name, a := range checkdigit.Algorithms {
		require.Equal(t, name, a.Name)
		require.Len(t, check(name, "4711"), a.Width)
		number := []byte("RF" + strings.Repeat("*", a.Width) + strings.Repeat("539007547034", 20))
		want := "RF" + check(name, "RF"+string(number[2+a.Width:])) + strings.Repeat("539007547034", 20)
		require.Zero(t, testing.AllocsPerRun(100, func() {
			a.Append(number[:2], number[:2], nil, number[2+a.Width:6], number[6:])
		}), name)
		require.Equal(t, want, string(number), name)
	}
}
