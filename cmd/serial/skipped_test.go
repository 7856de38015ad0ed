package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// unskipped is what a command printed before what it skipped.
func unskipped(stdout string) string {
	stdout, _, _ = strings.Cut(stdout, "first,last,reason,at,type,start\n")
	stdout, _, _ = strings.Cut(stdout, `{"skipped":`)
	return stdout
}

// What a command skips is printed as audit reads it, and then an audit finds nothing.
func TestSkipped(t *testing.T) {
	_, e, day := issued(t, 3)
	const header = "first,last,reason,at,type,start\n"
	reasons := ""
	for _, row := range []struct {
		stdin, skips string
		args         []string
	}{
		{"", "4,10,raised,", []string{"raise", "IS", "10"}},
		{"", "", []string{"raise", "IS", "5"}},
		{"", "11,20,raised,", []string{"takeover", "IS", "20"}},
		{"", "", []string{"prepare", "IS"}},
		{"PO" + day + "0007\nIS" + day + "0030\n", "21,30,raised,", []string{"import"}},
	} {
		code, stdout, stderr := e.with(row.stdin).do(row.args...)
		require.Equal(t, 0, code, stderr)
		require.Empty(t, stderr)
		_, skipped, found := strings.Cut(stdout, header)
		require.Equal(t, row.skips != "", found, "%v: %s", row.args, stdout)
		require.Contains(t, skipped, row.skips)
		if found {
			reasons += header + skipped
		}
	}
	require.Contains(t, reasons, "\n1,7,raised,")
	stored := lines("IS"+day+"%04d", 1, 3)
	code, _, _ := e.with(stored).do("audit", "IS")
	require.Equal(t, 3, code)
	code, stdout, stderr := e.with(stored).do("audit", "IS", "-explained", written(t, reasons))
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "  0004-0010 raised (")
	require.Contains(t, stdout, "  0011-0020 raised (")
	code, stdout, stderr = e.with("").do("audit", "PO", "-explained", written(t, reasons))
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "  0001-0007 raised (")

	code, stdout, stderr = e.do("raise", "-json", "IS", "40")
	require.Equal(t, 0, code, stderr)
	require.Regexp(t, `^\{.*"next":"IS\d{8}0041"\}
\{"skipped":\[\{"first":31,"last":40,"reason":"raised","at":"[^"]*","type":"IS","start":"[^"]*"\}\]\}
$`, stdout)
}
