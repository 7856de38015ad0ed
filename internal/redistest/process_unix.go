//go:build unix && !linux

package redistest

import (
	"os"
	"syscall"
)

const supported = true

var sigStop, sigCont os.Signal = syscall.SIGSTOP, syscall.SIGCONT

// dieWithParent has no counterpart here: a server outlives a test binary that is killed.
func dieWithParent() *syscall.SysProcAttr { return nil }

// stopped trusts the signal: there is no cheap way to ask.
func stopped(int) bool { return true }
