//go:build !peers

package main

// The Redis peers bring several hundred modules, drivers of every database among them: minutes of compiling that a
// change to this library does not need.
var peers []*contestant

const peersLeftOut = "Left out of this build: ceyewan/genesis idgen and the layotto Redis sequencer; add -tags peers."
