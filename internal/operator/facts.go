// Package operator contains the code for operators that packages serial and serialcmd share: the settings of a
// Generator, and the flags of cmd/serial that have the same effect.
package operator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/template"
)

// Facts are settings of a Generator or a Scheme.
type Facts struct {
	Calendar calendar.Calendar
	Text     string             // template as given
	Template *template.Template // parsed Text
	Start    int64              // first sequence of a period
	Last     int64              // last sequence of a period, as given; 0 for the largest that the template prints
	Until    string             // last day for which numbers are issued; "" for none
	Prefix   string             // prefix of every key
	Shared   bool               // all types share a counter
	Hidden   bool               // sequences are hidden by a key

	// These are zero for a Scheme.
	Client    redis.UniversalClient
	Retention int
	Ledger    bool
	Releases  interface{ Wait() } // releases of locks under way
}

// Flags returns the flags of cmd/serial for the settings that are not the default and that a command of an operator
// needs, except a hidden key. If the name of the time zone does not mean this zone at these instants, Unix seconds, the
// flags contain ZONE, which the operator replaces, and where contains the instruction.
func (f Facts) Flags(instants ...int64) (line []string, where string) {
	flag := func(name, value, usual string) {
		separator := " "
		if strings.HasPrefix(value, "-") {
			separator = "="
		}
		if value != usual {
			line = append(line, fmt.Sprintf("-%s%s'%s'", name, separator, strings.ReplaceAll(value, "'", `'\''`)))
		}
	}
	if name := f.Calendar.Location.String(); f.zoneHasName(name, instants) {
		flag("tz", name, "")
	} else {
		line, where = []string{"-tz ZONE"}, "ZONE is the IANA name of the service's time zone, and "
	}
	flag("period", f.Calendar.Unit.Noun(), calendar.Day.Noun())
	flag("year-start", fmt.Sprintf("%02d-%02d", f.Calendar.YearStart.Month+1, f.Calendar.YearStart.Day+1), "01-01")
	flag("day-start", (time.Duration(f.Calendar.DayStart) * time.Second).String(), "0s")
	flag("template", f.Text, template.Usual(f.Calendar))
	flag("start", strconv.FormatInt(f.Start, 10), "1")
	flag("last", strconv.FormatInt(f.Last, 10), "0")
	flag("prefix", f.Prefix, "serial")
	flag("retention", strconv.Itoa(f.Retention), "0")
	if f.Until != "" {
		line = append(line, "-until "+f.Until)
	}
	if f.Shared {
		line = append(line, "-shared")
	}
	return line, where
}

// zoneHasName reports whether a command understands a name as this time zone at these instants.
func (f Facts) zoneHasName(name string, instants []int64) bool {
	named, err := time.LoadLocation(name)
	return err == nil && name != "" && !slices.ContainsFunc(instants, func(unix int64) bool {
		_, here := time.Unix(unix, 0).In(f.Calendar.Location).Zone()
		_, there := time.Unix(unix, 0).In(named).Zone()
		return here != there
	})
}

// LastReserved describes the SEQ of a command that takes a series out of its ledger. With the last number used instead,
// numbers above it would be issued that the ledger has reserved in blocks that were given up.
const LastReserved = "SEQ is the last sequence reserved in the ledger for "

// Operands returns the arguments TYPE and SEQ of a command.
func Operands(typ string) []string {
	switch {
	case typ == "":
		return []string{"SEQ"}
	case typ[0] == '-':
		return []string{"--", typ, "SEQ"}
	}
	return []string{typ, "SEQ"}
}
