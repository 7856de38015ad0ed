package ff1

// Size is the number of integers that the cipher works on: 0 to Size() − 1.
func (c *Cipher) Size() int64 { return c.size }

// EncryptHalves and DecryptHalves are Encrypt and Decrypt of a number given by its first u numerals and its last v
// ones.
func (c *Cipher) EncryptHalves(tweak []byte, a, b uint64) (uint64, uint64) {
	return c.roundFunction(tweak).encrypt(a, b)
}

func (c *Cipher) DecryptHalves(tweak []byte, a, b uint64) (uint64, uint64) {
	return c.roundFunction(tweak).decrypt(a, b)
}
