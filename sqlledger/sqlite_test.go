//go:build !race

package sqlledger_test

import "modernc.org/sqlite"

// This driver is SQLite's C code translated to Go. With the race detector, it takes a quarter of an hour to compile.
// This package does not depend on the driver's concurrency, so race builds omit it.
func init() { sqliteDriver = new(sqlite.Driver) }
