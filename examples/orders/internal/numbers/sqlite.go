//go:build !race

package numbers

// With the race detector, the SQLite driver takes a quarter of an hour to compile. So such builds have only PostgreSQL.
import _ "modernc.org/sqlite"
