package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The account in the guide is what the command prints of the file that stands above it.
func TestAuditGuide(t *testing.T) {
	text, err := os.ReadFile("../../docs/audit.md")
	require.NoError(t, err)
	block := func(language string) string {
		_, rest, found := strings.Cut(strings.ReplaceAll(string(text), "\r\n", "\n"), "```"+language+"\n")
		require.True(t, found, language)
		code, _, _ := strings.Cut(rest, "```")
		return code
	}
	_, e, day := issued(t, 7)
	today := strings.NewReplacer("20211024", day, "2021-10-24", day[:4]+"-"+day[4:6]+"-"+day[6:])
	file := written(t, today.Replace(block("csv")))
	line, want, _ := strings.Cut(block("console"), "\n")
	args := strings.Fields(strings.Replace(line, "orders.csv", file, 1))
	require.Equal(t, []string{"$", "serial"}, args[:2])

	code, stdout, stderr := e.do(args[2:]...)
	require.Equal(t, 3, code)
	times := regexp.MustCompile(`\d{4}-\d\d-\d\dT[^ ,)]*`)
	require.Equal(t, times.ReplaceAllString(today.Replace(want), "TIME"), times.ReplaceAllString(stdout+stderr, "TIME"))
}

// docs/command.md has a row for each command, and no other.
func TestCommandGuide(t *testing.T) {
	page, err := os.ReadFile("../../docs/command.md")
	require.NoError(t, err)
	var want []string
	for _, s := range commands {
		want = append(want, s.synopsis())
	}
	var got []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(serial .*?)` \\|").FindAllStringSubmatch(string(page), -1) {
		got = append(got, row[1])
	}
	require.Equal(t, want, got)
}
