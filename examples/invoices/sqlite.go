//go:build !race

package main

// With the race detector, the SQLite driver takes a quarter of an hour to compile. So such builds have no database.
import _ "modernc.org/sqlite"
