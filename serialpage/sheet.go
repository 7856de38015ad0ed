package serialpage

import (
	"cmp"
	"runtime/debug"
	"time"
)

// A sheet has what a page says about itself on paper.
type sheet struct {
	Organisation string // whose numbers these are; "" if that is not known
	Program      string // name and version
	By           string // user who printed it; "" if that is not known
	At           time.Time
	Closes       bool // the periods of the series can be closed
}

// sheet returns the sheet of a page about a series. name is the user's, "" if it is not known.
func (h *handler) sheet(name string, s *Series) sheet {
	return sheet{h.Organisation, program, name, time.Now().In(s.zone()), s.closes()}
}

// A total adds up the periods of a list.
type total struct {
	First, Last string // names of the oldest and the newest period
	Periods     int64
	Issued      int64

	Checked, Wrong, Since          int64 // periods with results: all, with discrepancies, and those that are out of date
	Stored, Explained, Unexplained int64 // in these results
}

// totalOf adds up rows, of which there is at least one.
func totalOf(rows []periodRow) *total {
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

// program is the name and the version of this library.
var program = func() string {
	info, _ := debug.ReadBuildInfo()
	return programIn(info)
}()

// programIn returns the name of this library and its version in a program, which is unknown if info is nil.
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
