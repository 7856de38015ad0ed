package template

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/dailyserial/serial/internal/ff1"
)

// Hide makes the template print encrypted sequences. The parameter prefix is the prefix of keys in Redis. The parameter
// counter is the name of the counter that all types share, or "" if each type has its own counter.
func (t *Template) Hide(key []byte, prefix, counter string) error {
	if n := t.alphabet.largest(t.seqWidth); t.grows || n < 999_999 {
		return fmt.Errorf("serial: WithHiddenSequence: the template has %d sequences; want a million or more "+
			"of one width: {seq:6} to {seq:15}, {seq:4:base32}, {seq:4:base36}, {seq:5:alpha}, {seq:5:letters} or "+
			"wider, without +", n)
	}
	cipher, err := ff1.New(key, len(t.alphabet.digits), t.seqWidth)
	if err != nil {
		return fmt.Errorf("serial: WithHiddenSequence: %w", err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("serial: fingerprint of a key for hidden sequences"))
	t.cipher, t.prefix, t.counter, t.Fingerprint = cipher, prefix, counter, hex.EncodeToString(mac.Sum(nil)[:8])
	return nil
}

// tweak appends the tweak for a counter, which is the key of the counter in Redis. So the encryption of each counter is
// different.
func (t *Template) tweak(b []byte, typ, label string) []byte {
	b = append(append(b, t.prefix...), ":{"...)
	b = append(append(b, cmp.Or(t.counter, typ)...), "}:"...)
	return append(b, label...)
}

// PrintMark returns a hash of the settings that must be the same in all processes, because otherwise two sequences of a
// period could be printed as the same number. These settings are the order of fields and tokens, the alphabet, the
// check digit and the key. Widths, literals and the spellings of tokens are not part of the hash.
func (t *Template) PrintMark() string {
	marks := [...]string{
		fieldLiteral: "", fieldType: "type;", fieldSeq: "seq:" + t.alphabet.name + ";",
		fieldDate: "date:" + strings.Join(t.Dates.tokens, " ") + ";", fieldCheck: "check:" + t.check.Name + ";",
	}
	var text string
	for _, f := range t.fields {
		text += marks[f.kind]
		marks[f.kind] = "" // a date consists of several fields, and counts once
	}
	if t.Fingerprint != "" {
		text += "hidden:" + t.Fingerprint
	}
	sum := sha256.Sum256([]byte(text))
	// With 12 characters, the fields of most records have at most 64 bytes, and Redis stores such fields compactly.
	return hex.EncodeToString(sum[:6])
}
