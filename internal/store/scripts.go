package store

import (
	"embed"

	"github.com/dailyserial/serial/internal/redisrun"
)

//go:embed lua
var lua embed.FS

var (
	// TakeScript takes, and is seen by tests that count numbers. Most calls need none of the rules, whose functions are therefore
	// not made before they do.
	TakeScript = redisrun.NewScript("local function rules()\n" + files("rules", "once") +
		"return periodRules, recall, remember, master\nend\n" + files("take"))
	// OpenScript opens, and is seen by tests that stop a process there.
	OpenScript    = redisrun.NewScript(files("rules", "once", "open"))
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
