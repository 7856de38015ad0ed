package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Missing numbers are printed with their reasons, followed by unexplained ones.
func TestAuditExplained(t *testing.T) {
	m, e, day := issued(t, 12)
	zone := zoneOf(t, e)
	early := time.Date(2021, 10, 24, 15, 5, 0, 0, time.UTC).In(zone).Format(time.RFC3339)
	late := time.Date(2021, 10, 24, 17, 5, 0, 0, time.UTC).In(zone).Format(time.RFC3339)
	before := m.Dump()
	number := "IS" + day
	file := written(t, "\ufeffnumber,first,last,reason,by,at,unused,possible,count,type,start\r\n"+
		number+"0003,,,void,Ada,2021-10-24T17:05:00+02:00,,,,,\n\n"+
		",0005,7,\"caller left, said a log\",,2021-10-24T17:05:00Z,false,false,7,PO,soon\n"+
		",4,12,answer lost: 2 attempts,,2021-10-24T17:05:00Z,,true,,,\n"+
		",9,9,raised,Bob,2021-10-24T17:05:00+02:00,,true,,,\n"+
		",1,3,nothing is missing there but what is explained,,2021-10-24T17:05:00Z,,true,,,\n"+
		",2,2,nobody got it,job,2021-10-24T17:05:00Z,true,,,,\n"+
		"IS202001010004,,,another day,,,,,,,\nPO"+day+"0004,,,another type,,,,,,,\n")
	stored := lines(number+"%04d", 1, 2) + lines(number+"%04d", 10, 12)
	stdout, _ := e.with(stored).exits(t, 3, "audit", "IS", "-explained", file)
	require.Contains(t, stdout, `
used       5
missing    7
explained  4
  0003 void (Ada, `+early+`)
  0005-0007 caller left, said a log (`+late+`)
not explained 3
  0004
  0008-0009
possible   2
  0009 raised (Bob, `+early+`)
  0004-0012 answer lost: 2 attempts (`+late+`)
contradicted 1
  0002
double     0
`)
	stdout, _ = e.with(stored).exits(t, 3, "audit", "IS", "-explained", file, "-json")
	require.Equal(t, 1, strings.Count(stdout, "\n"))
	require.Contains(t, stdout, `"otherCount":0,"explained":[`+
		`{"first":3,"last":3,"reason":"void","by":"Ada","at":"2021-10-24T15:05:00Z","possible":false},`+
		`{"first":5,"last":7,"reason":"caller left, said a log","by":"","at":"2021-10-24T17:05:00Z",`+
		`"possible":false}],`+
		`"unexplained":[{"first":4,"last":4},{"first":8,"last":9}],`+
		`"possible":[{"first":9,"last":9,"reason":"raised","by":"Bob","at":"2021-10-24T15:05:00Z","possible":true},`+
		`{"first":4,"last":12,"reason":"answer lost: 2 attempts","by":"","at":"2021-10-24T17:05:00Z",`+
		`"possible":true}],`+
		`"contradicted":["`+number+`0002"],`+
		`"explainedCount":4,"unexplainedCount":3,"possibleCount":2,"contradictedCount":1}`)
	require.Equal(t, before, m.Dump(), "it writes nothing")

	// Explanations from stdin, and numbers from a file. Everything is explained.
	numbers := written(t, stored)
	file = "reason,last,first,remark,by\nraised the wrong series,9,3,,\nraised,3,3,,Ada\n"
	stdout, _ = e.with(file).exits(t, 0, "audit", "IS", numbers, "-explained", "-", "-json")
	require.Contains(t, stdout, `"unexplained":[],"possible":[],"contradicted":[],"explainedCount":7,`)
	file = written(t, "number,reason\n")
	stdout, _ = e.with(lines(number+"%04d", 1, 12)).exits(t, 0, "audit", "IS", "-explained", file, "-json")
	require.Contains(t, stdout, `"explained":[],"unexplained":[],"possible":[],`, "empty, and not null")
}

// A line that cannot be read ends the audit, and the error names it.
func TestAuditExplainedRefuses(t *testing.T) {
	m, e, day := issued(t, 3)
	for says, text := range map[string]string{
		`line 3: first "x": want a whole number`:          "first,last,reason\n1,2,void\nx,2,void\n",
		`line 2: last "9999999999999999999": out`:         "first,last,reason\n1,9999999999999999999,void\n",
		`line 2: serial: explanation of IS 2 to 1:`:       "first,last,reason\n2,1,void\n",
		`line 4: serial: invalid number`:                  "number,reason\n\nIS" + day + "0001,void\nIS" + day + "1,void\n",
		`line 2: got a number and first or last`:          "number,first,last,reason\nIS" + day + "0001,1,1,void\n",
		`Reason: 0 bytes`:                                 "first,last,reason\n1,2,\n",
		`line 2: reason "raised": only a person's`:        "first,last,reason\n1,2,raised\n",
		`reason "block skipped": only a person's`:         "first,last,reason,possible\n1,2,block skipped,false\n",
		`reason "answer lost: 2 attempts": only`:          "first,last,reason\n1,2,answer lost: 2 attempts\n",
		`possible "perhaps": want true or`:                "first,last,reason,possible\n1,2,void,perhaps\n",
		`Unused and Possible are both set`:                "first,last,reason,possible,unused\n1,2,void,true,true\n",
		`at "yesterday": want an RFC 3339 time`:           "first,last,reason,at\n1,2,void,yesterday\n",
		`unused "perhaps": want true or`:                  "first,last,reason,unused\n1,2,void,perhaps\n",
		"line 2: 2 fields; want 3":                        "first,last,reason\n1,2\n",
		`the columns are ["number"]; want reason`:         "number\n",
		`the columns are ["first" "reason"]; want reason`: "first,reason\n",
		`the columns are ["reason"]; want reason`:         "reason\n",
		`two columns are called "by"`:                     "number,reason,by,by\n",
		"want a first line that names the columns":        "",
	} {
		file := written(t, text)
		stderr := e.with("").fails(t, 1, says, "audit", "IS", "-explained", file)
		require.Contains(t, stderr, "explanations in "+file+": ")
	}
	m.FlushAll()
	e.with("").fails(t, 1, "no such file", "audit", "IS", "-explained", filepath.Join(t.TempDir(), "gone"))
	for _, args := range [][]string{{"audit", "IS"}, {"audit", "IS", "-"}} {
		e.with("").fails(t, 2, "-explained -: the numbers come from stdin", append(args, "-explained", "-")...)
	}
	e.with("").fails(t, 2, "the flag is given twice", "audit", "IS", "-explained", "a.csv", "-explained", "b.csv")
	e.with("x\n").fails(t, 1, "explanations in stdin: the columns are", "audit", "IS", written(t, ""), "-explained", "-")
}
