package checkdigit_test

import (
	"cmp"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
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

// Numbers that standards, banks and authorities have published, and the cases in which a check is replaced.
func TestPublished(t *testing.T) {
	for name, numbers := range map[string]string{ // each with the check at the end, after a space
		// An IMEI, cards for tests, and the personal numbers of Sweden and Canada.
		"luhn": "7992739871 3, 49015420323751 8, 411111111111111 1, 37828224631000 5, 811218987 6, 04645428 6",
		"damm": "572 4, 11294 6",
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
		"10r":   "21000000000313947143000901 7, 01-000162- 8, 80-000002- 2",
		// Access keys of Brazilian tax documents; the last one has the remainder 1.
		"11": "5206043300991100250655012000000780026730161 5, 5013124874035101179558000149000153134595274 5, " +
			"3515030077657400074155003005616108465900349 0",
		// The third number has the remainder 0, and the fourth one the remainder 1.
		"s10": "RR47312482 9, RB12345678 5, 00000015 5, 00000008 0",
	} {
		for number := range strings.SplitSeq(numbers, ", ") {
			covered, want, _ := strings.Cut(number, " ")
			require.Equal(t, want, check(name, covered), "%s of %s", name, covered)
		}
	}
}

// FuzzEquations checks that every text with its check satisfies the equation of the standard. Characters that the
// algorithm does not cover do not count, and lower-case letters count as upper-case ones.
func FuzzEquations(f *testing.F) {
	for _, text := range []string{"", "7992739871", "is-2021/10/24-0001", "@A[Z`a{z/0:9", "٣é世\xff", "000",
		strings.Repeat("4711-", 1000), strings.Repeat("Z9", 40), "9999999999999999999999"} {
		f.Add(text)
	}
	for n := range 1000 {
		f.Add(strconv.FormatInt(int64(n)*7919, 36))
	}
	uncovered := map[bool]*regexp.Regexp{false: regexp.MustCompile(`[^0-9]`), true: regexp.MustCompile(`[^0-9A-Za-z]`)}
	f.Fuzz(func(t *testing.T, text string) {
		for name, a := range checkdigit.Algorithms {
			covered := strings.ToUpper(uncovered[a.Letters].ReplaceAllString(text, ""))
			number := covered + check(name, text)
			require.True(t, equations[name](number), "%s: %s", name, number)
		}
	})
}

// equations verify a number with its check, each in another way than the package computes the check.
var equations = map[string]func(number string) bool{
	"luhn": func(number string) bool { // twice a digit above 4 has two digits, whose sum is less by 9
		sum := weighted(number, 1, 2)
		for i := len(number) - 2; i >= 0; i -= 2 {
			sum -= value(number[i]) / 5 * 9
		}
		return sum%10 == 0
	},
	"damm": func(number string) bool {
		return walk(number, "0317598642", "7092154863", "4206871359", "1750983426", "6123045978", "3674209581",
			"5869720134", "8945362017", "9438617205", "2581436790") == 0
	},
	"gs1":   func(number string) bool { return weighted(number, 1, 3)%10 == 0 },
	"11-10": func(number string) bool { return hybridSum(number, 10) == 1 },
	"97-10": func(number string) bool {
		expanded, check := "", number[len(number)-2:]
		for i := range len(number) {
			expanded += strconv.Itoa(value(number[i]))
		}
		return mod97(expanded) == 1 && "02" <= check && check <= "98"
	},
	"37-36": func(number string) bool { return hybridSum(number, 36) == 1 },
	"731":   func(number string) bool { return weighted(number, 1, 7, 3)%10 == 0 },
	"be97": func(number string) bool {
		end := len(number) - 2
		return number[end:] == fmt.Sprintf("%02d", cmp.Or(mod97("0"+number[:end]), 97))
	},
	"10r": func(number string) bool { // the table of Swiss banks, with a row for each carry
		return walk(number, "0946827135", "9468271350", "4682713509", "6827135094", "8271350946", "2713509468",
			"7135094682", "1350946827", "3509468271", "5094682713") == 0
	},
	"11": func(number string) bool { // 0 stands for 0 and for 10
		end := len(number) - 1
		sum := (weighted(number[:end], 2, 3, 4, 5, 6, 7, 8, 9) + value(number[end])) % 11
		return sum == 0 || sum == 1 && number[end] == '0'
	},
	"s10": func(number string) bool { // 0 stands for 10, and 5 for 5 and for 0
		end := len(number) - 1
		sum := (weighted(number[:end], 7, 9, 5, 3, 2, 4, 6, 8) + value(number[end])) % 11
		return sum == 0 && number[end] != '0' || sum == 1 && number[end] == '0' || sum == 5 && number[end] == '5'
	},
}

func value(c byte) int { return strings.IndexByte(digits+letters, c) }

// weighted returns the sum of the digits, each times a weight. The first weight is the last digit's, and the weights
// repeat.
func weighted(number string, weights ...int) (sum int) {
	for i := range len(number) {
		sum += value(number[i]) * weights[(len(number)-1-i)%len(weights)]
	}
	return sum
}

// walk begins in the first row and, for every digit, goes on to the row that the current row has in the digit's column.
// It returns the number of the final row.
func walk(number string, rows ...string) int {
	row := 0
	for i := range len(number) {
		row = value(rows[row][value(number[i])])
	}
	return row
}

func mod97(number string) int64 {
	n, _ := new(big.Int).SetString(number, 10)
	return n.Mod(n, big.NewInt(97)).Int64()
}

// hybridSum returns the last sum of a number in the system MOD m+1,m, modulo m.
func hybridSum(number string, m int) int {
	product, sum := m, 0
	for i := range len(number) {
		sum = (product + value(number[i])) % m
		product = cmp.Or(sum, m) * 2 % (m + 1)
	}
	return sum
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

// The map has the algorithms whose equations are tested, under their own names. The parts count as one string, and the
// check may be written into the middle of what it covers, without allocations.
func TestAlgorithms(t *testing.T) {
	require.Empty(t, checkdigit.Algorithm{}.Append(nil, []byte("4711")))
	require.Len(t, checkdigit.Algorithms, len(equations))
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
