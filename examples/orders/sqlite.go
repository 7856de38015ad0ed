//go:build !race

package main

// With the race detector it takes a quarter of an hour to compile, so that race builds do without; see openTable.
import _ "modernc.org/sqlite"
