package serial

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dailyserial/serial/internal/template"
)

// A Number is one issued serial number, taken apart. It is a plain value, safe to copy; [Number.Equal] compares two. In JSON and
// as an argument of a query it is its text, as [Number.String] returns it: see [Number.MarshalText] and [Number.Value].
type Number struct {
	Type  string    // business type, such as "IS"
	Start time.Time // first instant of the number's period, in the Generator's time zone
	// Date is the first instant of what is printed of the date. It is later than Start where a template prints more than its
	// period (the month of a number that is counted by the year), else the same. It is zero where it is not known: in such a
	// template's numbers from Peek and History, and in some of a Report. Where the same is printed again within the period
	// (the day without its month), it is the first time.
	Date time.Time
	Seq  int64 // sequence within the period, from 1; 0 from Peek and History if none was issued

	date     string             // as printed
	label    string             // of the period, which hides the sequence
	template *template.Template // nil if no Generator or Scheme made the Number
}

// String returns the number as it was issued, such as "IS202110240001". It is "" for a Number that no [Generator] or [Scheme]
// made, or whose Date is not known. A sequence wider than the template's padding, which Peek shows if something else wrote
// the counter, is printed in full, in decimal.
func (n Number) String() string {
	if n.template == nil {
		return ""
	}
	return n.template.PrintNumber(n.Type, n.date, n.label, n.Seq)
}

// Int64 returns the number as one integer: the date as printed, from coarse to fine, followed by the padded sequence.
// IS202110240001 gives 202110240001. The numbers of one type and template sort by it in the order of issue. A year of two digits
// stays one; check digits are left out.
//
// Allowed are a year alone, year MM [dd [HH [mm [ss]]]], year DDD [HH ...], GGGG WW and FFFF Q, of two years as in FFFF-EE the
// first, and no date at all, each in any order. It is an error if the date is another, if the digits do not fit into an int64,
// if the sequence has outgrown its padding (the integers would not sort), for an alphabet of letters, for a hidden sequence, and
// if no [Generator] or [Scheme] made the Number.
func (n Number) Int64() (int64, error) {
	if n.template == nil {
		return 0, errors.New("serial: Int64 of a Number that no Generator made")
	}
	return n.template.Int64(n.date, n.Seq)
}

// Equal reports whether n and other are the same number: the same Type, text, Seq and Start. Starts are the same if they are
// the same instant, in whatever zone. Compare with Equal and not with ==, which may tell apart the numbers of two Generators,
// or one that was issued and the same one parsed.
//
// The zero Number is equal to itself only. A number whose Date is not known has no text, and is not equal to the one that was
// issued.
func (n Number) Equal(other Number) bool {
	return n.Type == other.Type && n.Seq == other.Seq && n.Start.Equal(other.Start) && n.String() == other.String()
}

// MarshalText returns what [Number.String] does. So in JSON, a field of type Number is "IS202110240001", and so is a map's key.
// The zero Number is empty text, "" in JSON; a field with the tag omitzero is left out.
//
// It is an error if Date is not known, as after [Generator.Peek] or [Generator.History] of a template that prints more than its
// period, and if no [Generator] or [Scheme] made a Number that is not zero.
//
// There is no UnmarshalText, since a text alone does not say where its type ends and which period it is of. To read a number,
// decode it into a string and call [Generator.Parse] or [Scheme.Parse].
func (n Number) MarshalText() ([]byte, error) {
	if n.Equal(Number{}) {
		return []byte{}, nil
	}
	text, err := n.text("MarshalText")
	return []byte(text), err
}

// Value returns what [Number.String] does, as a string. So a Number can be an argument of a query: database/sql, and whatever
// else knows [driver.Valuer], calls Value. A nil *Number is NULL.
//
// It is an error, and the query is not sent, if the Number has no text: if no [Generator] or [Scheme] made it, as for the zero
// Number, and if its Date is not known, as after [Generator.Peek] or [Generator.History] of a template that prints more than
// its period.
//
// There is no Scan: to read a number, scan it into a string and call [Generator.Parse] or [Scheme.Parse].
func (n Number) Value() (driver.Value, error) {
	text, err := n.text("Value")
	if err != nil {
		return nil, err
	}
	return text, nil
}

// text is String with an error for "". The method is the one that was called.
func (n Number) text(method string) (string, error) {
	text := n.String()
	switch {
	case text != "":
		return text, nil
	case n.template == nil:
		return "", fmt.Errorf("serial: %s of a Number that no Generator or Scheme made", method)
	default:
		return "", fmt.Errorf("serial: %s of sequence %d of %s: its date is not known, because its template prints more than its "+
			"period; use Type, Start and Seq", method, n.Seq, n.Type)
	}
}

// newNumber returns the number of a span that t prints.
func newNumber(t *template.Template, s *template.Span, typ string, seq int64) Number {
	start, date := t.Instants(s)
	return Number{Type: typ, Start: start, Date: date, Seq: seq, date: s.Date, label: s.Label, template: t}
}

// parsedNumber returns a number that t has parsed, with a copy of the type, which does not keep the text alive.
func parsedNumber(t *template.Template, n template.Number) Number {
	d := n.Date
	return Number{
		Type: strings.Clone(n.Type), Start: d.Start, Date: d.First, Seq: n.Seq, date: d.Text, label: d.Label, template: t,
	}
}

// WithTemplate sets how numbers are printed. A template is literal text and these fields, in any order:
//
//	{type}                the business type
//	{date:LAYOUT}         the date and time of issue; see below. Only with Never may it be absent.
//	{seq:WIDTH}           the sequence, padded to WIDTH digits, 1 to 15; {seq} is {seq:4}. A period has 10^WIDTH-1 numbers.
//	{seq:WIDTH+}          the same, but it may grow wider: 10000 follows 9999, up to 10^15-1. A literal must stand right
//	                      before the field, and right after it unless it ends the template, with no digit next to it.
//	{seq:WIDTH:base32}    the same in Crockford's digits 0123456789ABCDEFGHJKMNPQRSTVWXYZ, of which none is misread.
//	                      WIDTH is 1 to 9, and a period has 32^WIDTH-1 numbers. They sort as the sequence does.
//	{seq:WIDTH:base36}    the same in 0-9 and A-Z, with 36^WIDTH-1 numbers
//	{check:ALGORITHM}     a check digit; see below. It may be absent.
//
// {{ and }} print a brace. No field may stand twice. "{type}-{date:yyMMdd}-{seq:6}" gives "PO-211024-000001".
//
// # Dates
//
// A layout has one or more of these tokens, each at most once:
//
//	yyyy, yy      the calendar year
//	MM, dd        the month and the day
//	DDD           the day of the calendar year, 001 to 366
//	GGGG, GG, WW  the year and the week of ISO 8601, 01 to 53
//	FFFF, FF      the calendar year in which the business year begins; see [WithYearStart]
//	EEEE, EE      the calendar year in which it ends: 2025 for the year from April 2024
//	Q             the quarter of the business year, 1 to 4
//	HH, mm, ss    the hour (00 to 23), the minute and the second
//
// A year of two digits stands for 2000 to 2099; in other years, calls fail. No other spelling is accepted (MM is the month, mm
// the minute), except that YYYY is taken for yyyy and DD for dd; beside weeks YYYY is refused, since elsewhere it is the week
// year. FFFF and FF may stand together, and so may the two forms of the other business and week years. Between tokens may
// stand any text but ASCII letters, digits and braces. All tokens are of the business day: with a day start of 04:00, 03:00 on
// 1 April is 31 March.
//
// [New] refuses a layout that could print two periods alike, and proposes one that could not. A period is told by any of these,
// where Y is yyyy or yy, F is FFFF, FF, EEEE or EE, and G is GGGG or GG:
//
//	day      Y MM dd, Y DDD, G WW dd, F MM dd
//	week     a day, G WW
//	month    a day, Y MM; F MM if business years begin on the 1st of a month
//	quarter  a day, F Q; a month if business years begin on the 1st of a month
//	year     a day, F; a month if business years begin on the 1st of a month
//	hour     a day and HH, for a minute mm too, for a second ss too
//
// With business years from January 1, F and Y are the same. So yyyy does not tell weeks (30 December 2024 is in week 1 of 2025),
// nor business years from April, and F MM does not tell months if the year begins on April 6, for April is in two years.
//
// More than the period may be printed: a template with yyyyMM counts through the year with PerYear, and prints the month in
// which a number is issued, by Redis's clock. [Number.Start] is then the period's first instant, and [Number.Date] that of what
// is printed. If Redis's clock steps back within a period, the printed month may too; the sequence does not.
//
// # Check digits
//
//	luhn   one digit, as of payment cards; misses the swap of 09 and 90
//	damm   one digit; misses no swap
//	gs1    one digit, as of GTIN and SSCC; misses swaps of digits that differ by 5
//	11-10  one digit, of ISO 7064 MOD 11,10; misses 1 swap in 45
//	97-10  two digits, of ISO 7064 MOD 97-10; misses the swaps of B1, M2 and X3, 1 in 97 letters typed as a
//	       digit and 1 in 97 digits typed as a letter
//	37-36  one digit or capital letter, of ISO 7064 MOD 37,36; misses 1 swap in 630, and 1 in 180 swaps of two digits
//
// These shares are averages over all numbers; one template's may differ. Each algorithm finds every other single wrong
// character, and every other swap of two characters that are covered one after the other.
//
// The first four cover all ASCII digits of the rest of the number and nothing else, and are refused with base32 and base36. The
// last two cover all ASCII letters too, count lower case as upper case, and allow ASCII types only ([ErrInvalidType]). The rest
// of the number is covered in the order printed, but 97-10 covers what stands behind it and then what stands before it: so
// "RF{check:97-10}..." is a creditor reference of ISO 11649, and at the end it is plain MOD 97-10. [Generator.Parse] returns
// [ErrCheckDigit] if the check digit does not fit.
//
// # Limits
//
// A template is valid UTF-8, of 256 bytes at most, since every answer that [Generator.NextOnce] remembers holds it. All
// processes that issue numbers of a type must print its fields and tokens in the same order, with the same alphabet and check
// digit; otherwise two sequences could be printed alike, and calls fail with [ErrConflict] until the period has ended. Widths,
// literals and separators may differ, as long as the texts cannot be equal; docs/settings.md says what may change when.
//
// Default "{type}{date:yyyyMMdd}{seq:4}".
func WithTemplate(template string) Option {
	return option{"WithTemplate", true, func(c *config) error {
		c.text = template
		return nil
	}}
}

// WithStart sets the first sequence of every period. It applies to periods that are opened from then on; a period that is
// open goes on from where it is. With [Never] there is only one, so it counts once.
//
// Default 1. Allowed are 1 to the largest sequence that the template prints; see [Scheme.Limits].
func WithStart(seq int64) Option {
	return option{"WithStart", true, func(c *config) error {
		if seq < 1 {
			return fmt.Errorf("serial: WithStart(%d): allowed are 1 to the largest sequence that the template prints", seq)
		}
		c.base = seq - 1
		return nil
	}}
}

// WithHiddenSequence prints another number in place of the sequence, so that nobody without the key can tell how many numbers
// were issued in a period, or which of two came first. The sequence is encrypted with FF1 (NIST SP 800-38G), to as many
// digits of the same alphabet. Each period and type has an order of its own, in which every printed number is unique; it
// may be all zeros. [Number.Seq], [Generator.Peek], [Generator.Raise], floor and ledger keep the plain sequence, and
// [Generator.Parse] finds it. [Number.Int64] is an error.
//
// A hidden number is no authorisation: it can be guessed and passed on. It does not hide the order of periods, and the check
// digit of a template protects from typing errors only. The guide in docs/hidden-volume.md says what is hidden and what is
// not, how to keep and change keys, and why invoices had better not be printed so.
//
// All processes that issue numbers of a type must have the same key; another one, or none, is [ErrConflict] until the period
// has ended. So change the key between periods, and keep a [Scheme] with the old one for old numbers: Parse with a wrong key
// gives a wrong Seq and no error.
//
// Default none. Allowed are keys of 16, 24 or 32 bytes, and templates of at least a million numbers of one width: {seq:6} to
// {seq:15}, or {seq:4:base32}, {seq:4:base36} and wider. {seq:WIDTH+} is refused.
func WithHiddenSequence(key []byte) Option {
	key = append([]byte(nil), key...)
	return option{"WithHiddenSequence", true, func(c *config) error {
		if n := len(key); n != 16 && n != 24 && n != 32 {
			return fmt.Errorf("serial: WithHiddenSequence: a key of %d bytes; allowed are 16, 24 and 32", n)
		}
		c.key = key
		return nil
	}}
}
