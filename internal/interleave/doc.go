// Package interleave runs generators one Redis command at a time, in every order of their commands, while one thing
// goes wrong at any point: a process dies or stops, a caller leaves, a counter is lost, a clock is ahead. It has
// nothing but tests.
//
//	go test ./internal/interleave                       some of the orders, others each time
//	SERIAL_TEST_LONG=1 go test ./internal/interleave    every order
//	SERIAL_SEED=7 go test -run TestSome ./internal/interleave   the same random orders again
//
//	orders_test.go   the settings, and what is asserted of each
//	explore_test.go  every order of a setting, or a random one
//	run_test.go      one order: processes, and how their commands are held back until it is their turn
//	event_test.go    what may happen next, and how it happens
//	end_test.go      how a run ends, and what must be true of its numbers then
//	clock_test.go    a server's clock that is ahead for a while
package interleave
