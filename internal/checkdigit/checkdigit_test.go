package checkdigit_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/internal/checkdigit"
)

func names() []string { return slices.Sorted(maps.Keys(checkdigit.Algorithms)) }

func check(a checkdigit.Algorithm, number string) string {
	return string(a.Append(nil, []byte(number)))
}

// valid reports whether number ends in its check.
func valid(a checkdigit.Algorithm, number string) bool {
	end := len(number) - a.Width
	return check(a, number[:end]) == number[end:]
}

func TestAlgorithms(t *testing.T) {
	require.Equal(t, strings.Fields("10r 11 11-10 37-36 731 97-10 be97 damm gs1 luhn s10"), names())
	for name, a := range checkdigit.Algorithms {
		require.Equal(t, name, a.Name)
		require.Len(t, check(a, "4711"), a.Width)
	}
	require.Empty(t, check(checkdigit.Algorithm{}, "4711"))
}

func TestPublished(t *testing.T) {
	for name, examples := range map[string][][2]string{
		"luhn": {
			{"7992739871", "3"},
			{"49015420323751", "8"},  // IMEI
			{"411111111111111", "1"}, // payment cards made for tests
			{"37828224631000", "5"},
			{"811218987", "6"}, // Swedish personal identity number
			{"04645428", "6"},  // Canadian social insurance number
		},
		"damm": {{"572", "4"}, {"11294", "6"}},
		"gs1": {
			{"629104150021", "3"}, // GTIN-13
			{"400638133393", "1"},
			{"7351353", "7"},           // GTIN-8
			{"03600029145", "2"},       // GTIN-12
			{"1061414100041", "5"},     // GTIN-14
			{"061414100001", "2"},      // GLN
			{"00614141123456789", "0"}, // SSCC
			{"978-0-306-40615-", "7"},  // ISBN-13
		},
		"11-10": {
			{"0794", "5"},       // ISO 7064
			{"8609574271", "9"}, // German tax identification numbers
			{"4703689281", "6"},
			{"DE 13669597", "6"}, // German VAT number
			{"3339200596", "1"},  // Croatian OIB
		},
		"97-10": {
			{"794", "44"},            // ISO 7064
			{"539007547034RF", "18"}, // ISO 11649: RF18 5390 0754 7034
			{"2348231RF", "71"},
			{"WEST12345698765432GB", "82"}, // IBAN
			{"370400440532013000DE", "89"},
			{"5493001KJTIIGC8Y1R", "12"}, // LEI, ISO 17442
			{"529900T8BM49AURSDO", "55"},
		},
		"37-36": {
			{"A12425GABC1234002", "M"}, // GRid; A1-2425G-ABC1234002-M
			{"0000-0000-3A8D-0000", "Z"},
			{"0000-0000-3A8D-0000-0000-0000", "6"}, // ISAN, ISO 15706
			{"0000-0001-8CFA-0000", "I"},
			{"0000-0001-8CFA-0000-0000-0000", "K"},
		},
		"731": {{"123456", "1"}, {"1234567", "2"}, {"234823", "6"}}, // Finnish references
		"be97": { // Belgian references
			{"090/9337/554", "93"},
			{"010/8068/171", "83"},
			{"000/0000/001", "01"},
			{"000/0000/097", "97"}, // the remainder 0
		},
		"10r": { // Swiss references and accounts
			{"21 00000 00003 13947 14300 0901", "7"},
			{"01-000162-", "8"},
			{"80-000002-", "2"},
		},
		"11": {
			{"5206043300991100250655012000000780026730161", "5"}, // access keys of NF-e, MDF-e and CF-e in Brazil
			{"3518129895720500016466745183092501579140067", "9"},
			{"5013124874035101179558000149000153134595274", "5"},
			{"4314020109898301068065796000000599114812744", "6"},
			{"3515080872321800018659900004019000024111425", "7"},
			{"3515030077657400074155003005616108465900349", "0"}, // the remainder 1
			{"", "0"}, // the remainder 0
		},
		"s10": {
			{"RR 473 124 82", "9"},
			{"RB12345678", "5"},
			{"00000015", "5"}, // 9 and 5 times 7, so the remainder 0
			{"00000008", "0"}, // 8 times 7, so the remainder 1
		},
	} {
		a := checkdigit.Algorithms[name]
		for _, example := range examples {
			require.Equal(t, example[1], check(a, example[0]), "%s of %s", name, example[0])
		}
	}
}

const (
	digits  = "0123456789"
	letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// alphabetOf is what a covers.
func alphabetOf(a checkdigit.Algorithm) string {
	if a.Letters {
		return digits + letters
	}
	return digits
}

func isLetter(c byte) bool { return c >= 'A' }

// random returns a number of 1 to 24 characters that a covers, with its check behind it.
func random(rnd *rand.Rand, a checkdigit.Algorithm) string {
	alphabet := alphabetOf(a)
	number := make([]byte, 1+rnd.IntN(24))
	for i := range number {
		number[i] = alphabet[rnd.IntN(len(alphabet))]
	}
	return string(a.Append(number, number))
}

// A character in the place of another is found, wherever it stands and also in the check. The exceptions are those that
// the package's documentation names.
func TestSingleErrors(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, name := range names() {
		a := checkdigit.Algorithms[name]
		for range 2000 {
			number := random(rnd, a)
			for i := range len(number) {
				for _, c := range []byte(alphabetOf(a)) {
					if c == number[i] {
						continue
					}
					wrong := number[:i] + string(c) + number[i+1:]
					end := len(number) - a.Width
					mixed := isLetter(c) != isLetter(number[i]) && i < end
					switch _, elevens := sameCheck[name]; {
					case name == "97-10" && mixed: // see TestMod97Misses
					case valid(a, wrong) != (elevens && i < end && elevenMisses(name, number[:end], wrong[:end])):
						t.Fatalf("%s, %s for %s: missed is not %t", name, wrong, number, valid(a, wrong))
					}
				}
			}
		}
	}
}

// Exactly the swaps of neighbours are missed that the package's documentation names. What it says of how many follows
// from that, for the hybrid systems in TestHybridMisses.
func TestSwaps(t *testing.T) {
	pair := func(a, b byte, pairs ...string) bool {
		return slices.Contains(pairs, string([]byte{a, b})) || slices.Contains(pairs, string([]byte{b, a}))
	}
	misses := map[string]func(number string, i int) bool{ // of number[i] and number[i+1]
		"luhn":  func(number string, i int) bool { return pair(number[i], number[i+1], "09") },
		"damm":  func(string, int) bool { return false },
		"gs1":   func(number string, i int) bool { return max(number[i], number[i+1])-min(number[i], number[i+1]) == 5 },
		"11-10": func(number string, i int) bool { return hybridMisses(number, i, 10) },
		"97-10": func(number string, i int) bool {
			return i+1 < len(number)-2 && pair(number[i], number[i+1], "B1", "M2", "X3") // a check has no letters
		},
		"37-36": func(number string, i int) bool { return hybridMisses(number, i, 36) },
		"be97":  func(string, int) bool { return false },
		"10r":   recursiveMisses,
		"11":    func(number string, i int) bool { return elevenMissesSwap("11", number, i) },
		"s10":   func(number string, i int) bool { return elevenMissesSwap("s10", number, i) },
	}
	misses["731"] = misses["gs1"]
	rnd := rand.New(rand.NewPCG(3, 4))
	for _, name := range names() {
		a := checkdigit.Algorithms[name]
		missed := 0
		for range 20_000 {
			number := random(rnd, a)
			for i := range len(number) - 1 {
				if number[i] == number[i+1] {
					continue
				}
				wrong := number[:i] + string([]byte{number[i+1], number[i]}) + number[i+2:]
				takes := valid(a, wrong)
				if takes != misses[name](number, i) {
					t.Fatalf("%s, %s for %s: missed is %t", name, wrong, number, takes)
				}
				if takes {
					missed++
				}
			}
		}
		none := name == "damm" || name == "be97"
		require.Equal(t, none, missed == 0, "%s: an exception that never happens is not tested", name)
	}
}

// recursiveMisses reports whether the sums of number[i] and number[i+1], each in the place of number[i], are 4 and 7.
func recursiveMisses(number string, i int) bool {
	carry := carryOf(number[:i])
	a, b := (carry+int(number[i]-'0'))%10, (carry+int(number[i+1]-'0'))%10
	return min(a, b) == 4 && max(a, b) == 7
}

// carryOf is the carry behind number, by the table that Swiss banks publish: rows are carries, columns the next digits.
func carryOf(number string) int {
	return walk(number, "0946827135", "9468271350", "4682713509", "6827135094", "8271350946", "2713509468", "7135094682",
		"1350946827", "3509468271", "5094682713")
}

// elevens has the weights of the algorithms modulo 11, from the right.
var elevens = map[string][]int{"11": {2, 3, 4, 5, 6, 7, 8, 9}, "s10": {7, 9, 5, 3, 2, 4, 6, 8}}

// sameCheck has the two remainders modulo 11 that an algorithm gives the same check.
var sameCheck = map[string][]int{"11": {0, 1}, "s10": {0, 6}}

// elevenMisses reports whether two numbers without their checks have the two remainders that have the same check.
func elevenMisses(name, right, wrong string) bool {
	remainders := []int{weighted(right, elevens[name]...) % 11, weighted(wrong, elevens[name]...) % 11}
	slices.Sort(remainders)
	return slices.Equal(remainders, sameCheck[name])
}

// elevenMissesSwap reports whether an algorithm modulo 11 misses the swap of number[i] and number[i+1].
func elevenMissesSwap(name, number string, i int) bool {
	end := len(number) - 1
	if i+1 < end {
		return elevenMisses(name, number[:end], number[:i]+string([]byte{number[i+1], number[i]})+number[i+2:end])
	}
	// The last digit and the check. Elsewhere than in these cases, the check is the negative remainder, so the two
	// numbers could have each other's last digit as the check only if both digits were equal.
	before := weighted(number[:i]+"0", elevens[name]...) % 11
	pair := fmt.Sprintf("%d %c%c", before, min(number[i], number[i+1]), max(number[i], number[i+1]))
	return slices.Contains(map[string][]string{"11": {"10 01"}, "s10": {"5 45", "9 02"}}[name], pair)
}

// The algorithms modulo 11 miss 1 in 55 wrong digits and 1 in 55 swaps of covered digits: all cases are tried, behind
// every remainder.
func TestElevenMisses(t *testing.T) {
	for name := range elevens {
		a := checkdigit.Algorithms[name]
		missed, all := 0, 0
		for remainder := range 11 {
			before := 10
			for weighted(fmt.Sprint(before, "00"), elevens[name]...)%11 != remainder {
				before++
			}
			for _, d := range digits {
				for _, other := range digits {
					if d == other {
						continue
					}
					all++
					right, wrong := fmt.Sprintf("%d%c0", before, d), fmt.Sprintf("%d%c0", before, other)
					swapped, back := fmt.Sprintf("%d%c%c", before, d, other), fmt.Sprintf("%d%c%c", before, other, d)
					for _, numbers := range [][2]string{{right, wrong}, {swapped, back}} {
						if check(a, numbers[0]) == check(a, numbers[1]) {
							missed++
						}
					}
				}
			}
		}
		require.Equal(t, 2*all, missed*55, name)
	}
}

// walk returns where the digits of number lead from 0: each to what the current row has at its place.
func walk(number string, rows ...string) int {
	at := byte(0)
	for i := range len(number) {
		at = rows[at][number[i]-'0'] - '0'
	}
	return int(at)
}

// hybridMisses reports whether the sums of number[i] and number[i+1], each in the place of number[i], are m/2 and
// m/2+1.
func hybridMisses(number string, i, m int) bool {
	product := m
	sum := func(c byte) int { // 1 to m
		v, _ := strconv.ParseInt(string(c), 36, 0)
		return (product+int(v)+m-1)%m + 1
	}
	for _, c := range []byte(number[:i]) {
		product = sum(c) * 2 % (m + 1)
	}
	a, b := sum(number[i]), sum(number[i+1])
	return min(a, b) == m/2 && max(a, b) == m/2+1
}

// 97-10 misses a digit typed as a letter, and a letter typed as a digit, behind 1 in 97 remainders: all cases are
// tried.
func TestMod97Misses(t *testing.T) {
	a := checkdigit.Algorithms["97-10"]
	missed, all := map[bool]int{}, map[bool]int{} // by whether the letter is the right character
	for remainder := range 97 {
		for _, d := range digits {
			for _, l := range letters {
				digit, letter := fmt.Sprintf("%02d%c00", remainder, d), fmt.Sprintf("%02d%c00", remainder, l)
				for _, swapped := range []bool{false, true} {
					right, wrong := digit, letter
					if swapped {
						right, wrong = letter, digit
					}
					all[swapped]++
					if valid(a, wrong+check(a, right)) {
						missed[swapped]++
					}
				}
			}
		}
	}
	require.Equal(t, map[bool]int{false: 97 * 260, true: 97 * 260}, all)
	require.Equal(t, map[bool]int{false: 260, true: 260}, missed)
}

// The hybrid systems miss 1 in 45 swaps of digits, 1 in 180 of digits and 1 in 630 of all characters, and the recursive
// one misses 1 in 45: all pairs of different characters are tried, behind everything that can stand before them.
func TestHybridMisses(t *testing.T) {
	for _, row := range []struct{ m, characters, share int }{
		{10, 10, 45}, {36, 10, 180}, {36, 36, 630}, {0, 10, 45}, // 0 for the recursive one
	} {
		missed, all := 0, 0
		for first := range cmp.Or(row.m, 10) { // leads to each of the m states
			for a := range row.characters {
				for b := range row.characters {
					if a == b {
						continue
					}
					all++
					number := strconv.FormatInt(int64(first), 36) + strconv.FormatInt(int64(a), 36) + strconv.FormatInt(int64(b), 36)
					if row.m > 0 && hybridMisses(number, 1, row.m) || row.m == 0 && recursiveMisses(number, 1) {
						missed++
					}
				}
			}
		}
		require.Equal(t, all, missed*row.share, row)
	}
}

// The parts are one string, what is not covered does not count, and neither does the case of letters.
func TestCovered(t *testing.T) {
	for name, a := range checkdigit.Algorithms {
		want := check(a, "20251004711")
		require.Equal(t, want, string(a.Append(nil, []byte("2025"), nil, []byte("1004"), []byte("711"))), name)
		require.Equal(t, want, check(a, " 2025-10/04_7.11٣é世\xff"), name)
		if a.Letters {
			require.NotEqual(t, want, check(a, "IS20251004711"), name)
			require.Equal(t, check(a, "IS20251004711AZ"), check(a, "is-20251004711-az"), name)
			require.Equal(t, check(a, "IS2025"), check(a, "@I[S`2{0/2:5"), "%s: the neighbours of letters and digits", name)
		} else {
			require.Equal(t, want, check(a, "IS20251004711az"), name)
		}
		long := strings.Repeat("4711-", 1000)
		require.Equal(t, check(a, strings.ReplaceAll(long, "-", "")), check(a, long), name)
	}
	for name, want := range map[string]string{"luhn": "0", "damm": "0", "gs1": "0", "11-10": "1", "97-10": "98",
		"37-36": "1", "731": "0", "be97": "97", "10r": "0", "11": "0", "s10": "5"} {
		require.Equal(t, want, check(checkdigit.Algorithms[name], "--"), name)
	}
}

// The check may be written into the middle of what it covers.
func TestAppendInPlace(t *testing.T) {
	for name, a := range checkdigit.Algorithms {
		number := []byte("RF" + strings.Repeat("*", a.Width) + "539007547034")
		want := "RF" + check(a, "RF539007547034") + "539007547034"
		a.Append(number[:2], number[:2], number[2+a.Width:])
		require.Equal(t, want, string(number), name)
	}
}

// What ends in its check fulfils the equation of the standard.
func FuzzEquations(f *testing.F) {
	f.Add("7992739871")
	f.Add("IS-2021/10/24-0001")
	f.Add("")
	f.Add(strings.Repeat("Z9", 40))
	f.Fuzz(func(t *testing.T, text string) {
		for name, a := range checkdigit.Algorithms {
			covered := strings.Map(func(r rune) rune {
				switch {
				case strings.ContainsRune(digits+letters, r):
				case 'a' <= r && r <= 'z':
					r -= 'a' - 'A'
				default:
					return -1
				}
				if !a.Letters && r > '9' {
					return -1
				}
				return r
			}, text)
			number := covered + check(a, text)
			require.True(t, equations[name](number), "%s: %s", name, number)
		}
	})
}

// equations verify a number with its check, each in another way than the package computes the check.
var equations = map[string]func(number string) bool{
	"luhn": func(number string) bool {
		sum := 0
		for i := range len(number) {
			weighted := strconv.Itoa(int(number[i]-'0') * (1 + (len(number)-1-i)%2))
			for _, d := range weighted {
				sum += int(d - '0')
			}
		}
		return sum%10 == 0
	},
	"damm": func(number string) bool {
		// The check leads to 0, through a quasigroup given by its rows.
		return walk(number, "0317598642", "7092154863", "4206871359", "1750983426", "6123045978", "3674209581",
			"5869720134", "8945362017", "9438617205", "2581436790") == 0
	},
	"gs1":   func(number string) bool { return weighted(number, 1, 3)%10 == 0 },
	"11-10": func(number string) bool { return hybridSum(number, 10) == 1 },
	"97-10": func(number string) bool {
		var expanded strings.Builder
		for i := range len(number) {
			v, _ := strconv.ParseInt(number[i:i+1], 36, 0)
			fmt.Fprint(&expanded, v)
		}
		n, ok := new(big.Int).SetString(expanded.String(), 10)
		check := number[len(number)-2:]
		return ok && n.Mod(n, big.NewInt(97)).Int64() == 1 && "02" <= check && check <= "98"
	},
	"37-36": func(number string) bool { return hybridSum(number, 36) == 1 },
	"731":   func(number string) bool { return weighted(number, 1, 7, 3)%10 == 0 },
	"be97": func(number string) bool {
		n, ok := new(big.Int).SetString("0"+number[:len(number)-2], 10)
		check := number[len(number)-2:]
		remainder := n.Mod(n, big.NewInt(97)).Int64()
		return ok && check == fmt.Sprintf("%02d", cmp.Or(remainder, 97))
	},
	"10r": func(number string) bool { return carryOf(number) == 0 },
	"11": func(number string) bool { // the check makes the sum 0, but 0 stands for 10 too
		sum := elevenSum("11", number)
		return sum == 0 || sum == 1 && strings.HasSuffix(number, "0")
	},
	"s10": func(number string) bool { // 0 stands for 10, and 5 for 0 too
		sum, check := elevenSum("s10", number), number[len(number)-1]
		return sum == 0 && check != '0' || sum == 1 && check == '0' || sum == 5 && check == '5'
	},
}

// elevenSum is the sum of the weighted digits and the check, modulo 11.
func elevenSum(name, number string) int {
	end := len(number) - 1
	return (weighted(number[:end], elevens[name]...) + int(number[end]-'0')) % 11
}

// weighted is the sum of the digits, each times a weight. The weights repeat, and the first is the last digit's.
func weighted(number string, weights ...int) (sum int) {
	for i := range len(number) {
		sum += int(number[i]-'0') * weights[(len(number)-1-i)%len(weights)]
	}
	return sum
}

// hybridSum is the last sum of number in the system MOD m+1,m, modulo m.
func hybridSum(number string, m int) int {
	product, sum := m, 0
	for i := range len(number) {
		v, _ := strconv.ParseInt(number[i:i+1], 36, 0)
		sum = (product + int(v)) % m
		if sum == 0 {
			product = m
		} else {
			product = sum
		}
		product = product * 2 % (m + 1)
	}
	return sum
}

func TestAllocations(t *testing.T) {
	number := strings.Repeat("IS-20211024-000001-", 16)
	number = number[:256]
	buf := make([]byte, 0, 8)
	for name, a := range checkdigit.Algorithms {
		require.Zero(t, testing.AllocsPerRun(100, func() {
			buf = a.Append(buf[:0], []byte(number[100:]), []byte(number[:100]))
		}), name)
	}
}
