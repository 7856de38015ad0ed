//go:build race

// Package race reports whether the race detector is on, for tests. The detector makes computation ten times slower, and
// finds nothing in code with only one goroutine.
package race

// Enabled reports whether the race detector is on.
const Enabled = true
