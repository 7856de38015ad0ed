package serial

import (
	"database/sql/driver"
	"fmt"
	"slices"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/template"
)

// A Number is a serial number and its parts. It may be copied. Use [Number.Equal] to compare two Numbers. In JSON, and
// as an argument of a query, a Number becomes the string that [Number.String] returns; see [Number.MarshalText] and
// [Number.Value].
type Number struct {
	Type  string    // business type, such as "IS"
	Start time.Time // first instant of the number's period, in the Generator's time zone
	// Date is the first instant of the printed date. It equals Start unless the template prints more of the date than the
	// period. For example, if the period is a year and the template prints the month, Date is the first instant of that
	// month. With such templates, Date is zero if it is not known: in the results of Peek and History, and in some numbers
	// of a Report. If the printed date occurs more than once in a period, such as a day without its month, Date is the
	// first instant of the first occurrence.
	Date time.Time
	Seq  int64 // sequence within the period, at least 1; 0 from Peek and History if no number was issued

	date     string             // printed date, or "" if it is not known
	label    string             // label of the period, which is needed to hide the sequence
	template *template.Template // nil if the Number does not come from a Generator or Scheme
}

// String returns the number as it was issued, such as "IS202110240001". It returns "" if the Number does not come from
// a [Generator] or [Scheme], or if its Date is not known. If another program has written the counter, Peek can return a
// Number whose sequence is too large for the template. String then returns all digits of the sequence, in decimal.
func (n Number) String() string {
	if n.template == nil {
		return ""
	}
	return n.template.PrintNumber(n.Type, n.date, n.label, n.Seq)
}

// Int64 returns the number as an integer. It consists of the digits of the date, from the year to the second, and the
// padded sequence. For IS202110240001, Int64 returns 202110240001. The integers of one type and template sort in the
// order of issue. A two-digit year is not expanded, and check digits are omitted.
//
// The template must print no date or one of these dates, with its tokens in any order: only a year; a year with MM and
// optionally dd, HH, mm and ss; a year with DDD and optionally HH, mm and ss; GGGG WW; FFFF Q; or FFFF S. BBBB and BB
// are treated like yyyy and yy. If both the first and the last year of a business year are printed, as in FFFF-EE, only
// the first one is part of the integer.
//
// Int64 fails if the template prints another date, if the date is not known, or if the digits do not fit into an int64.
// It fails if the sequence is hidden, printed with letters, or wider than its padding, because the integers would not
// sort. It also fails if the Number does not come from a [Generator] or [Scheme].
func (n Number) Int64() (int64, error) {
	if n.template == nil {
		_, err := n.text("Int64")
		return 0, err
	}
	return n.template.Int64(n.date, n.Seq)
}

// Equal reports whether n and other are the same number, which means that Type, Seq and String are equal, and that
// Start is the same instant. Do not use ==, which may be false for the same number from two Generators, or for an
// issued number and the result of parsing it.
//
// The zero Number is equal only to itself. A Number whose Date is not known does not equal the number as it was issued,
// because its String is "".
func (n Number) Equal(other Number) bool {
	return n.Type == other.Type && n.Seq == other.Seq && n.Start.Equal(other.Start) && n.String() == other.String()
}

// MarshalText returns the same string as [Number.String]. So a field or map key of type Number becomes "IS202110240001"
// in JSON. The zero Number becomes "", or is omitted if the field has the tag omitzero.
//
// MarshalText fails if Date is not known, which can be the case for the results of [Generator.Peek] and
// [Generator.History] if the template prints more of the date than the period. It also fails if n is not zero and does
// not come from a [Generator] or [Scheme].
//
// There is no UnmarshalText, because the string does not show where the type ends and which period the number belongs
// to. To decode a number, decode it into a string and call [Generator.Parse] or [Scheme.Parse].
func (n Number) MarshalText() ([]byte, error) {
	if n.Equal(Number{}) {
		return []byte{}, nil
	}
	text, err := n.text("MarshalText")
	return []byte(text), err
}

// Value returns the same string as [Number.String]. It implements [driver.Valuer], so a Number can be an argument of a
// query. A nil *Number is NULL.
//
// Value fails if [Number.String] returns "", as it does for the zero Number, and for a Number whose Date is not known.
// The query is then not sent.
//
// There is no Scan. To scan a number, scan it into a string and call [Generator.Parse] or [Scheme.Parse].
func (n Number) Value() (driver.Value, error) {
	text, err := n.text("Value")
	if err != nil {
		return nil, err
	}
	return text, nil
}

// text returns the result of String, or an error instead of "". The parameter method is the exported method that was
// called.
func (n Number) text(method string) (string, error) {
	text := n.String()
	if text != "" {
		return text, nil
	}
	if n.template == nil {
		return "", fmt.Errorf("serial: %s of a Number that does not come from a Generator or Scheme", method)
	}
	return "", fmt.Errorf("serial: %s of sequence %d of %s: its date is not known, "+
		"because its template prints more than its period; use Type, Start and Seq", method, n.Seq, n.Type)
}

// newNumber returns the number that t prints for a type and a sequence in a span.
func newNumber(t *template.Template, s calendar.Span, typ string, seq int64) Number {
	start, date := t.Dates.Instants(&s)
	return Number{Type: typ, Start: start, Date: date, Seq: seq, date: s.Date, label: s.Label, template: t}
}

// WithTemplate sets how numbers are printed. A template consists of literal text and these fields, in any order:
//
//	{type}                the business type
//	{date:LAYOUT}         the date and time of issue; see below. It is optional with Never.
//	{seq:WIDTH}           the sequence, padded to WIDTH digits (1-15); {seq} is {seq:4}. A period has 10^WIDTH-1 numbers.
//	{seq:WIDTH+}          the same, but it can become wider: 10000 follows 9999, up to 10^15-1. Each neighbour of the
//	                      field must be the beginning or end of the template, or text with no digit next to the field.
//	                      Text is a literal, a separator, quoted text or the name of a month.
//	{seq:WIDTH:base32}    the same in Crockford's digits 0123456789ABCDEFGHJKMNPQRSTVWXYZ, none of which look alike.
//	                      WIDTH is 1 to 9, and a period has 32^WIDTH-1 numbers, which sort in the order of issue.
//	{seq:WIDTH:base36}    the same in 0-9 and A-Z, with 36^WIDTH-1 numbers
//	{seq:WIDTH:alpha}     the same in A-Z, with 26^WIDTH numbers; the first one of width 3 is AAA
//	{seq:WIDTH:letters}   the same with A as 0, for series that began with AAB, for example
//	{check:ALGORITHM}     an optional check digit; see below
//
// {{ and }} print a brace. Each field may appear only once. "{type}-{date:yyMMdd}-{seq:6}" prints "PO-211024-000001".
//
// # Dates
//
// A layout consists of one or more of these tokens, each at most once:
//
//	yyyy, yy      the calendar year
//	BBBB, BB      the Buddhist year: the calendar year plus 543, up to 9999
//	MM, dd        the month and the day
//	M, d          the same without padding: 1 to 12, 1 to 31
//	MMM, Mmm      the month by name: JAN to DEC, Jan to Dec
//	R             the month in Roman figures, I to XII
//	DDD           the day of the calendar year, 001 to 366
//	GGGG, GG, WW  the year and the week of ISO 8601, 01 to 53
//	FFFF, FF      the calendar year in which the business year begins; see [WithYearStart]
//	EEEE, EE      the calendar year in which it ends: 2025 for the year from April 2024
//	S, Q          the half and the quarter of the business year, 1 to 2 and 1 to 4
//	HH, mm, ss    the hour (00 to 23), the minute and the second
//
// Text in single quotes is printed as it is: GGGG-'W'WW prints 2025-W01. It must not contain braces. Two quotes print
// one quote. Other text between tokens must not contain ASCII letters, digits, quotes or braces. A date has at most one
// calendar year, one month and one day. Each neighbour of M, d and R must be text or the beginning or end of the
// template. The name of a month does not count as text here. The character of the text next to M or d must not be a
// digit, and next to R it must not be a letter.
//
// A two-digit year stands for 2000 to 2099, and BB for 2543 to 2642. In other years, calls fail. Tokens are
// case-sensitive (MM is the month, mm the minute), except that YYYY means yyyy and DD means dd. With PerWeek, or
// together with GGGG, GG or WW, YYYY is refused, because many libraries use it for the year of the week. FFFF and FF
// may be used together, and so may EEEE and EE, and GGGG and GG. All tokens refer to the business day: with a day start
// of 04:00, a number that is issued at 03:00 on 1 April is printed with 31 March.
//
// [New] refuses a layout that could print the same date for two periods, and proposes another one. The following
// layouts identify a period. Y stands for yyyy, yy, BBBB or BB, MM for any month, dd for dd or d, F for FFFF, FF, EEEE
// or EE, and G for GGGG or GG:
//
//	day        Y MM dd, Y DDD, G WW dd, F MM dd
//	week       a day, G WW
//	month      a day, Y MM; F MM if business years begin on the 1st of a month
//	quarter    a day, F Q; a month if business years begin on the 1st of a month
//	half-year  a day, F S, F Q; a month if business years begin on the 1st of a month
//	year       a day, F; a month if business years begin on the 1st of a month
//	hour       a day and HH; a minute also needs mm, and a second also needs mm and ss
//
// If business years begin on January 1, F and Y are the same. Three layouts seem sufficient, but are not: yyyy WW for
// weeks, because 30 December 2024 is in week 1 of 2025; yyyy for business years from April; and F MM for months if the
// business year begins on April 6, because April then belongs to two business years.
//
// A template may print more of the date than the period. With PerYear and yyyyMM, the sequence continues throughout the
// year, and the printed month is the month of issue by Redis's clock. The Start of a [Number] is then the first instant
// of the year, and its Date is the first instant of the month. If Redis's clock is set back within a period, an earlier
// month may be printed again, but the sequence continues.
//
// # Check digits
//
//	luhn   one digit, as on payment cards; misses swaps of 0 and 9
//	damm   one digit; misses no swaps
//	gs1    one digit, as in GTIN and SSCC; misses swaps of digits that differ by 5
//	11-10  one digit, by ISO 7064 MOD 11,10; misses 1 swap in 45
//	97-10  two digits, by ISO 7064 MOD 97-10; misses the swaps of B1, M2 and X3, 1 in 97 letters typed as a
//	       digit and 1 in 97 digits typed as a letter
//	37-36  one digit or capital letter, by ISO 7064 MOD 37,36; misses 1 swap in 630, and 1 in 180 swaps of two digits
//	731    one digit, as in Finnish payment references; misses swaps of digits that differ by 5
//	be97   two digits, 01 to 97, as in Belgian payment references; misses no swaps
//	10r    one digit, modulo 10 recursive, as in Swiss payment references; misses 1 swap in 45
//	11     one digit, modulo 11, as in the access keys of Brazilian invoices (NF-e); misses 1 swap and 1 wrong digit in 55
//	s10    one digit, modulo 11 with other weights, as in postal items of UPU S10; misses 1 swap and 1 wrong digit in 55
//
// The table lists errors that are missed. Each share, such as 1 in 45, is an average over all numbers. It may differ
// for the numbers of a template. Apart from these exceptions, every algorithm detects each single wrong character, and
// each swap of two consecutive covered characters.
//
// Most algorithms cover all ASCII digits of the rest of the number and nothing else. They cannot be combined with
// base32, base36, alpha or letters. 97-10 and 37-36 also cover all ASCII letters and ignore their case. They require
// ASCII types ([ErrInvalidType]). Characters are covered in the printed order, except that 97-10 first covers the
// characters after the check digits, and then those before them. So "RF{check:97-10}..." prints a creditor reference of
// ISO 11649, and at the end of a template the check digits are plain MOD 97-10. s10 is defined for eight digits. The
// template must print exactly eight digits before it and none after it, and types must not contain ASCII digits
// ([ErrInvalidType]). So "{type}{seq:8}{check:s10}GB" prints "RR473124829GB". [Generator.Parse] returns [ErrCheckDigit]
// if the check digit is wrong.
//
// # Limits
//
// A template must be valid UTF-8 of at most 256 bytes, because Redis stores it with every answer of
// [Generator.NextOnce]. All processes that issue numbers of a type must print the same fields and tokens in the same
// order, with the same alphabet and check digit. Otherwise two sequences could print the same number, so calls fail
// with [ErrConflict] until the period has ended. Widths, literals and separators may differ, as long as the printed
// numbers cannot be equal. docs/settings.md describes how to change settings.
//
// The default is "{type}{date:yyyyMMdd}{seq:4}".
func WithTemplate(template string) Option {
	return option{"WithTemplate", true, nil, func(c *config) { c.text = template }}
}

// WithHiddenSequence encrypts the printed sequence. Without the key, a number then shows neither how many numbers were
// issued in its period, nor which of two numbers was issued first. The encryption is FF1 (NIST SP 800-38G). The result
// has as many digits as the sequence, from the same alphabet. Each period and each type has a different encryption. The
// printed numbers of a period are unique, and the digits of one of them may be all zeros.
//
// [Number.Seq], [Generator.Peek], [Generator.Raise], the floor and the ledger use the plain sequence, and
// [Generator.Parse] recovers it. [Number.Int64] returns an error.
//
// Do not use a hidden number as an authorization, because it can be guessed and passed on. The printed date still shows
// the order of periods, and a check digit protects only against typing errors. docs/hidden-volume.md describes what is
// hidden, how to store and change keys, and why invoices should not have hidden numbers.
//
// All processes that issue numbers of a type must have the same key. With another key, or with none, calls fail with
// [ErrConflict] until the period has ended. Change the key between periods, and keep a [Scheme] with the old key to
// parse old numbers: with a wrong key, Parse returns a wrong Seq and usually no error.
//
// By default, sequences are not hidden. The key must have 16, 24 or 32 bytes. The template must allow at least a
// million numbers of the same width: {seq:6} to {seq:15}, or {seq:4:base32}, {seq:4:base36}, {seq:5:alpha},
// {seq:5:letters} and wider. {seq:WIDTH+} is refused.
func WithHiddenSequence(key []byte) Option {
	key = slices.Clone(key)
	err := refuseIf(!slices.Contains([]int{16, 24, 32}, len(key)),
		"serial: WithHiddenSequence: a key of %d bytes; want 16, 24 or 32", len(key))
	return option{"WithHiddenSequence", true, err, func(c *config) { c.key = key }}
}
