package main

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var timePattern = regexp.MustCompile(`\d{4}-\d\d-\d\dT[^ ,)]*`)

const skippedHeader = "first,last,reason,by,at,possible\n"

// unskipped returns a command's output, without skipped numbers.
func unskipped(stdout string) string {
	stdout, _, _ = strings.Cut(stdout, skippedHeader)
	return regexp.MustCompile(`,"skipped":\{[^}]*\}`).ReplaceAllString(stdout, "")
}

// Raise and takeover print skipped numbers in the form that audit reads. The reason is only possible, unless a person
// gives it.
func TestSkipped(t *testing.T) {
	_, e, day := issued(t, 3)
	reasons := ""
	for _, row := range []struct {
		skips string
		args  []string
	}{
		{"4,10,raised,,TIME,true\n", []string{"raise", "IS", "10"}},
		{"", []string{"raise", "IS", "5"}},
		{"", []string{"raise", "IS", "5", "-reason", "moved", "-by", "Ada"}},
		{"11,20,raised,,TIME,true\n", []string{"takeover", "IS", "20"}},
		{"21,30,\"moved, said Bob\",Ada,TIME,false\n",
			[]string{"raise", "-reason", "moved, said Bob", "-by", "Ada", "IS", "30"}},
		{"31,40,a new zone,Ada,TIME,false\n", []string{"takeover", "IS", "40", "-reason=a new zone", "-by=Ada"}},
		{"", []string{"prepare", "IS"}},
	} {
		stdout, stderr := e.exits(t, 0, row.args...)
		require.Empty(t, stderr)
		next, skipped, found := strings.Cut(stdout, skippedHeader)
		require.Regexp(t, `^next IS\d{12}\n$`, next)
		require.Equal(t, row.skips != "", found, "%v: %s", row.args, stdout)
		require.Equal(t, row.skips, timePattern.ReplaceAllString(skipped, "TIME"))
		if found {
			reasons += skippedHeader + skipped
		}
	}
	stored := lines("IS"+day+"%04d", 1, 3)
	stdout, _ := e.with(stored).exits(t, 3, "audit", "IS", "-explained", written(t, reasons))
	require.Contains(t, stdout, "explained  20\n  0021-0030 moved, said Bob (Ada, ")
	require.Contains(t, stdout, "\n  0031-0040 a new zone (Ada, ")
	require.Contains(t, stdout, "not explained 17\n  0004-0020\npossible   2\n  0004-0010 raised (")
	require.Contains(t, stdout, "\n  0011-0020 raised (")

	stdout, _ = e.exits(t, 0, "raise", "-json", "IS", "50")
	require.Regexp(t, `^\{"number":"IS\d{8}0050",.*"next":"IS\d{8}0051","skipped":\{"first":41,"last":50,`+
		`"reason":"raised","by":"","at":"[^"]*","possible":true\}\}\n$`, stdout)
	stdout, _ = e.exits(t, 0, "takeover", "-json", "-by", "Ada", "-reason", "moved", "IS", "60")
	require.Regexp(t, `"skipped":\{"first":51,"last":60,"reason":"moved","by":"Ada","at":"[^"]*","possible":false\}\}\n$`,
		stdout)
	_, stdout, _ = e.do("raise", "-json", "IS", "60")
	require.NotContains(t, stdout, "skipped")
}

// If the counter was lost, the skipped numbers are unknown.
func TestSkippedOfALostCounter(t *testing.T) {
	m, e, day := issued(t, 3)
	for i, args := range [][]string{{"raise", "IS", "7"}, {"takeover", "IS", "8", "-reason", "moved", "-by", "Ada"},
		{"raise", "IS", "9", "-json"}} {
		m.Del("serial:{IS}:" + day)
		stdout, stderr := e.exits(t, 0, args...)
		require.Contains(t, stdout, fmt.Sprintf("IS%s%04d", day, 8+i))
		require.NotContains(t, stdout, "first")
		require.NotContains(t, stdout, "skipped")
		require.Equal(t, "serial: the counter was lost, so it is not known which numbers were skipped, and none are "+
			"explained\n", stderr)
	}
	m.Del("serial:{IS}:" + day)
	_, stderr := e.exits(t, 0, "raise", "IS", "0")
	require.Empty(t, stderr, "nothing was skipped")
}
