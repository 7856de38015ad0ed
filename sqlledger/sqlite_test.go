//go:build !race

package sqlledger_test

import "modernc.org/sqlite"

// The driver is SQLite's C, translated: with the race detector it takes a quarter of an hour to compile, and it has nothing
// of this package's concurrency. So it is left out there.
func init() { sqliteDriver = new(sqlite.Driver) }
