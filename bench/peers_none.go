//go:build !peers

package main

// The Redis peers depend on several hundred modules, including drivers of every database. Compiling them takes minutes,
// which everyday builds save.
var peers []*contestant

const peersLeftOut = "Left out of this build: ceyewan/genesis idgen and the layotto Redis sequencer; add -tags peers."
