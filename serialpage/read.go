package serialpage

import (
	"errors"
	"strings"

	"github.com/dailyserial/serial"
)

// blanks pad stored numbers, as in CHAR columns. An audit ignores them.
const blanks = " \t\u00a0"

// A reading is how the schemes of a series read a text.
type reading struct {
	period span  // zero if the series cannot read the text
	seq    int64 // in the period

	other      bool // it is a number of another series or period
	mistyped   bool // a check digit is wrong
	impossible bool // its date cannot be
}

// read reads a text as a number of the series, and of the period with a label unless label is "".
func (s *Series) read(text, label string) (r reading) {
	name, current := s.series(), s.Source.scheme()
	for i, scheme := range s.schemes() {
		n, err := scheme.Parse(text)
		if err != nil {
			r.mistyped = r.mistyped || errors.Is(err, serial.ErrCheckDigit)
			ours := strings.Contains(text, s.Type) || strings.HasSuffix(name, ":*") // or all types share the series
			r.impossible = r.impossible || ours && errors.Is(err, serial.ErrImpossibleDate)
			continue
		}
		p, ok := spanAt(scheme, n.Start)
		if !s.has(n.Type, name) || label != "" && p.label != label {
			r.other = true
			continue
		}
		if i > 0 && ok { // the page shows the period as the current scheme has it
			if start, _, found := labelled(current, p); found {
				p = spanOf(s, start)
			} else {
				ok, r.impossible = false, true
			}
		}
		if ok {
			r.period, r.seq = p, n.Seq
			return r
		}
	}
	return r
}

// series returns the name of the series.
func (s *Series) series() string {
	name, _ := s.Source.scheme().Series(s.Type) // allSeries has refused an invalid type
	return name
}

// has reports whether numbers of a type belong to the series, which has that name.
func (s *Series) has(typ, name string) bool {
	if typ == s.Type {
		return true
	}
	series, err := s.Source.scheme().Series(typ)
	return err == nil && series == name
}
