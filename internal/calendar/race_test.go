//go:build race

package calendar_test

func init() { raceDetector = true }
