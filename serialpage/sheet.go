package serialpage

import (
	"cmp"
	"runtime/debug"
	"time"
)

// A sheet contains the information that a page shows only when it is printed.
type sheet struct {
	Organisation string // name of the company, or "" if none is configured
	Program      string // name and version of this library
	By           string // user who requested the page, or "" if the name is unknown
	At           time.Time
	Closes       bool // whether periods of the series can be closed
}

// sheet returns the sheet of a page about a series. The argument name is the name of the user, or "" if it is unknown.
func (h *handler) sheet(name string, s *Series) sheet {
	return sheet{h.Organisation, program, name, time.Now().In(s.zone()), s.closes()}
}

// A total contains the totals of a list of periods.
type total struct {
	First, Last string // names of the oldest and the newest period
	Periods     int64
	Issued      int64

	Checked, Wrong, Since          int64 // counts of periods with a result, with discrepancies, with an outdated result
	Stored, Explained, Unexplained int64 // sums over the periods with a result
}

// sumRows returns the totals of rows. There must be at least one row.
func sumRows(rows []periodRow) *total {
	t := &total{First: rows[len(rows)-1].Name, Last: rows[0].Name, Periods: int64(len(rows))}
	for _, row := range rows {
		t.Issued += row.Issued
		a := row.Audited
		if a == nil {
			continue
		}
		t.Checked, t.Stored, t.Explained, t.Unexplained = t.Checked+1, t.Stored+a.Stored, t.Explained+a.Explained,
			t.Unexplained+a.Unexplained
		if !a.Clean {
			t.Wrong++
		}
		if a.Since != "" {
			t.Since++
		}
	}
	return t
}

// program is the name and the version of this library, as printed on sheets.
var program = func() string {
	info, _ := debug.ReadBuildInfo()
	return programIn(info)
}()

// programIn returns the name of this library, and the version that is linked into the program. If info is nil, it
// returns only the name.
func programIn(info *debug.BuildInfo) string {
	if info != nil {
		for _, m := range info.Deps {
			if m.Path == "github.com/dailyserial/serial" {
				return "serial " + cmp.Or(cmp.Or(m.Replace, m).Version, "(devel)")
			}
		}
	}
	return "serial"
}
