//go:build !race

package serialpage

// With the race detector, SQLite takes a quarter of an hour to compile.
import _ "modernc.org/sqlite"
