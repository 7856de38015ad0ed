package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// machine describes the machine and the software used for the measurement.
func machine(ctx context.Context, cfg *config, addr string, started time.Time) (string, error) {
	a := newAdmin(addr)
	defer a.close()
	version, err := a.info(ctx, "server", "redis_version")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, line := range [][2]string{
		{"CPU", fmt.Sprintf("%s, %d cores, shared by clients and server", cpuModel(), runtime.NumCPU())},
		{"System", runtime.GOOS + "/" + runtime.GOARCH},
		{"Go", strings.TrimPrefix(runtime.Version(), "go")},
		{"Redis", version + ", nothing saved to disk"},
		{"Modules", modules()},
		{"Date", started.UTC().Format(time.DateOnly)},
		{"Command", "`" + commandLine(cfg) + "`"},
	} {
		fmt.Fprintf(&b, "- %s: %s\n", line[0], line[1])
	}
	return b.String(), nil
}

func cpuModel() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown CPU" // not Linux
	}
	for line := range strings.Lines(string(text)) {
		if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return "unknown CPU"
}

// modules lists the versions of the compared modules.
func modules() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	var list []string
	for _, m := range info.Deps {
		switch m.Path {
		case "github.com/redis/go-redis/v9", "github.com/bwmarrin/snowflake", "github.com/ceyewan/genesis",
			"mosn.io/layotto/components":
			list = append(list, m.Path+" "+m.Version)
		}
	}
	return strings.Join(list, ", ")
}

// commandLine returns the command that repeats the measurement, without the folder for its output.
func commandLine(cfg *config) string {
	tags := ""
	if len(peers) > 0 {
		tags = "-tags peers "
	}
	line := fmt.Sprintf("go run %s. -rounds %d -round %v -callers %s", tags, cfg.rounds, cfg.length,
		strings.Trim(strings.ReplaceAll(fmt.Sprint(cfg.callers), " ", ","), "[]"))
	if only := cfg.only.String(); only != "" {
		line += fmt.Sprintf(" -only %q", only)
	}
	if network := cfg.network.String(); network != "" {
		line += fmt.Sprintf(" -network %q", network)
	}
	if cfg.check {
		line += " -check"
	}
	if cfg.against != "" {
		line += " -against DIR"
	}
	return line + " -out results"
}

// infoField finds a field in a reply to INFO.
func infoField(text, field string) (string, error) {
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("INFO has no %s", field)
}
