package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The accounts in the guide match what the command prints for the files above them.
func TestAuditGuide(t *testing.T) {
	text, err := os.ReadFile("../../docs/audit.md")
	require.NoError(t, err)
	blocks := func(language string) []string {
		pattern := regexp.MustCompile("(?s)```" + language + "\n(.*?)```")
		var all []string
		for _, block := range pattern.FindAllStringSubmatch(strings.ReplaceAll(string(text), "\r\n", "\n"), -1) {
			all = append(all, block[1])
		}
		require.Len(t, all, 2, language)
		return all
	}
	_, e, day := issued(t, 7)
	today := strings.NewReplacer("20211024", day, "2021-10-24", day[:4]+"-"+day[4:6]+"-"+day[6:],
		"24 October 2021", dayName(t, day))
	files := blocks("csv")
	paths := strings.NewReplacer("orders.csv", written(t, today.Replace(files[0])),
		"reasons.csv", written(t, today.Replace(files[1])))
	for _, block := range blocks("console") {
		line, want, _ := strings.Cut(block, "\n")
		args := strings.Fields(paths.Replace(line))
		require.Equal(t, []string{"$", "serial"}, args[:2])

		stdout, stderr := e.exits(t, 3, args[2:]...)
		require.Equal(t, timePattern.ReplaceAllString(today.Replace(want), "TIME"),
			timePattern.ReplaceAllString(stdout+stderr, "TIME"))
	}
}

// docs/command.md has a row for each command, and no others.
func TestCommandGuide(t *testing.T) {
	page, err := os.ReadFile("../../docs/command.md")
	require.NoError(t, err)
	var want []string
	for _, command := range listed(t) {
		want = append(want, "serial "+command[0])
	}
	var got []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(serial .*?)` \\|").FindAllStringSubmatch(string(page), -1) {
		got = append(got, row[1])
	}
	require.Equal(t, want, got)
}
