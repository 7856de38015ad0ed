package store

import (
	"embed"

	"github.com/dailyserial/serial/internal/redisrun"
)

//go:embed lua
var lua embed.FS

var (
	// Most calls of take need none of the rules, whose functions are therefore not made before they do.
	takeScript = redisrun.NewScript("local function rules()\n" + files("rules", "once") +
		"return periodRules, recall, remember, master\nend\n" + files("take"))
	openScript    = redisrun.NewScript(files("rules", "once", "open"))
	peekScript    = redisrun.NewScript(files("rules", "peek"))
	prepareScript = redisrun.NewScript(files("rules", "prepare"))
	historyScript = redisrun.NewScript(files("rules", "history"))
	releaseScript = redisrun.NewScript(files("release"))
)

// files returns files in lua, one behind the other.
func files(names ...string) (source string) {
	for _, name := range names {
		part, _ := lua.ReadFile("lua/" + name + ".lua") // it is embedded
		source += string(part)
	}
	return source
}

// IsOpen reports whether the arguments of a command are those of open.lua, for tests that stop a process there.
func IsOpen(args []any) bool { return args[1] == openScript.Digest || args[1] == openScript.Source }

// Issues reports whether they are those of a script that issues numbers, for tests that count those of lost replies.
func Issues(args []any) bool {
	return IsOpen(args) || args[1] == takeScript.Digest || args[1] == takeScript.Source
}
