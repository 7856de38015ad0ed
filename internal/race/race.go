//go:build race

// Package race tells tests whether the race detector is on, and runs bubbles beside it. The detector makes computation
// ten times slower, and finds nothing in code with only one goroutine.
package race

// Enabled reports whether the race detector is on.
const Enabled = true
