package serial

import (
	"database/sql/driver"
	"fmt"
	"slices"
	"time"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/template"
)

// A Number is a serial number and its parts. It is a plain value, safe to copy; compare two with [Number.Equal]. In
// JSON, and as an argument of a query, it becomes the text that [Number.String] returns: see [Number.MarshalText] and
// [Number.Value].
type Number struct {
	Type  string    // business type, such as "IS"
	Start time.Time // first instant of the number's period, in the Generator's time zone
	// Date is the first instant of the printed date. It equals Start unless the template prints more than its period:
	// if numbers are counted by the year and print the month, Date is the first instant of that month. With such
	// templates, Peek and History return a zero Date, and some numbers in a Report have one, because the date is not
	// known. If the same date is printed again within the period (a day without its month), Date is the first time.
	Date time.Time
	Seq  int64 // sequence within the period, at least 1; 0 from Peek and History if none was issued

	date     string             // printed date; "" if it is not known
	label    string             // of the period; a hidden sequence depends on it
	template *template.Template // nil if no Generator or Scheme made the Number
}

// String returns the number as it was issued, such as "IS202110240001". It returns "" if no [Generator] or [Scheme]
// made the Number, or if its Date is not known. A sequence too large for the template, which Peek may return if another
// program wrote the counter, is printed in full, in decimal.
func (n Number) String() string {
	if n.template == nil {
		return ""
	}
	return n.template.PrintNumber(n.Type, n.date, n.label, n.Seq)
}

// Int64 returns the number as one integer: the date as printed, from coarse to fine, followed by the padded sequence.
// IS202110240001 gives 202110240001. The integers of one type and template sort in the order of issue. A two-digit year
// keeps its two digits; check digits are left out.
//
// The date may have, in any order: a year alone, year MM [dd [HH [mm [ss]]]], year DDD [HH ...], GGGG WW, FFFF Q, FFFF
// S, or no date at all. BBBB and BB count as yyyy and yy. Of two years, as in FFFF-EE, the first counts. It is an error
// if the date has other tokens or is not known, if the digits do not fit into an int64, if the sequence has outgrown
// its padding (the integers would not sort), if the sequence is hidden or printed with letters, and if no [Generator]
// or [Scheme] made the Number.
func (n Number) Int64() (int64, error) {
	if n.template == nil {
		_, err := n.text("Int64")
		return 0, err
	}
	return n.template.Int64(n.date, n.Seq)
}

// Equal reports whether n and other are the same number: they have the same Type, text and Seq, and their Starts are
// the same instant, in any time zone. Use Equal rather than ==, which may be false for the same number from two
// Generators, or for a number issued and then parsed.
//
// The zero Number is equal only to itself. A Number whose Date is not known has no text, so it does not equal the
// issued number.
func (n Number) Equal(other Number) bool {
	return n.Type == other.Type && n.Seq == other.Seq && n.Start.Equal(other.Start) && n.String() == other.String()
}

// MarshalText returns the same text as [Number.String], so in JSON a field or map key of type Number is
// "IS202110240001". The zero Number is empty text, "" in JSON; with the tag omitzero the field is left out.
//
// It is an error if Date is not known, as after [Generator.Peek] or [Generator.History] with a template that prints
// more than its period, and if no [Generator] or [Scheme] made a Number that is not zero.
//
// There is no UnmarshalText, because the text alone shows neither where the type ends nor which period it belongs to.
// To read a number, decode it into a string and call [Generator.Parse] or [Scheme.Parse].
func (n Number) MarshalText() ([]byte, error) {
	if n.Equal(Number{}) {
		return []byte{}, nil
	}
	text, err := n.text("MarshalText")
	return []byte(text), err
}

// Value returns the same text as [Number.String], as a string, so a Number can be a query argument: database/sql, and
// any other package that knows [driver.Valuer], calls Value. A nil *Number is NULL.
//
// It is an error, and the query is not sent, if the Number has no text: if no [Generator] or [Scheme] made it, which
// includes the zero Number, or if its Date is not known, as after [Generator.Peek] or [Generator.History] with a
// template that prints more than its period.
//
// There is no Scan: to read a number, scan it into a string and call [Generator.Parse] or [Scheme.Parse].
func (n Number) Value() (driver.Value, error) {
	text, err := n.text("Value")
	if err != nil {
		return nil, err
	}
	return text, nil
}

// text returns the result of String, or an error instead of "". method is the exported method that was called.
func (n Number) text(method string) (string, error) {
	text := n.String()
	if text != "" {
		return text, nil
	}
	if n.template == nil {
		return "", fmt.Errorf("serial: %s of a Number that no Generator or Scheme made", method)
	}
	return "", fmt.Errorf("serial: %s of sequence %d of %s: its date is not known, "+
		"because its template prints more than its period; use Type, Start and Seq", method, n.Seq, n.Type)
}

// newNumber returns the number that t prints for a span.
func newNumber(t *template.Template, s calendar.Span, typ string, seq int64) Number {
	start, date := t.Dates.Instants(&s)
	return Number{Type: typ, Start: start, Date: date, Seq: seq, date: s.Date, label: s.Label, template: t}
}

// WithTemplate sets how numbers are printed. A template is literal text and these fields, in any order:
//
//	{type}                the business type
//	{date:LAYOUT}         the date and time of issue; see below. It is optional with Never.
//	{seq:WIDTH}           the sequence, padded to WIDTH digits (1-15); {seq} is {seq:4}. A period has 10^WIDTH-1 numbers.
//	{seq:WIDTH+}          the same, but it may grow wider: 10000 follows 9999, up to 10^15-1. On either side, it needs
//	                      text without a digit next to it, or the template's end. Text is a literal, a separator,
//	                      quoted text or the name of a month.
//	{seq:WIDTH:base32}    the same in Crockford's digits 0123456789ABCDEFGHJKMNPQRSTVWXYZ, which have no look-alikes.
//	                      WIDTH is 1 to 9, and a period has 32^WIDTH-1 numbers. They sort as the sequence does.
//	{seq:WIDTH:base36}    the same in 0-9 and A-Z, with 36^WIDTH-1 numbers
//	{seq:WIDTH:alpha}     the same in A-Z, with 26^WIDTH numbers; the first one of width 3 is AAA
//	{seq:WIDTH:letters}   the same with A as 0, for series that began with it; the first one of width 3 is AAB
//	{check:ALGORITHM}     a check digit, optional; see below
//
// {{ and }} print a brace. No field may appear twice. "{type}-{date:yyMMdd}-{seq:6}" gives "PO-211024-000001".
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
// Text in single quotes is printed as it is: GGGG-'W'WW gives 2025-W01. It may not have braces; two quotes print one. A
// date has at most one calendar year, one month and one day. On either side of M, d and R, there must be text (but not
// the name of a month) or the template's end, with no digit next to M and d, and no letter next to R.
//
// A two-digit year is one of 2000 to 2099, BB one of 2543 to 2642; in other years, calls fail. No other spelling is
// accepted (MM is the month, mm the minute), except that YYYY means yyyy and DD means dd. With PerWeek, or beside GGGG,
// GG or WW, YYYY is refused, because many libraries use it for the year of the week. FFFF and FF may be used together,
// and so may the two forms of the other business years and of the week's year. Any text except ASCII letters, digits,
// quotes and braces may separate tokens. All tokens print the business day: with a day start of 04:00, 03:00 on 1 April
// is 31 March.
//
// [New] refuses a layout that could print the same date for two periods, and proposes one that could not. Any of these
// identifies a period, where Y is yyyy, yy, BBBB or BB, MM is any month, dd is dd or d, F is FFFF, FF, EEEE or EE, and
// G is GGGG or GG:
//
//	day        Y MM dd, Y DDD, G WW dd, F MM dd
//	week       a day, G WW
//	month      a day, Y MM; F MM if business years begin on the 1st of a month
//	quarter    a day, F Q; a month if business years begin on the 1st of a month
//	half-year  a day, F S, F Q; a month if business years begin on the 1st of a month
//	year       a day, F; a month if business years begin on the 1st of a month
//	hour       a day and HH, for a minute mm too, for a second ss too
//
// With business years from January 1, F and Y are the same. So yyyy WW does not identify weeks (30 December 2024 is in
// week 1 of 2025), yyyy does not identify business years from April, and F MM does not identify months if the year
// begins on April 6, because April is split between two years.
//
// A template may print more than the period. With PerYear and yyyyMM, the sequence continues through the year, and the
// month is the month of issue, by Redis's clock. [Number.Start] is then the first instant of the year, and
// [Number.Date] the first instant of the month. If Redis's clock steps back within a period, the printed month may too;
// the sequence does not.
//
// # Check digits
//
//	luhn   one digit, as on payment cards; misses the swap of 09 and 90
//	damm   one digit; misses no swap
//	gs1    one digit, as in GTIN and SSCC; misses swaps of digits that differ by 5
//	11-10  one digit, by ISO 7064 MOD 11,10; misses 1 swap in 45
//	97-10  two digits, by ISO 7064 MOD 97-10; misses the swaps of B1, M2 and X3, 1 in 97 letters typed as a
//	       digit and 1 in 97 digits typed as a letter
//	37-36  one digit or capital letter, by ISO 7064 MOD 37,36; misses 1 swap in 630, and 1 in 180 swaps of two digits
//	731    one digit, as in Finnish payment references; misses swaps of digits that differ by 5
//	be97   two digits, 01 to 97, as in Belgian payment references; misses no swap
//	10r    one digit, modulo 10 recursive, as in Swiss payment references; misses 1 swap in 45
//	11     one digit, modulo 11, as in the access keys of Brazilian invoices (NF-e); misses 1 swap and 1 wrong digit in 55
//	s10    one digit, modulo 11 with other weights, as in postal items of UPU S10; misses 1 swap and 1 wrong digit in 55
//
// These shares are averages over all numbers; a single template may differ. Each algorithm finds every other single
// wrong character, and every other swap of two consecutive covered characters.
//
// Most cover all ASCII digits in the rest of the number and nothing else, and are refused with an alphabet. 97-10 and
// 37-36 also cover all ASCII letters, treat lower case as upper case, and allow ASCII types only ([ErrInvalidType]).
// The rest of the number is covered in the order printed, except that 97-10 covers the characters after it first and
// then those before it. So "RF{check:97-10}..." is a creditor reference of ISO 11649, and at the end of the template it
// is plain MOD 97-10. s10 is defined for eight digits: the template must print exactly eight before it and none after
// it, and types may have no ASCII digits ([ErrInvalidType]). So "{type}{seq:8}{check:s10}GB" gives "RR473124829GB".
// [Generator.Parse] returns [ErrCheckDigit] if the check digit is wrong.
//
// # Limits
//
// A template is valid UTF-8 of at most 256 bytes, because Redis keeps it with every answer that [Generator.NextOnce]
// remembers. All processes that issue numbers of a type must print its fields and tokens in the same order, with the
// same alphabet and check digit. Otherwise two sequences could print the same number, so calls fail with [ErrConflict]
// until the period has ended. Widths, literals and separators may differ, as long as the texts cannot be equal;
// docs/settings.md says which settings may change when.
//
// Default "{type}{date:yyyyMMdd}{seq:4}".
func WithTemplate(template string) Option {
	return option{"WithTemplate", true, nil, func(c *config) { c.text = template }}
}

// WithHiddenSequence prints another number in place of the sequence, so without the key nobody knows how many numbers
// were issued in a period, or which of two came first. The sequence is encrypted with FF1 (NIST SP 800-38G), into the
// same number of digits of the same alphabet. Each period and type has its own order. Every printed number in it is
// unique; one may be all zeros. [Number.Seq], [Generator.Peek], [Generator.Raise], floor and ledger use the plain
// sequence, and [Generator.Parse] recovers it. [Number.Int64] returns an error.
//
// A hidden number is not an authorisation: it can be guessed and passed on. The order of periods stays visible, and a
// template's check digit protects against typing errors only. The guide in docs/hidden-volume.md says what is hidden
// and what is not, how to keep and change keys, and why not to print invoices this way.
//
// All processes that issue numbers of a type must have the same key. With another key, or none, calls fail with
// [ErrConflict] until the period has ended. Change the key between periods, and keep a [Scheme] with the old key for
// old numbers: with a wrong key, Parse returns a wrong Seq and no error.
//
// Default none. The key must have 16, 24 or 32 bytes, and the template must print at least a million numbers of one
// width: {seq:6} to {seq:15}, or {seq:4:base32}, {seq:4:base36}, {seq:5:alpha} and wider. {seq:WIDTH+} is refused.
func WithHiddenSequence(key []byte) Option {
	key = slices.Clone(key)
	err := refuseIf(!slices.Contains([]int{16, 24, 32}, len(key)),
		"serial: WithHiddenSequence: a key of %d bytes; want 16, 24 or 32", len(key))
	return option{"WithHiddenSequence", true, err, func(c *config) { c.key = key }}
}
