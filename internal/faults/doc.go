// Package faults is the fault suite: processes issue numbers while a random schedule breaks what they depend on, and a
// checker reads their journal. It contains only tests.
//
//	go test ./internal/faults                                          a minute, every run a few seconds
//	SERIAL_SOAK=10m go test -v -timeout 30m -run Faults ./internal/faults   ten minutes, divided over the runs
//	SERIAL_SEED=7 go test -run Faults/sentinel ./internal/faults       the same faults in the same order
//	SERIAL_FAULT='denied|hurry' go test -run Faults ./internal/faults  these faults only
//
// A run is a topology (server, pair, sentinel, cluster) and a protection (none, floor, replicas, ledger). The schedule
// contains only faults that the protection promises to survive. The log of every run has the seed and, with -v, each
// fault; the tables at the end are Markdown.
//
//	faults_test.go    the runs, and what is asserted of each
//	scenario_test.go  single losses step by step, each with protection and without: so the checker is checked
//	deletion_test.go  documents that are deleted after outages
//	opening_test.go   callers who leave, and processes that die, at every boundary of an opening
//	slow_test.go      every step of a call slow
//	refusal_test.go   servers that refuse: slots, ACLs
//	clock_test.go     clocks that jump, and one that was ahead
//	memory_test.go    a Redis in virtual time, for clocks, slowness and openings
//	schedule_test.go  which fault when: a pure function of the seed
//	topology_test.go  the servers, and every kind of fault
//	proxy_test.go     a network that misbehaves
//	fleet_test.go     the processes that issue, as seen from the one that watches
//	worker_test.go    the same as seen from within
//	ledger_test.go    storage that outlives Redis
//	checker_test.go   the journal, and what must be true of it
package faults
