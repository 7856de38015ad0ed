//go:build race

package serial_test

func init() { raceDetector = true }
