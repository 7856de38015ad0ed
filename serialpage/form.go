package serialpage

import (
	"net/url"
	"strings"
	"time"

	"github.com/dailyserial/serial"
)

const (
	maxFormBytes = 64 << 10
	maxFormAge   = time.Hour
	formTime     = time.RFC3339Nano // layout for times that are rounded to microseconds, as in registers
)

// A form contains the fields of the form for explaining missing numbers.
type form struct {
	Key, Start, At      string
	First, Last, Reason string
	Single              bool   // whether the form accepts only a single number
	Wrong               string // text that describes the mistake in the form, or ""
}

// newForm returns the form for a period, with the values of a query in its fields. It does not trim the numbers,
// because a template can print whitespace around them.
func newForm(numbers printer, query url.Values) *form {
	return &form{Key: numbers.series.Key, Start: numbers.period.Start.UTC().Format(time.RFC3339),
		At: time.Now().UTC().Truncate(time.Microsecond).Format(formTime), First: query.Get("first"),
		Last: query.Get("last"), Reason: strings.TrimSpace(query.Get("reason")), Single: numbers.hidden}
}

// formAddress returns the address of the form, with the numbers of a range and a reason in its fields. It returns "" if
// the template cannot print the numbers.
func (n printer) formAddress(r serial.Range, reason string) string {
	first, last := n.whole(r.First), ""
	if r.Last > r.First && !n.hidden {
		last = n.whole(r.Last)
	}
	if first == "" {
		return ""
	}
	return address("period", n.series.Key, n.period.Start, "first", first, "last", last, "reason", reason) + "#explain"
}

// readTime parses the time in a form. If the form is too old or its time is invalid, wrong contains the text to show.
func readTime(sent string) (at time.Time, wrong string) {
	at, err := time.Parse(formTime, sent)
	at = at.UTC().Truncate(time.Microsecond)
	if age := time.Since(at); err != nil || age < 0 || age > maxFormAge {
		return at, "Nothing was saved, because this form was more than an hour old, or its time was in the future. Check " +
			"the form below, and send it again."
	}
	return at, ""
}

// check returns the range of sequences in a form. If the form has a mistake, wrong describes it.
func (in *form) check(numbers printer) (r serial.Range, wrong string) {
	if r.First, wrong = numbers.sequence(in.First); wrong != "" {
		return r, wrong
	}
	r.Last = r.First
	if strings.TrimSpace(in.Last) != "" {
		r.Last, wrong = numbers.sequence(in.Last)
	}
	err := serial.Explanation{First: 1, Last: 1, Reason: in.Reason, At: time.Unix(0, 0)}.Validate()
	switch {
	case wrong != "":
		return r, wrong
	case in.Single && r.First != r.Last:
		return r, "Enter only one number. In this series, two numbers do not show which other numbers are between them."
	case r.First > r.Last:
		return r, "Enter the lower number first."
	case in.Reason == "":
		return r, "Enter a reason."
	case err != nil:
		_, wrong, _ = strings.Cut(err.Error(), "Reason: ")
		return r, "This reason cannot be saved: " + wrong + "."
	}
	return r, ""
}

// sequence parses text as a number of the period. If that fails, wrong describes the mistake.
func (n printer) sequence(text string) (seq int64, wrong string) {
	switch _, r := n.series.parseTyped(text, n.period.label); {
	case r.period.label != "":
		return r.seq, ""
	case r.other:
		return 0, "Enter numbers of this series and period."
	case r.mistyped:
		return 0, "A number has a wrong check digit, so it was probably mistyped."
	}
	return 0, "Enter complete numbers of this series, as they are printed."
}
