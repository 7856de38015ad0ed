// Package faults is the fault suite: processes issue numbers while a random schedule breaks what they depend on, and a
// checker reads what they report. It contains only tests.
//
//	go test ./internal/faults                                          some of the runs, each a few seconds
//	SERIAL_SOAK=10m go test -v -timeout 30m -run TestFaults ./internal/faults   ten minutes, divided over the runs
//	SERIAL_SEED=7 go test -run Faults/sentinel ./internal/faults       the same faults in the same order
//
// A run has a topology (server, solo, pair, sentinel, cluster) and a protection (none, replicas, ledger). Its schedule
// contains only faults that the protection promises to survive. The log of every run has the seed and, with -v, each
// fault; the lines with the results are rows of a Markdown table.
package faults
