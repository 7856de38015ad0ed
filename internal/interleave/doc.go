// Package interleave runs generators one Redis command at a time, in every order of their commands, while one thing
// goes wrong at any point: a process crashes or is suspended, a call is canceled, data is lost, a command is denied. It
// contains only tests.
//
//	go test ./internal/interleave                       some of the orders, others each time
//	SERIAL_TEST_LONG=1 go test ./internal/interleave    every order
//	SERIAL_SEED=7 go test ./internal/interleave         the same orders again
package interleave
