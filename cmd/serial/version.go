package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
)

func (c *command) version(context.Context) error {
	info, ok := debug.ReadBuildInfo()
	if !ok { // built without modules
		info = &debug.BuildInfo{GoVersion: runtime.Version()}
	}
	_, _ = fmt.Fprintln(c.out, describe(info))
	return nil
}

// describe returns the version, the revision it was built from, and the version of Go.
func describe(info *debug.BuildInfo) string {
	version, revision := info.Main.Version, ""
	if version == "" {
		version = "(devel)"
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = ", revision " + s.Value + revision
		case s.Key == "vcs.modified" && s.Value == "true":
			revision += ", modified"
		}
	}
	return fmt.Sprintf("serial %s%s, %s", version, revision, info.GoVersion)
}
