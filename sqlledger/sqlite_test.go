//go:build !race

package sqlledger_test

import "modernc.org/sqlite"

// The driver is SQLite's C, translated to Go. With the race detector it takes a quarter of an hour to compile, and it
// does not use this package's concurrency. So race builds leave it out.
func init() { sqliteDriver = new(sqlite.Driver) }
