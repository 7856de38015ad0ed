//go:build !race

// Package race reports to tests whether they run with the race detector, and runs bubbles of testing/synctest with it.
// The detector makes computation ten times slower, and cannot find anything in code with only one goroutine. So tests
// can shorten such code.
package race

// Enabled reports whether the program was built with the race detector.
const Enabled = false
