// Package faults is the fault suite: processes issue numbers while a random schedule breaks what they depend on, and a
// checker reads what they report. It contains only tests.
//
//	go test ./internal/faults                                          some of the runs, each a few seconds
//	SERIAL_SOAK=10m go test -v -timeout 30m -run TestFaults ./internal/faults   ten minutes, divided over the runs
//	SERIAL_SEED=7 go test -run Faults/sentinel ./internal/faults       the same faults in the same order
//	SERIAL_FAULT='denied|hurry' go test -run TestFaults ./internal/faults   these faults only
//
// A run has a topology (server, pair, sentinel, cluster) and a protection (none, floor, replicas, ledger). Its schedule
// contains only faults that the protection promises to survive. The log of every run has the seed and, with -v, each
// fault; the lines with the results are rows of a Markdown table.
//
//	faults_test.go   the runs, and what is asserted of each; single losses with protection and without
//	table_test.go    the table of faults
//	servers_test.go  the topologies, and what faults do to servers
//	proxy_test.go    a network that delays, drops or breaks
//	workers_test.go  the processes that issue, as seen by the process that watches them
//	worker_test.go   one of those processes
//	ledger_test.go   the ledger and the floor of all processes
//	checker_test.go  what the processes reported, and what must be true of it
//	walk_test.go     random operations, settings, clocks and losses on a Redis in memory
//	calls_test.go    single calls: slow replies, and a user that may use one type only
package faults
