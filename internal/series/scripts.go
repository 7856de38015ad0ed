package series

import (
	"embed"
	"regexp"

	"github.com/dailyserial/serial/internal/wire"
)

//go:embed lua
var lua embed.FS

var (
	// SerialScript takes numbers and opens periods. It is exported for tests that count or delay it.
	SerialScript = wire.NewScript(source("serial"))
	readScript   = wire.NewScript(source("read"))
)

var include = regexp.MustCompile(`(?m)^ *--include (\w+)\r?$`)

// source returns the text of a script in the folder lua. It replaces each line "--include NAME" by the text of the
// script NAME.
func source(name string) string {
	text, err := lua.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // impossible: the files are embedded
	}
	return include.ReplaceAllStringFunc(string(text), func(line string) string {
		return source(include.FindStringSubmatch(line)[1])
	})
}
