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
	"github.com/dailyserial/serial/internal/redistest"
)

// TestAllocations holds how often a call allocates in a quiet process while the period is open. It counts what go-redis
// allocates too: 9 times for a bare EVALSHA.
func TestAllocations(t *testing.T) {
	if raceDetector {
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

// TestFrames holds how many functions of this library a command comes through, as a hook of the client sees it, and that a
// call enters each file once. A command that a new goroutine sends shows fewer, so the deepest of several calls counts.
func TestFrames(t *testing.T) {
	rdb := closing(t, redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()}))
	gen := newGenerator(t, rdb)
	hook := &frameHook{}
	rdb.AddHook(hook)
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
		hook.deepest = nil
		for i := range 10 {
			typ := test.typ
			if strings.HasSuffix(typ, "-") {
				typ += strconv.Itoa(i)
			}
			_, err := gen.Next(test.ctx, typ)
			require.NoError(t, err)
		}
		require.NotEmpty(t, hook.deepest, test.name)
		require.LessOrEqual(t, len(hook.deepest), test.most, "%s: %q", test.name, hook.deepest)
	}
	require.Empty(t, hook.reentered)
}

// A frameHook keeps the functions of this library through which commands came, innermost first.
type frameHook struct {
	mu        sync.Mutex // guards all below
	deepest   []string   // of one command
	reentered []string   // of a command that came through a file twice
}

func (h *frameHook) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *frameHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.look()
		return next(ctx, cmd)
	}
}

func (h *frameHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.look()
		return next(ctx, cmds)
	}
}

func (h *frameHook) look() {
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
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(functions) > len(h.deepest) {
		h.deepest = functions
	}
	files = slices.Compact(files)
	if entered := len(files); len(slices.Compact(slices.Sorted(slices.Values(files)))) < entered {
		h.reentered = functions
	}
}
