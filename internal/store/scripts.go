package store

import (
	"embed"
	"regexp"

	"github.com/dailyserial/serial/internal/redisrun"
)

//go:embed lua
var lua embed.FS

var (
	// TakeScript takes numbers. It is exported for tests that count numbers.
	TakeScript = redisrun.NewScript(source("take"))
	// OpenScript opens a period. It is exported for tests that stop a process there.
	OpenScript    = redisrun.NewScript(source("open"))
	peekScript    = redisrun.NewScript(source("peek"))
	prepareScript = redisrun.NewScript(source("prepare"))
	historyScript = redisrun.NewScript(source("history"))
	releaseScript = redisrun.NewScript(source("release"))
)

var include = regexp.MustCompile(`(?m)^ *--include (\w+)\r?$`)

// source returns a file in lua, with each line "--include NAME" replaced by that file.
func source(name string) string {
	text, err := lua.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // every test would fail
	}
	return include.ReplaceAllStringFunc(string(text), func(line string) string {
		return source(include.FindStringSubmatch(line)[1])
	})
}
