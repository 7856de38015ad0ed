package store

import (
	"embed"

	"github.com/dailyserial/serial/internal/redisrun"
)

//go:embed lua
var lua embed.FS

var (
	takeScript    = script("judge", "once", "take")
	openScript    = script("judge", "once", "open")
	peekScript    = script("judge", "peek")
	prepareScript = script("judge", "prepare")
	historyScript = script("judge", "history")
	releaseScript = script("release")
)

// script puts a script together of files in lua.
func script(names ...string) *redisrun.Script {
	source := ""
	for _, name := range names {
		part, err := lua.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err)
		}
		source += string(part)
	}
	return redisrun.NewScript(source)
}

// IsOpen reports whether the arguments of a command are those of open.lua, for tests that stop a process there.
func IsOpen(args []any) bool { return args[1] == openScript.Digest || args[1] == openScript.Source }
