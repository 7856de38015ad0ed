package ff1_test

import (
	"crypto/aes"
	"encoding/binary"
	"math"
	"math/big"
	"slices"
)

// reference is FF1 as SP 800-38G writes it down, step by step, for numeral strings of any length. It shares nothing
// with the package.
type reference struct {
	key   []byte
	radix int
}

func (r reference) num(x []byte) *big.Int {
	n := new(big.Int)
	for _, numeral := range x {
		n.Mul(n, big.NewInt(int64(r.radix)))
		n.Add(n, big.NewInt(int64(numeral)))
	}
	return n
}

func (r reference) str(m int, n *big.Int) []byte {
	x := make([]byte, m)
	n = new(big.Int).Set(n)
	for i := m - 1; i >= 0; i-- {
		var numeral big.Int
		n.DivMod(n, big.NewInt(int64(r.radix)), &numeral)
		x[i] = byte(numeral.Int64())
	}
	return x
}

func (r reference) ciph(x []byte) []byte {
	block, err := aes.NewCipher(r.key)
	if err != nil {
		panic(err)
	}
	out := make([]byte, 16)
	block.Encrypt(out, x)
	return out
}

func xor(x, y []byte) []byte {
	out := slices.Clone(x)
	for i := range out {
		out[i] ^= y[i]
	}
	return out
}

// prf is algorithm 6.
func (r reference) prf(x []byte) []byte {
	y := make([]byte, 16)
	for block := range slices.Chunk(x, 16) {
		y = r.ciph(xor(y, block))
	}
	return y
}

// crypt is algorithm 7, or algorithm 8 if decrypt is set.
func (r reference) crypt(tweak, x []byte, decrypt bool) []byte {
	n, t := len(x), len(tweak)
	u := n / 2 // 1
	v := n - u
	A, B := x[:u], x[u:] // 2
	// 3, where log2 is not exact for powers of two.
	b := int(math.Ceil(math.Ceil(float64(v)*math.Log2(float64(r.radix))-1e-9) / 8))
	d := 4*((b+3)/4) + 4                                         // 4
	P := []byte{1, 2, 1, 0, 0, byte(r.radix), 10, byte(u % 256)} // 5
	P = binary.BigEndian.AppendUint32(P, uint32(n))
	P = binary.BigEndian.AppendUint32(P, uint32(t))
	for step := range 10 { // 6
		i, fixed := step, B
		if decrypt {
			i, fixed = 9-step, A
		}
		Q := slices.Clone(tweak) // 6.i
		for (len(Q)+b+1)%16 != 0 {
			Q = append(Q, 0)
		}
		Q = append(Q, byte(i))
		Q = append(Q, r.num(fixed).FillBytes(make([]byte, b))...)
		R := r.prf(append(slices.Clone(P), Q...)) // 6.ii
		S := slices.Clone(R)                      // 6.iii
		for j := 1; len(S) < d; j++ {
			S = append(S, r.ciph(xor(R, binary.BigEndian.AppendUint64(make([]byte, 8), uint64(j))))...)
		}
		y := new(big.Int).SetBytes(S[:d]) // 6.iv
		m := v                            // 6.v
		if i%2 == 0 {
			m = u
		}
		c := new(big.Int) // 6.vi
		if decrypt {
			c.Sub(r.num(B), y)
		} else {
			c.Add(r.num(A), y)
		}
		c.Mod(c, new(big.Int).Exp(big.NewInt(int64(r.radix)), big.NewInt(int64(m)), nil))
		C := r.str(m, c) // 6.vii
		if decrypt {     // 6.viii and 6.ix
			A, B = C, A
		} else {
			A, B = B, C
		}
	}
	return slices.Concat(A, B) // 7
}
