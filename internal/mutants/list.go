package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A test selects the tests that should fail with a change. These are the tests in some packages of a module whose names
// match a pattern.
type test struct {
	packages string // folders, separated by commas
	pattern  string // argument of -run; "" selects all tests
}

// A mutant is one change to a file.
type mutant struct {
	number   int // number in the list, from 1
	file     string
	test     test
	what     string // description
	old, new string
	lives    string // reason why no test can fail with the change; "" if a test must fail
}

// parse parses a list of mutants. The head of list.txt describes the format.
func parse(text string) (mutants []mutant, err error) {
	var file string
	var common test
	for block := range strings.SplitSeq(text, "\n\n") {
		m := mutant{number: len(mutants) + 1, file: file, test: common}
		var before, after []string
		for line := range strings.SplitSeq(strings.Trim(block, "\n"), "\n") {
			key, rest, _ := strings.Cut(line, " ")
			switch key {
			case "#", "":
			case "file:":
				file, common = rest, test{}
			case "test:":
				m.test.packages, m.test.pattern, _ = strings.Cut(rest, " ")
			case "lives:":
				m.lives = rest
			case "-":
				before = append(before, rest)
			case "+":
				after = append(after, rest)
			default:
				m.what = line
			}
		}
		switch {
		case m.what == "" && before == nil: // the head, or that of a file
			common = m.test
			continue
		case m.what == "" || before == nil || m.file == "" || m.test.packages == "":
			return nil, fmt.Errorf("mutant %d lacks a description, an old text, a file or a test:\n%s", m.number, block)
		}
		m.old, m.new = strings.Join(before, "\n"), strings.Join(after, "\n")
		mutants = append(mutants, m)
	}
	return mutants, nil
}

// check returns an error for each mutant whose old text does not occur exactly once in its file in root.
func check(root string, mutants []mutant) (err error) {
	for _, m := range mutants {
		text, e := os.ReadFile(filepath.Join(root, m.file))
		if n := bytes.Count(text, []byte(m.old)); e == nil && n != 1 {
			e = fmt.Errorf("%d %s: %s: found %d times, want once:\n%s", m.number, m.file, m.what, n, m.old)
		}
		err = errors.Join(err, e)
	}
	return err
}
