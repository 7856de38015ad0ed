// Package checkdigit computes check characters, which detect mistyped numbers.
//
//	name    standard              covers              check                   missed swaps of neighbours
//	luhn    ISO/IEC 7812-1        digits              one digit               09 and 90
//	damm    H. M. Damm, 2004      digits              one digit               none
//	gs1     GS1, ISO/IEC 15420    digits              one digit               digits that differ by 5
//	11-10   ISO 7064 MOD 11,10    digits              one digit               1 in 45
//	97-10   ISO 7064 MOD 97-10    digits and letters  two digits, 02 to 98    B1, M2, X3 and their reverse
//	37-36   ISO 7064 MOD 37,36    digits and letters  one of 0–9 and A–Z      1 in 630, of two digits 1 in 180
//	731     Finnish references    digits              one digit               digits that differ by 5
//	be97    Belgian references    digits              two digits, 01 to 97    none
//	10r     Swiss references      digits              one digit               1 in 45
//	11      Brazilian NF-e keys   digits              one digit               1 in 55
//	s10     UPU S10               8 digits            one digit               1 in 55
//
// Every algorithm detects every single wrong character, with these exceptions. 97-10 misses 1 in 97 letters that are
// typed as a digit, and 1 in 97 digits that are typed as a letter, because a letter counts as two digits and shifts
// everything before it by one position. 11 and s10 miss 1 in 55 wrong digits, because two of their eleven remainders
// have the same check digit. These shares, and the shares of swaps, assume that all remainders before the error are
// equally likely. For the numbers of a template, the shares may differ.
//
// Neighbours are consecutive covered characters. The check counts as the last character. If it is printed elsewhere, a
// swap of the check with a character next to it may be missed.
package checkdigit

// An Algorithm computes check characters. It may be copied and compared. The zero Algorithm computes none.
type Algorithm struct {
	Name    string // name in a template, such as "luhn"
	Width   int    // number of check characters
	Letters bool   // whether ASCII letters are covered, too, and not only ASCII digits
	Digits  int    // number of covered digits that the standard requires, all before the check; 0 if any number is allowed

	weights    string // weights of the digits, from the last digit backwards, repeated; "" if there is no weighted sum
	characters string // check characters, indexed by the remainder of the weighted sum
}

// Algorithms maps names to algorithms.
var Algorithms = map[string]Algorithm{
	"luhn":  {"luhn", 1, false, 0, "1", "0987654321"}, // with every other digit doubled
	"damm":  {"damm", 1, false, 0, "", ""},
	"gs1":   {"gs1", 1, false, 0, "31", "0987654321"},
	"11-10": {"11-10", 1, false, 0, "", ""},
	"97-10": {"97-10", 2, true, 0, "", ""},
	"37-36": {"37-36", 1, true, 0, "", ""},
	"731":   {"731", 1, false, 0, "731", "0987654321"},
	"be97":  {"be97", 2, false, 0, "", ""},
	"10r":   {"10r", 1, false, 0, "", ""},
	"11":    {"11", 1, false, 0, "23456789", "00987654321"},  // 11 minus the remainder, but 0 for 11 and 10
	"s10":   {"s10", 1, false, 8, "79532468", "50987654321"}, // 11 minus the remainder, but 5 for 11 and 0 for 10
}

// inline is the number of covered characters up to which Append does not allocate: 256 bytes of a template and 64 bytes
// of a type.
const inline = 320

// Append appends the check characters of parts to b. The parts count as one string. Characters that the algorithm does
// not cover are skipped, and lower-case letters count as upper-case letters. If no character is covered, the check
// characters are those of an empty string. Append allocates only if b has to grow, or if parts have more than 320
// covered characters.
//
// Append reads all parts before it writes, so b and parts may share an array. For example, this writes the check of a
// number into its bytes at offset i:
//
//	a.Append(number[:i], number[:i], number[i+a.Width:])
func (a Algorithm) Append(b []byte, parts ...[]byte) []byte {
	var buf [inline]byte
	values := buf[:0] // 0 to 9 for digits, and 10 to 35 for letters
	for _, part := range parts {
		for _, c := range part {
			lower := c | 0x20
			switch {
			case '0' <= c && c <= '9':
				values = append(values, c-'0')
			case a.Letters && 'a' <= lower && lower <= 'z':
				values = append(values, lower-'a'+10)
			}
		}
	}
	// The function of the algorithm is not stored in a variable, because buf and parts would then escape to the heap.
	switch a.Name {
	case "luhn":
		for i := len(values) - 1; i >= 0; i -= 2 {
			values[i] = "\x00\x02\x04\x06\x08\x01\x03\x05\x07\x09"[values[i]] // the sum of the digits of 2d
		}
	case "damm":
		return append(b, character(damm(values)))
	case "11-10":
		return append(b, character(hybrid(values, 10)))
	case "97-10":
		check := 98 - mod97(values)*100%97
		return append(b, character(check/10), character(check%10))
	case "37-36":
		return append(b, character(hybrid(values, 36)))
	case "be97":
		check := (mod97(values)+96)%97 + 1 // 97 for 0
		return append(b, character(check/10), character(check%10))
	case "10r":
		return append(b, character(recursive(values)))
	case "": // the zero Algorithm
		return b
	}
	return append(b, a.characters[weighted(values, a.weights)%len(a.characters)])
}

// character returns the character of a value, 0 to 35.
func character(value int) byte { return "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"[value] }

// weighted returns the weighted sum of the digits. The first weight is that of the last digit, and the weights repeat.
func weighted(digits []byte, weights string) int {
	sum, turn := 0, 0
	for i := range digits {
		sum += int(weights[turn]-'0') * int(digits[len(digits)-1-i])
		if turn++; turn == len(weights) {
			turn = 0
		}
	}
	return sum
}

// quasigroup is the totally anti-symmetric quasigroup of Damm's thesis. Its rows are interim digits, and its columns
// the next digits. Its diagonal is 0. The check digit is the last interim digit, so after the check digit, the interim
// digit is 0.
const quasigroup = "" +
	"0317598642" +
	"7092154863" +
	"4206871359" +
	"1750983426" +
	"6123045978" +
	"3674209581" +
	"5869720134" +
	"8945362017" +
	"9438617205" +
	"2581436790"

// damm returns the check digit of Damm's algorithm, which is the last interim digit.
func damm(digits []byte) int {
	interim := 0
	for _, d := range digits {
		interim = int(quasigroup[interim*10+int(d)] - '0')
	}
	return interim
}

// recursive implements the algorithm "modulo 10, recursive" of Swiss payment slips. Each digit is added to the carry
// modulo 10, and a table maps the sum to the next carry. The check makes the last sum 0.
//
// Suppose that two neighbours are swapped. The swap is missed if the sum is 4 when one of them comes first, and 7 when
// the other one does, because these are the only two sums to which the table adds the same amount.
func recursive(digits []byte) int {
	carry := 0
	for _, d := range digits {
		carry = int("0946827135"[(carry+int(d))%10] - '0')
	}
	return (10 - carry) % 10
}

// hybrid implements the hybrid system MOD m+1,m of ISO 7064. Each value is added modulo m, where m is used instead of
// 0, and the sum is doubled modulo m+1. The check character makes the last sum 1.
//
// Suppose that two neighbours are swapped. The swap is missed if the sum is m/2 when one of them comes first, and m/2+1
// when the other one does. Modulo m, doubling adds s to a sum s of up to m/2, and s−1 to a larger sum. So these are the
// only two sums to which it adds the same amount.
func hybrid(values []byte, m int) int {
	product := m
	for _, v := range values {
		sum := product + int(v)
		if sum > m { // cheaper than a division, which would take longer than the rest of the loop
			sum -= m
		}
		product = 2 * sum
		if product > m {
			product -= m + 1
		}
	}
	return (m + 1 - product) % m
}

// mod97 returns the number modulo 97, where a letter counts as two digits. In the pure system MOD 97-10 of ISO 7064,
// the check is 02 to 98 and makes the whole number 1 modulo 97. In Belgian references, the check is the remainder
// itself.
func mod97(values []byte) int {
	remainder := uint64(0)
	for _, v := range values {
		if v > 9 {
			remainder *= 10
		}
		remainder = remainder*10 + uint64(v)
		if remainder > 1e15 { // three more digits still fit; a division for each value would take most of the time
			remainder %= 97
		}
	}
	return int(remainder % 97)
}
