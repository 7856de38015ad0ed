//go:build !race

package gapless_test

import (
	_ "modernc.org/sqlite" // registers itself as sqlite

	"github.com/dailyserial/serial/gapless"
)

// This driver is SQLite's C code translated to Go. With the race detector, it takes a quarter of an hour to compile, so
// sqlite_race_test.go uses another driver.
func init() {
	sqliteBusy = "_pragma=busy_timeout(60000)"
	noDialector[gapless.SQLite] = "GORM's package for SQLite needs a C compiler; so does the race detector, " +
		"with which this is tested"
}
