//go:build !race

package main

// The SQLite driver takes a quarter of an hour to compile with the race detector, so such builds lack a database.
import _ "modernc.org/sqlite"
