//go:build !race

package numbers

// The SQLite driver takes a quarter of an hour to compile with the race detector, so such builds have only PostgreSQL.
import _ "modernc.org/sqlite"
