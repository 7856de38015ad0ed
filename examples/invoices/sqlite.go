//go:build !race

package main

// With the race detector the driver takes a quarter of an hour to compile, so race builds do without it; see openDatabase.
import _ "modernc.org/sqlite"
