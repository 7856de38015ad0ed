// Package ff1 implements the format-preserving encryption FF1 of NIST SP 800-38G. It maps the numbers of a fixed width
// one to one onto numbers of the same width. The mapping cannot be computed or reversed without the key.
//
// The names in the code are those of algorithms 7 and 8 of the standard. The standard works on strings of numerals.
// This package works on the integers that these strings represent, with the most significant numeral first. Each half
// of a string fits into 64 bits, so no big integers are needed.
package ff1

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"fmt"
	"math/bits"
)

const blockSize = aes.BlockSize

// A Cipher encrypts the numbers of one domain with one key. It is immutable and safe for concurrent use.
type Cipher struct {
	block cipher.Block
	size  int64               // radix^width
	mod   [2]uint64           // radix^u and radix^v, the moduli of even and odd rounds
	b     int                 // length of a half in Q, 1 to 8 bytes
	p     [blockSize - 4]byte // P without t
}

// New returns a Cipher for numbers of width numerals in the given radix. These numbers are the integers from 0 to
// radix^width − 1. New returns an error unless the key has 16, 24 or 32 bytes, for AES-128, AES-192 or AES-256. It
// copies the key, so the caller may overwrite it.
//
// The caller must make sure that radix is 2 to 36, that there are at least 1,000,000 numbers, and that they fit into an
// int64. SP 800-38G requires a million numbers, because the plaintexts of a smaller domain can be computed from enough
// ciphertexts.
func New(key []byte, radix, width int) (*Cipher, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("ff1: the key has %d bytes; want 16, 24 or 32", len(key))
	}
	c := &Cipher{block: block, mod: [2]uint64{1, 1}}
	copy(c.p[:], []byte{1, 2, 1, 0, 0, byte(radix), 10, byte(width / 2)})
	binary.BigEndian.PutUint32(c.p[8:], uint32(width))
	for i := range width {
		c.mod[1-i%2] *= uint64(radix) // v is u or u+1
	}
	c.size = int64(c.mod[0] * c.mod[1])
	c.b = (bits.Len64(c.mod[1]-1) + 7) / 8 // ⌈⌈v·log2(radix)⌉ / 8⌉, without rounding errors
	return c, nil
}

// Encrypt encrypts n. Each tweak results in a different mapping. A tweak may have any length, and does not have to be
// secret. Encrypt panics if n is not one of the cipher's numbers.
func (c *Cipher) Encrypt(tweak []byte, n int64) int64 {
	return c.join(c.roundFunction(tweak).encrypt(c.split(n)))
}

// Decrypt reverses [Cipher.Encrypt] with the same tweak, and panics in the same case. It cannot detect a wrong tweak or
// key. The result is then another number.
func (c *Cipher) Decrypt(tweak []byte, n int64) int64 {
	return c.join(c.roundFunction(tweak).decrypt(c.split(n)))
}

// split returns A and B, the integers that the first u and the last v numerals represent.
func (c *Cipher) split(n int64) (a, b uint64) {
	if n < 0 || n >= c.size {
		panic(fmt.Sprintf("ff1: %d is not within 0 to %d", n, c.size-1))
	}
	return uint64(n) / c.mod[1], uint64(n) % c.mod[1]
}

func (c *Cipher) join(a, b uint64) int64 { return int64(a*c.mod[1] + b) }

// A roundFunction computes the rounds of one encryption or decryption. It is not safe for concurrent use.
type roundFunction struct {
	*Cipher
	fixed [blockSize]byte // last input block of PRF(P || Q), without i and NUM
	r     [blockSize]byte
}

// roundFunction returns a roundFunction for a tweak. It computes the part of PRF that all rounds share. PRF is a
// CBC-MAC, and only the last block of its input depends on the round. That block consists of the end of the tweak,
// zeros, i in one byte, and NUM in b bytes.
func (c *Cipher) roundFunction(tweak []byte) *roundFunction {
	f := &roundFunction{Cipher: c} // the only allocation; it is on the heap because cipher.Block is an interface
	copy(f.r[:], c.p[:])
	binary.BigEndian.PutUint32(f.r[blockSize-4:], uint32(len(tweak)))
	c.block.Encrypt(f.fixed[:], f.r[:])
	for len(tweak) > blockSize-1-c.b { // the tweak does not fit into the last block
		n := min(len(tweak), blockSize)
		f.add(tweak[:n])
		tweak = tweak[n:]
		c.block.Encrypt(f.fixed[:], f.fixed[:])
	}
	f.add(tweak)
	return f
}

// add XORs a block, padded with zeros, into fixed. It does not use subtle.XORBytes, because tweaks would then escape to
// the heap.
func (f *roundFunction) add(block []byte) {
	for i, c := range block {
		f.fixed[i] ^= c
	}
}

const rounds = 10

// encrypt implements algorithm 7, FF1.Encrypt, from step 5 on.
func (f *roundFunction) encrypt(a, b uint64) (uint64, uint64) {
	for i := range rounds {
		m := f.mod[i%2]
		a, b = b, (a+f.y(i, b, m))%m
	}
	return a, b
}

// decrypt implements algorithm 8, FF1.Decrypt, from step 5 on.
func (f *roundFunction) decrypt(a, b uint64) (uint64, uint64) {
	for i := rounds - 1; i >= 0; i-- {
		m := f.mod[i%2]
		a, b = (b+m-f.y(i, a, m))%m, a
	}
	return a, b
}

// y returns the y of the standard in round i, modulo m. num is the half that the round does not change. y consists of
// the first d bytes of S. These are bytes of R, because d is 8 if b is at most 4, and 12 otherwise.
func (f *roundFunction) y(i int, num, m uint64) uint64 {
	f.r = f.fixed
	f.r[blockSize-1-f.b] ^= byte(i)
	low := f.r[blockSize-8:] // num has at most b bytes, so adding 8 adds nothing to i
	binary.BigEndian.PutUint64(low, binary.BigEndian.Uint64(low)^num)
	f.block.Encrypt(f.r[:], f.r[:])
	if f.b <= 4 {
		return binary.BigEndian.Uint64(f.r[:]) % m
	}
	return bits.Rem64(uint64(binary.BigEndian.Uint32(f.r[:])), binary.BigEndian.Uint64(f.r[4:]), m)
}
