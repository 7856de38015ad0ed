package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// -shared: every command acts on the series that all types share, and there is no TYPE if none is printed.
func TestShared(t *testing.T) {
	_, e, day := issued(t, 0)
	e.prints(t, "FA"+day+"0001\n", "next", "-shared", "FA")
	e.prints(t, "AV"+day+"0002\n", "next", "AV", "-shared")
	e.prints(t, "CN"+day+"0002\n", "peek", "-shared", "CN")
	e.prints(t, "IS"+day+"0001\n", "next", "IS") // a series of its own

	stdout, _ := e.with("FA"+day+"0001\nAV"+day+"0002\n").exits(t, 0, "audit", "-shared", "CN")
	require.Contains(t, stdout, "serial:* in ")
	require.Contains(t, stdout, "used       2\n")
	stdout, _ = e.with("FA"+day+"0005\nAV"+day+"0009\n").exits(t, 0, "import", "-shared")
	require.Regexp(t, `(?m)^raised serial:\* in .*: from 0002 to 0009; 2 numbers$`, stdout)
	e.prints(t, "AV"+day+"0010\n", "next", "-shared", "AV")

	typeless := []string{"-shared", "-prefix", "plain", "-template", "{date:yyyyMMdd}-{seq:3}"}
	command := func(name string, args ...string) []string {
		return append(append([]string{name}, typeless...), args...)
	}
	e.prints(t, day+"-001\n", command("next")...)
	require.Contains(t, e.fails(t, 2, "too many arguments: got 1, but next takes none", command("next", "IS")...), "usage")
	stdout, _ = e.exits(t, 0, command("raise", "7")...)
	require.Contains(t, stdout, "next "+day+"-008\n")
	e.prints(t, day+"-008\n", command("next")...)
	stdout, _ = e.exits(t, 0, command("history")...)
	require.Regexp(t, ` 8 +0.8%\n$`, stdout)
	_, _ = e.exits(t, 0, command("prepare")...)
	stdout, _ = e.with(day+"-001\n"+day+"-008\n").exits(t, 3, command("audit")...)
	require.Contains(t, stdout, "plain:* in ")
	require.Contains(t, stdout, "missing    6\n")
	_, _ = e.with(day+"-020\n").exits(t, 0, command("import", "-force")...)
	e.prints(t, day+"-021\n", command("next")...)

	e.fails(t, 2, "only numbers of WithSharedCounter need none", "next", "-template", "{date:yyyyMMdd}{seq:4}", "IS")
}
