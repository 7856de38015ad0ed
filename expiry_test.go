package serial_test

import (
	"archive/zip"
	"encoding/csv"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
)

// Unusual days, as vectors.
func TestDays(t *testing.T) {
	file, err := os.Open("testdata/days.csv")
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	rows, err := csv.NewReader(file).ReadAll()
	require.NoError(t, err)
	require.Greater(t, len(rows), 10)
	rdb := redis.NewClient(&redis.Options{})
	defer func() { _ = rdb.Close() }()
	for _, row := range rows[1:] {
		t.Run(row[0]+" "+row[1], func(t *testing.T) {
			loc := location(t, row[0])
			start, err := strconv.ParseInt(row[2], 10, 64)
			require.NoError(t, err)
			length, err := strconv.ParseInt(row[3], 10, 64)
			require.NoError(t, err)
			for _, at := range []int64{start, start + 1, start + length/2, start + length - 1} {
				label, from, to := serial.PeriodBounds(time.Unix(at, 0), loc)
				require.Equal(t, row[1], label, "at %d", at)
				require.Equal(t, start, from)
				require.Equal(t, start+length, to)
			}
			before, _, _ := serial.PeriodBounds(time.Unix(start, -1), loc)
			require.Less(t, before, row[1])
			after, _, _ := serial.PeriodBounds(time.Unix(start+length, 0), loc)
			require.Greater(t, after, row[1])
			n, err := newGenerator(t, rdb, serial.WithLocation(loc)).Parse("IS" + row[1] + "0001")
			require.NoError(t, err)
			require.Equal(t, start, n.Start.Unix())
		})
	}
}

// In every zone, around every change of its offset from 1970 to 2037, the day is the latest date that a wall clock has
// shown so far, and it begins when the clock first shows it.
func TestDaysOfEveryZone(t *testing.T) {
	from, to := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2038, 1, 1, 0, 0, 0, 0, time.UTC)
	seen := map[string]bool{} // zones by their data: many are links to others
	var changes atomic.Int64
	var wg sync.WaitGroup
	for name, data := range zoneData(t) {
		if seen[string(data)] {
			continue
		}
		seen[string(data)] = true
		if raceDetector && len(seen)%20 != 0 {
			continue // all of them take minutes then, for functions that share nothing
		}
		loc, err := time.LoadLocationFromTZData(name, data)
		require.NoError(t, err)
		wg.Go(func() {
			for at := from; at.Before(to); {
				_, end := at.In(loc).ZoneBounds()
				if end.IsZero() {
					break
				}
				if !end.After(at) { // as on the last day of many a leap year: Go's segments end there too early
					end = at.Add(24 * time.Hour)
				}
				at = end
				changes.Add(1)
				checkAround(t, loc, at.Unix())
			}
		})
	}
	wg.Wait()
	t.Logf("%d changes of offset, or ends of Go's segments, in %d zones", changes.Load(), len(seen))
	require.Greater(t, len(seen), 300)
	if !raceDetector {
		require.Greater(t, changes.Load(), int64(15_000))
	}
}

// raceDetector is set by a file that is only built with it.
var raceDetector bool

// checkAround compares the days around an instant with what a person would write down who looks at the clock on the
// wall all the time.
func checkAround(t *testing.T, loc *time.Location, instant int64) {
	const hour, day = 60 * 60, 24 * 60 * 60
	first := instant - 2*day
	look := []int64{instant - 1, instant, instant + 1} // the instants to look at
	check := map[int64]bool{}                          // and those to compare at
	for at := first; at <= instant+2*day; at += day {
		_, start, end := serial.PeriodBounds(time.Unix(at, 0), loc)
		look = append(look, start-1, start, end-1, end)
	}
	for _, at := range look {
		check[at] = true
	}
	for at := first; at <= instant+3*day; at += hour / 2 {
		look = append(look, at)
	}
	check[instant-7*hour], check[instant+7*hour] = true, true
	slices.Sort(look)
	latest, began := 0, int64(0)
	for _, at := range look {
		y, m, d := time.Unix(at, 0).In(loc).Date()
		if date := y*10000 + int(m)*100 + d; date > latest {
			latest, began = date, at
		}
		if began <= look[0] || !check[at] {
			continue // a day that began before the first instant is not known exactly
		}
		label, start, end := serial.PeriodBounds(time.Unix(at, 0), loc)
		if label != strconv.Itoa(latest) || start != began || end <= at {
			assert.Fail(t, "wrong day", "%s at %d: %s [%d, %d), want %d from %d", loc, at, label, start, end, latest, began)
			return
		}
	}
}

// zoneData reads the tz database that comes with Go, or else the system's.
func zoneData(t *testing.T) map[string][]byte {
	zones := map[string][]byte{}
	if goroot, err := exec.Command("go", "env", "GOROOT").Output(); err == nil {
		archive, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(goroot)), "lib", "time", "zoneinfo.zip"))
		if err == nil {
			defer func() { _ = archive.Close() }()
			for _, f := range archive.File {
				r, err := f.Open()
				require.NoError(t, err)
				data, err := io.ReadAll(r)
				require.NoError(t, err)
				if strings.HasPrefix(string(data), "TZif") {
					zones[f.Name] = data
				}
			}
			return zones
		}
	}
	const system = "/usr/share/zoneinfo"
	require.NoError(t, filepath.WalkDir(system, func(path string, _ os.DirEntry, err error) error {
		if data, err := os.ReadFile(path); err == nil && strings.HasPrefix(string(data), "TZif") {
			zones[strings.TrimPrefix(path, system+"/")] = data
		}
		return err
	}))
	return zones
}

// Offsets that no zone has, and years far away.
func TestDaysOfFixedZones(t *testing.T) {
	for _, offset := range []int{0, 1, -1, 14 * 3600, -12 * 3600, 23*3600 + 59*60 + 59, -(23*3600 + 59*60 + 59)} {
		loc := time.FixedZone(fmt.Sprint(offset), offset)
		for _, year := range []int{1970, 2000, 2026, 2400, 9999} {
			noon := time.Date(year, 2, 28, 12, 0, 0, 0, loc)
			label, start, end := serial.PeriodBounds(noon, loc)
			require.Equal(t, noon.Format("20060102"), label)
			require.Equal(t, noon.Unix()-12*3600, start)
			require.Equal(t, noon.Unix()+12*3600, end)
		}
	}
}
