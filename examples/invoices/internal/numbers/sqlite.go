//go:build !race

package numbers

// With the race detector, the driver takes a quarter of an hour to compile. Race builds leave it out; see OpenDatabase.
import _ "modernc.org/sqlite"
