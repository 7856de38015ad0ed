package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Numbers printed by earlier templates count, and so do their explanations.
func TestAuditEarlier(t *testing.T) {
	_, e, day := issued(t, 9, "-template", "{type}{date:yyyyMMdd}{seq:1}")
	e.exits(t, 0, "next", "-n", "3", "IS", "-template", "{type}{date:yyyyMMdd}{seq:6}")
	stored := lines("IS"+day+"%d", 1, 6) + "IS/" + day + "/7\n" + lines("IS"+day+"%06d", 10, 11) + "IS" + day + "12\n" +
		"PO" + day + "1\n"
	audit := func(stdin string, code int, flags ...string) (stdout, stderr string) {
		args := append([]string{"audit", "IS", "-template", "{type}{date:yyyyMMdd}{seq:6}"}, flags...)
		return e.with(stdin).exits(t, code, args...)
	}
	narrow, slash := "-earlier={type}{date:yyyyMMdd}{seq:1}", "-earlier={type}/{date:yyyyMMdd}/{seq:1}"
	stdout, _ := audit(stored, 3)
	require.Contains(t, stdout, "\nused       2\nmissing    10\n  000001-000009\n  000012\n")
	stdout, _ = audit(stored, 3, narrow, slash)
	require.Contains(t, stdout, "\nused       9\nmissing    3\n  000008-000009\n  000012\n")
	require.Contains(t, stdout, "\nforeign    1\n  \"IS"+day+"12\"\nothers     1,")
	stdout, _ = audit(stored+"IS"+day+"000007\n", 3, "-json", slash, narrow)
	require.Contains(t, stdout, `"duplicates":["IS`+day+`000007"]`)

	// A file of explanations has numbers as they were printed.
	reasons := "number,reason,by\nIS" + day + "8,void,Ada\nIS/" + day + "/9,void,Ada\nIS" + day + "000012,void,Ada\n" +
		"PO" + day + "1,void,Ada\nIS202001011,void,Ada\n"
	file := written(t, reasons)
	stdout, _ = audit(stored, 3, narrow, slash, "-explained", file)
	require.Contains(t, stdout, "\nexplained  3\n  000008 void (Ada, ")
	require.Contains(t, stdout, "\nnot explained 0\n")
	_, stderr := audit(stored, 1, slash, "-explained", file)
	require.Contains(t, stderr, "line 2: serial: invalid number: \"IS"+day+"8\"")
}

// A number in a file of explanations is one of the audited period if any template reads it so.
func TestAuditEarlierReadsTwice(t *testing.T) {
	m, e, _ := issued(t, 0)
	require.NoError(t, m.Set("serial:{IS}:201112", "2"))
	require.NoError(t, m.Set("serial:{IS}:201211", "2"))
	file := written(t, "number,reason\nIS11120001,void\nPO11120002,void\n")
	const monthFirst, yearFirst = "{type}{date:MMyy}{seq:4}", "{type}{date:yyMM}{seq:4}"
	for date, template := range map[string]string{"2011-12-24": monthFirst, "2012-11-24": yearFirst} {
		for _, earlier := range []string{monthFirst, yearFirst} {
			stdout, _ := e.with("").exits(t, 3, "audit", "IS", "-period", "month", "-date", date, "-template", template,
				"-earlier", earlier, "-explained", file)
			require.Equal(t, template != earlier, strings.Contains(stdout, "\nexplained  1\n"), stdout)
		}
	}
}

// A wrong template is a misuse, and nothing is sent.
func TestAuditEarlierRefuses(t *testing.T) {
	m, e, _ := issued(t, 0)
	for says, args := range map[string][]string{
		`serial: -earlier: serial: template "{type}": {seq} is missing`: {"-earlier", "{type}"},
		"{date} is missing":                     {"-earlier", "{type}-{date:yyyyMMdd}-{seq}", "-earlier", "{type}{seq}"},
		"-earlier is empty":                     {"-earlier", ""},
		"-earlier needs a value":                {"-earlier"},
		"the template prints sequences up to 9": {"-earlier", "{type}{date:yyyyMMdd}{seq:1}", "-start", "50"},
		"next has no flag -earlier":             nil,
	} {
		args = append([]string{"audit", "IS"}, args...)
		if len(args) == 2 {
			args = []string{"next", "IS", "-earlier", "{type}{date:yyyyMMdd}{seq}"}
		}
		code, stdout, stderr := e.with("").do(args...)
		require.Equal(t, 2, code, stderr)
		require.Empty(t, stdout)
		require.Contains(t, stderr, says)
		untouched(t, m, args)
	}
}
