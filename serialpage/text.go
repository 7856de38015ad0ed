package serialpage

import (
	"fmt"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

// count prints a count with narrow spaces between thousands.
func count(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "\u202f" + text[i:]
	}
	return text
}

// plural prints a count with its noun.
func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + many
}

func instant(t time.Time) string { return t.Format("2 January 2006, 15:04 MST") }

// shortly prints an instant without the year, if it lies in the current one.
func shortly(t time.Time) string {
	if t.Year() != time.Now().In(t.Location()).Year() {
		return instant(t)
	}
	return t.Format("2 Jan, 15:04 MST")
}

// reachText says how far the numbers of a series go: how many a period can have, and the last day for which any are
// issued.
func reachText(s *Series) string {
	var all []string
	scheme := s.Source.scheme()
	first, last := scheme.Limits()
	if size := last - first + 1; size < endless {
		text := "Up to " + plural(size, "number", "numbers")
		if p, _ := spanAt(scheme, time.Now()); p.Ends() {
			text += " in each period"
		}
		all = append(all, text+".")
	}
	if day, ok := scheme.Until(); ok {
		text := "Numbers are issued until "
		if scheme.BusinessDate(serial.At(time.Now())).String() > day.String() {
			text = "Numbers were issued until "
		}
		all = append(all, text+dayText(day)+".")
	}
	return strings.Join(all, " ")
}

// numberText prints a number, or its sequence if its date is not known. It is "" if none was issued.
func numberText(n serial.Number) string {
	switch {
	case n.Seq == 0:
		return ""
	case n.Date.IsZero():
		return "sequence " + count(n.Seq)
	}
	return n.String()
}
