//go:build !race

package guidetest

// With the race detector the driver takes a quarter of an hour to compile, so race builds do without it.
import _ "modernc.org/sqlite"
