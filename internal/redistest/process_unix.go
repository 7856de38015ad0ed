//go:build unix && !linux

package redistest

import (
	"os"
	"syscall"
)

const supported = true

var sigStop, sigCont os.Signal = syscall.SIGSTOP, syscall.SIGCONT

// dieWithParent does nothing, because only Linux supports it. If the test binary is killed, its servers keep running.
func dieWithParent() *syscall.SysProcAttr { return nil }

// stopped always returns true, because there is no cheap way to check whether SIGSTOP has taken effect.
func stopped(int) bool { return true }
