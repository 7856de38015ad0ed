// Package interleave runs generators one Redis command at a time, in every order of their commands, while one thing
// goes wrong at any point: a process crashes or is suspended, a call is canceled, data is lost, a command is denied, a
// clock is ahead. It contains only tests.
//
//	go test ./internal/interleave                       some of the orders, others each time
//	SERIAL_TEST_LONG=1 go test ./internal/interleave    every order
//	SERIAL_SEED=7 go test -run TestSome ./internal/interleave   the same random orders again
//
//	interleave_test.go  the settings
//	order_test.go       every order of a setting, or a random one: which events may come next, and how they happen
//	run_test.go         one run: the processes, and how their commands are held back until it is their turn
//	check_test.go       how a run ends, and what must be true of its numbers then
//	clock_test.go       a server's clock that is ahead for a while
package interleave
