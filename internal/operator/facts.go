// Package operator contains code that packages serial and serialcmd share. It converts the settings of a Generator into
// flags of cmd/serial with the same effect, for commands that operators run.
package operator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial/internal/calendar"
	"github.com/dailyserial/serial/internal/template"
)

// Facts are settings of a Generator or a Scheme.
type Facts struct {
	Calendar calendar.Calendar
	Text     string             // template as passed to WithTemplate
	Template *template.Template // parsed Text
	Start    int64              // first sequence of a period
	Last     int64              // last sequence that WithLast sets, or 0 if only the template limits the sequence
	Until    string             // last day on which numbers are issued, or ""
	Prefix   string             // prefix of every key
	Shared   bool               // whether all types share a counter
	Hidden   bool               // whether a key hides the sequences

	// The following fields are zero for a Scheme.
	Client    redis.UniversalClient
	Retention int
	Ledger    bool
	Releases  sync.Locker // lock that is free while no lock of a period is being released
}

// Flags returns flags of cmd/serial for the settings that an operator's command needs and that differ from the
// defaults, except for the key that hides sequences. instants are Unix times, in seconds. If cmd/serial could not load
// the time zone by its name, or would use a different offset at one of the instants, the flags contain the word ZONE,
// and the result where explains how the operator must replace it.
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

// zoneHasName reports whether the time zone with this name has the same offsets as the time zone of f at the instants.
func (f Facts) zoneHasName(name string, instants []int64) bool {
	named, err := time.LoadLocation(name)
	return err == nil && name != "" && !slices.ContainsFunc(instants, func(unix int64) bool {
		_, here := time.Unix(unix, 0).In(f.Calendar.Location).Zone()
		_, there := time.Unix(unix, 0).In(named).Zone()
		return here != there
	})
}

// LastReserved describes the SEQ of a command that takes a series out of its ledger. The last used number would be too
// low, because numbers above it may belong to blocks that the ledger has reserved.
const LastReserved = "SEQ is the last sequence reserved in the ledger for "

// Operands returns the arguments TYPE and SEQ of an operator's command.
func Operands(typ string) []string {
	switch {
	case typ == "":
		return []string{"SEQ"}
	case typ[0] == '-':
		return []string{"--", typ, "SEQ"}
	}
	return []string{typ, "SEQ"}
}
