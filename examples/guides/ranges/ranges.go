// Package ranges has the code of docs/business-numbers.md for ranges that an office authorises.
package ranges

import (
	"time"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/gapless"
)

// newNumbers returns the numbers of the range that ends with the sequence last, and whose last day is until: B0100000101
// and so on.
func newNumbers(zone *time.Location, last int64, until serial.When) (*gapless.Generator, error) {
	scheme, err := serial.NewScheme(serial.WithLocation(zone), serial.WithPeriod(serial.Never),
		serial.WithTemplate("{type}{seq:8}"), serial.WithStart(101), serial.WithLast(last), serial.WithUntil(until))
	if err != nil {
		return nil, err
	}
	return gapless.New(gapless.PostgreSQL, scheme)
}
