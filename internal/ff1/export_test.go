package ff1

// NewAny is New without limits to the domain, for numerals up to twice of what Encrypt takes.
var NewAny = newCipher

// EncryptHalves and DecryptHalves are Encrypt and Decrypt of a number given by its first u numerals and its last v ones.
func (c *Cipher) EncryptHalves(tweak []byte, a, b uint64) (uint64, uint64) {
	h := c.encrypt(tweak, halves{a, b})
	return h.a, h.b
}

func (c *Cipher) DecryptHalves(tweak []byte, a, b uint64) (uint64, uint64) {
	h := c.decrypt(tweak, halves{a, b})
	return h.a, h.b
}
