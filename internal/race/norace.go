//go:build !race

// Package race tells tests whether the race detector is on. It makes what computes ten times slower, and finds nothing
// where only one goroutine computes.
package race

// Enabled reports whether the race detector is on.
const Enabled = false
