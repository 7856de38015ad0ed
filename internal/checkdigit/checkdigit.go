// Package checkdigit computes check characters, which detect mistyped numbers.
//
//	name    standard              over                check                   misses of the swaps of neighbours
//	luhn    ISO/IEC 7812-1        digits              one digit               09 and 90
//	damm    H. M. Damm, 2004      digits              one digit               none
//	gs1     GS1, ISO/IEC 15420    digits              one digit               digits that differ by 5
//	11-10   ISO 7064 MOD 11,10    digits              one digit               1 in 45
//	97-10   ISO 7064 MOD 97-10    digits and letters  two digits, 02 to 98    B1, M2 and X3 and their reverse
//	37-36   ISO 7064 MOD 37,36    digits and letters  one of 0–9 and A–Z      1 in 630, of two digits 1 in 180
//	731     Finnish references    digits              one digit               digits that differ by 5
//	be97    Belgian references    digits              two digits, 01 to 97    none
//	10r     Swiss references      digits              one digit               1 in 45
//	11      Brazilian NF-e keys   digits              one digit               1 in 55
//	s10     UPU S10               8 digits            one digit               1 in 55
//
// Each finds every single wrong character, with two exceptions. 97-10 misses 1 in 97 letters typed as a digit and 1 in
// 97 digits typed as a letter: a letter counts as two digits, so everything before it moves by one place. 11 and s10 have
// eleven remainders for ten digits, so two remainders share a digit: they miss 1 in 55 wrong digits that they cover.
// These shares, and the shares of swaps, assume that all remainders before the error are equally likely; in numbers of
// one template they vary.
//
// Neighbours are consecutive covered characters. The check counts as the last character: if it is printed elsewhere, a
// swap with a character next to it may be missed.
package checkdigit

// An Algorithm computes check characters. It is a plain value, safe to copy and compare; the zero Algorithm computes
// none.
type Algorithm struct {
	Name    string // name in a template, such as "luhn"
	Width   int    // count of check characters
	Letters bool   // covers ASCII letters and digits; otherwise ASCII digits alone
	Digits  int    // count of digits that it is defined for, all before the check; 0 for any digits

	weights    string // of the digits from the last one on, again and again; "" if it is not a weighted sum
	characters string // check characters by the remainder of that sum
}

// Algorithms has all algorithms by name.
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

// inline is the length up to which Append needs no heap: a template's 256 bytes and a type's 64.
const inline = 320

// Append appends the check characters of parts, taken as one string, to b. Characters that the algorithm does not cover
// are skipped, and lower-case letters count as upper-case ones. Without any covered character, the check comes from the
// standard's initial state. Append does not allocate unless b has to grow or parts cover more than 320 characters.
//
// The parts are read before anything is written, so b and parts may share an array: this writes the check of number,
// printed at position i:
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
	// Static calls: with a function variable, buf and parts would escape to the heap.
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

// weighted returns the sum of the digits, each times a weight: the last one times the first weight, and so on in turn.
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

// quasigroup is the totally anti-symmetric quasigroup of Damm's thesis: rows are interim digits, columns the next
// digits. Its diagonal is 0, so a digit equal to the interim digit, as the check is, leads to 0.
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

// damm looks up one interim digit after another. The last one is the check.
func damm(digits []byte) int {
	interim := 0
	for _, d := range digits {
		interim = int(quasigroup[interim*10+int(d)] - '0')
	}
	return interim
}

// recursive implements modulo 10, recursive, of Swiss payment slips: each digit is added to the carry modulo 10, and
// the sum leads to the next carry. The check makes the last sum 0.
//
// A swap of neighbours is missed if their sums in the first place are 4 and 7: only these two grow by the same amount.
func recursive(digits []byte) int {
	carry := 0
	for _, d := range digits {
		carry = int("0946827135"[(carry+int(d))%10] - '0')
	}
	return (10 - carry) % 10
}

// hybrid implements the hybrid system MOD m+1,m of ISO 7064: each value is added modulo m, where m stands for 0, and
// the sum is doubled modulo m+1. The check makes the last sum 1.
//
// A swap of neighbours is missed if their sums in the first place are m/2 and m/2+1. Doubling adds s, modulo m, to a
// sum s of up to m/2, and s−1 to a larger one; no other two sums grow by the same amount.
func hybrid(values []byte, m int) int {
	product := m
	for _, v := range values {
		sum := product + int(v)
		if sum > m { // cheaper than a division, which would take longer than the rest
			sum -= m
		}
		product = 2 * sum
		if product > m {
			product -= m + 1
		}
	}
	return (m + 1 - product) % m
}

// mod97 returns the number modulo 97; a letter counts as two digits. In the pure system MOD 97-10 of ISO 7064, the
// check, 02 to 98, makes the whole number 1 modulo 97. In Belgian references, it is the remainder itself.
func mod97(values []byte) int {
	remainder := uint64(0)
	for _, v := range values {
		if v > 9 {
			remainder *= 10
		}
		remainder = remainder*10 + uint64(v)
		if remainder > 1e15 { // three more digits still fit; a division takes longer than the rest
			remainder %= 97
		}
	}
	return int(remainder % 97)
}
