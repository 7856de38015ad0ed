package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// turnsVariable is set in the environment of a test binary that takes turns with another one.
const turnsVariable = "SERIAL_BENCH_TURNS"

// A comparison measures another checkout of the library (old) and this one (new).
type comparison struct {
	checkout   string // directory of old
	benchmarks string // regular expression for the names of benchmarks
	rounds     int
	length     time.Duration // length of a round
}

// run writes before-after.md, and the output of both checkouts for benchstat.
func (c comparison) run(out string) error {
	dir, err := os.MkdirTemp("", "serial-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binaries := [2]string{filepath.Join(dir, "old.test"), filepath.Join(dir, "new.test")}
	for i, checkout := range []string{c.checkout, ".."} {
		if err := build(checkout, dir, binaries[i]); err != nil {
			return err
		}
	}
	texts, err := c.takeTurns(binaries)
	if err != nil {
		return err
	}
	var outputs [2]*output
	for i, name := range []string{"old.out", "new.out"} {
		if outputs[i], err = parse(texts[i]); err != nil {
			return err
		}
		if err := write(out, name, texts[i]); err != nil {
			return err
		}
	}
	table, err := change(outputs[0], outputs[1])
	if err != nil {
		return err
	}
	return write(out, "before-after.md", fmt.Sprintf("# Before and after\n\n%s- Old: %s\n- New: %s\n\n%s",
		machine(texts[1]), revision(c.checkout), revision(".."), table))
}

// build builds the test binary with the library in checkout. It must be called in the directory of this program.
func build(checkout, dir, binary string) error {
	checkout, err := filepath.Abs(checkout)
	if err != nil {
		return err
	}
	mod := filepath.Join(dir, "go.mod")
	for _, command := range [][]string{
		{"cp", "go.mod", "go.sum", dir},
		{"go", "mod", "edit", "-replace", "github.com/dailyserial/serial=" + checkout, mod},
		// The other checkout may require other versions of modules.
		{"go", "test", "-c", "-mod=mod", "-modfile", mod, "-o", binary, "."},
	} {
		if text, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w: %s", command, err, text)
		}
	}
	return nil
}

// takeTurns runs both binaries at the same time, and returns their outputs. They send each other a byte through two
// pipes, and only the process that has received the byte measures. If one process ends early, its pipes are closed, and
// the other one fails instead of waiting.
func (c comparison) takeTurns(binaries [2]string) (outputs [2]string, err error) {
	toOld, fromNew, oldErr := os.Pipe()
	toNew, fromOld, newErr := os.Pipe()
	if err := errors.Join(oldErr, newErr); err != nil {
		return outputs, err
	}
	pipes := [2][]*os.File{{toOld, fromOld}, {toNew, fromNew}}
	_, err = fromNew.Write([]byte{0}) // old begins
	var processes [2]*exec.Cmd
	var texts [2]bytes.Buffer
	for i, binary := range binaries {
		p := exec.Command(binary, "-test.run", "^$", "-test.bench", c.benchmarks, "-test.benchtime", "1x",
			"-test.count", fmt.Sprint(c.rounds), "-round", c.length.String())
		p.Env = append(os.Environ(), turnsVariable+"=1")
		p.Stdout, p.Stderr = &texts[i], &texts[i]
		p.ExtraFiles = pipes[i] // descriptors 3 and 4
		processes[i], err = p, errors.Join(err, p.Start())
	}
	for _, file := range slices.Concat(pipes[:]...) {
		err = errors.Join(err, file.Close())
	}
	for i, p := range processes {
		if e := p.Wait(); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w\n%s", filepath.Base(binaries[i]), e, texts[i].String()))
		}
		outputs[i] = texts[i].String()
	}
	return outputs, err
}

// change returns a table that compares both outputs.
func change(older, newer *output) (string, error) {
	var text strings.Builder
	text.WriteString("| network | callers | | old, × base | new, × base | new / old (quartiles) " +
		"| allocations per number, old | new | server CPU per number, old | new | new / old (quartiles) |\n" +
		"| :--- | ---: | :--- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	rounds := 0
	for _, b := range newer.order {
		if rounds = len(newer.rounds[b]); len(older.rounds[b]) != rounds {
			return "", fmt.Errorf("%v: %d rounds of old, %d of new", b, len(older.rounds[b]), rounds)
		}
		ratios := func(unit string) string {
			var all []float64
			for i, round := range newer.rounds[b] {
				all = append(all, round[unit]/older.rounds[b][i][unit])
			}
			return quartiles(all)
		}
		then := func(unit string) float64 { return median(older.all(b, unit)) }
		now := func(unit string) float64 { return median(newer.all(b, unit)) }
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", b.network,
			thousands(float64(b.callers)), b.title(), short(then(rate+ratioSuffix)), short(now(rate+ratioSuffix)), ratios(rate),
			short(then(allocations)), short(now(allocations)), micro(then(serverCPU)), micro(now(serverCPU)), ratios(serverCPU))
	}
	fmt.Fprintf(&text, "\nMedians of %d alternating rounds; ratios are medians of each round's ratio. The base is INCR; "+
		"for openings, it is INCR on new keys.\n", rounds)
	return text.String(), nil
}
