package serial_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/redistest"
	"github.com/dailyserial/serial/serialtest"
)

// Each promise in the index of docs/guarantees.md must list the tests that prove it, and the comments of these tests
// must contain the name of the promise.
func TestGuarantees(t *testing.T) {
	promised := map[string]bool{}
	var named, naming []string // "promise: package test"
	index := regexp.MustCompile(`(?m)^- \*\*([a-z]+(?:-[a-z]+)+)\*\*: (.*(?:\n  .*)*)$`)
	for _, promise := range index.FindAllStringSubmatch(guide(t, "guarantees.md"), -1) {
		require.False(t, promised[promise[1]], "two promises have the name %s", promise[1])
		promised[promise[1]] = true
		dir, before := ".", len(named)
		for _, test := range found("(faults:|interleave:|`Test\\w+`)", promise[2]) {
			if folder, isFolder := strings.CutSuffix(test, ":"); isFolder {
				dir = filepath.Join("internal", folder)
				continue
			}
			named = append(named, fmt.Sprintf("%s: %s %s", promise[1], dir, strings.Trim(test, "`")))
		}
		require.Greater(t, len(named), before, "%s names no tests", promise[1])
	}
	for _, path := range files(t, "*_test.go", "*/*_test.go", "*/*/*_test.go", "*/*/*/*_test.go") {
		source := unix(t, path)
		comments := regexp.MustCompile(`(?m)^// Guarantees: (.*)\.\nfunc (Test\w+)\(t `).FindAllStringSubmatch(source, -1)
		require.Equal(t, strings.Count(source, "\n// Guarantees: "), len(comments),
			"%s: the line belongs directly above a test", path)
		for _, c := range comments {
			for promise := range strings.SplitSeq(c[1], ", ") {
				naming = append(naming, fmt.Sprintf("%s: %s %s", promise, filepath.Dir(path), c[2]))
			}
		}
	}
	require.NotEmpty(t, named)
	require.ElementsMatch(t, named, naming, "the page's promises and tests, and those in the comments of tests")
}

// The tests below demonstrate losses that, according to docs/guarantees.md, no protection prevents. If such a test
// fails, correct that page.

// limits runs f with each protection, on a new generator and on one that remembers its numbers. numbers contains the
// sequences that f must return; 0 stands for ErrCounterLost.
func limits(t *testing.T, numbers [3][2]int64,
	f func(t *testing.T, remembers bool, stored *int64, opts []serial.Option) (serial.Number, error)) {
	for i, with := range []string{"nothing", "floor", "ledger"} {
		for j, remembers := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, remembers %v", with, remembers), func(t *testing.T) {
				stored := new(int64)
				opts := [][]serial.Option{
					nil,
					{serial.WithFloor(func(context.Context, string, time.Time) (int64, error) { return *stored, nil })},
					{serial.WithLedger(new(serialtest.Ledger), 10)},
				}[i]
				number, err := f(t, remembers, stored, opts)
				if numbers[i][j] == 0 {
					require.ErrorIs(t, err, serial.ErrCounterLost)
					return
				}
				require.NoError(t, err)
				require.Equal(t, numbers[i][j], number.Seq)
			})
		}
	}
}

// Redis's clock is nine days ahead for two seconds, so the counter and the record expire. Only with a floor, with a
// ledger or in a process that remembers its numbers can the series be distinguished from a new one. WithRetention does
// not help.
// Guarantees: record-expired.
func TestLimitOfAClockNineDaysAhead(t *testing.T) {
	limits(t, [3][2]int64{{1, 0}, {4, 4}, {11, 11}}, func(t *testing.T, remembers bool, stored *int64,
		opts []serial.Option) (n serial.Number, err error) {
		inBubble(t, func(t *testing.T, m *simulation) {
			opts = append(opts, serial.WithLocation(time.UTC), serial.WithRetention(5))
			gen := newGenerator(t, m.Client(), opts...)
			require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 3)))
			*stored = 3
			m.SetTime(time.Now().AddDate(0, 0, 9))
			_, err = newGenerator(t, m.Client()).Next(t.Context(), "OTHER")
			require.ErrorIs(t, err, serial.ErrClockSkew, "a wrong clock opens nothing")
			synctest.Wait() // until the lock is released
			require.Empty(t, m.Keys())
			m.SetTime(time.Time{})
			m.ClockTTL(true)
			if !remembers {
				gen = newGenerator(t, m.Client(), opts...)
			}
			n, err = gen.NextNumber(t.Context(), "IS")
		})
		return n, err
	})
}

// The memory of a server or its keys are reset to an earlier state, but its replication ID stays the same. The loss
// goes unnoticed even with a ledger.
// Guarantees: memory-goes-back, restored-keys.
func TestLimitOfAServerThatGoesBack(t *testing.T) {
	t.Parallel()
	for name, save := range map[string]func(t *testing.T, s *redistest.Server) (goBack func() error){
		"its memory": func(t *testing.T, s *redistest.Server) func() error {
			require.NoError(t, s.Do("SAVE").Err())
			return func() error { return s.Do("DEBUG", "RELOAD", "NOSAVE").Err() }
		},
		"its keys": func(t *testing.T, s *redistest.Server) func() error {
			dumps := map[string]string{}
			keys, err := s.Do("KEYS", "*").StringSlice()
			require.NoError(t, err)
			for _, key := range keys {
				dumps[key], err = s.Do("DUMP", key).Text()
				require.NoError(t, err)
			}
			return func() (err error) {
				for key, dump := range dumps {
					err = errors.Join(err, s.Do("RESTORE", key, time.Hour.Milliseconds(), dump, "REPLACE").Err())
				}
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := redistest.Start(t)
			limits(t, [3][2]int64{{4, 0}, {4, 7}, {4, 11}}, func(t *testing.T, remembers bool, stored *int64,
				opts []serial.Option) (serial.Number, error) {
				require.NoError(t, s.Do("FLUSHALL").Err())
				opts = append(opts, serial.WithLocation(noon()))
				gen := newGenerator(t, s.Client(t), opts...)
				require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 3)))
				goBack := save(t, s)
				require.NoError(t, errOf(gen.NextN(t.Context(), "IS", 3)))
				*stored = 6
				require.NoError(t, goBack())
				if !remembers {
					gen = newGenerator(t, s.Client(t), opts...)
				}
				return gen.NextNumber(t.Context(), "IS")
			})
		})
	}
}
