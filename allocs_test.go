package serial_test

import (
	"context"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/internal/redistest"
)

// TestAllocations holds how often a call allocates in a quiet process while the period is open. It counts what go-redis
// allocates too: 9 times for a bare EVALSHA.
func TestAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector adds an allocation")
	}
	gen := newGenerator(t, redistest.Start(t).Client(t), serial.WithLocation(noon()),
		serial.WithTemplate("{type}{date:yyyyMMdd}{seq:9}"))
	background := context.Background() // t.Context() can end
	limited, cancel := context.WithTimeout(background, time.Hour)
	defer cancel()
	_, err := gen.NextN(background, "IS", 1000) // opens the period; sequences below 256 take an allocation less
	require.NoError(t, err)
	for name, test := range map[string]struct {
		call func() error
		most float64
	}{
		"Next": {func() error { _, err := gen.Next(background, "IS"); return err }, 13},
		// 22 on a machine that is not busy.
		"Next with a deadline": {func() error { _, err := gen.Next(limited, "IS"); return err }, 23},
		"NextN of 1000":        {func() error { _, err := gen.NextN(background, "IS", 1000); return err }, 17},
	} {
		t.Run(name, func(t *testing.T) {
			allocations := testing.AllocsPerRun(200, func() {
				if err := test.call(); err != nil {
					t.Error(err)
				}
			})
			require.LessOrEqual(t, allocations, test.most)
		})
	}
}

// TestFrames holds how many functions of this library a command comes through, as a hook of the client sees it, and
// that a call enters each file once. A command that a new goroutine sends shows fewer, so the deepest of several calls
// counts.
func TestFrames(t *testing.T) {
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()}))
	gen := newGenerator(t, rdb)
	var frames frameRecorder
	rdb.AddHook(everyCall(func(_ []redis.Cmder, send func() error) error {
		frames.look()
		return send()
	}))
	for _, test := range []struct {
		name string
		ctx  context.Context
		typ  string // and the number of the call, if it ends in "-"
		most int
	}{
		{"an opening", t.Context(), "A-", 8},
		{"Next", context.Background(), "A-0", 11},
		{"Next with a request's context", t.Context(), "A-0", 7},
	} {
		frames.deepest = nil
		for i := range 10 {
			typ := test.typ
			if strings.HasSuffix(typ, "-") {
				typ += strconv.Itoa(i)
			}
			require.NoError(t, errOf(gen.Next(test.ctx, typ)))
		}
		require.NotEmpty(t, frames.deepest, test.name)
		require.LessOrEqual(t, len(frames.deepest), test.most, "%s: %q", test.name, frames.deepest)
	}
	require.Empty(t, frames.reentered)
}

// A frameRecorder keeps the functions of this library through which commands came, innermost first.
type frameRecorder struct {
	mu        sync.Mutex // guards all below
	deepest   []string   // of one command
	reentered []string   // of a command that came through a file twice
}

func (r *frameRecorder) look() {
	const library = "github.com/dailyserial/serial"
	pcs := make([]uintptr, 100)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	var functions, files []string
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if strings.HasPrefix(f.Function, library+".") || strings.HasPrefix(f.Function, library+"/internal/") {
			functions, files = append(functions, path.Base(f.Function)), append(files, f.File)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(functions) > len(r.deepest) {
		r.deepest = functions
	}
	files = slices.Compact(files)
	if entered := len(files); len(slices.Compact(slices.Sorted(slices.Values(files)))) < entered {
		r.reentered = functions
	}
}
