package redistest

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
)

const supported = true

var sigStop, sigCont os.Signal = syscall.SIGSTOP, syscall.SIGCONT

// dieWithParent makes the kernel kill the process when the thread that starts it ends. This is necessary because
// t.Cleanup does not run if the test binary ends with a timeout or a SIGKILL.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// stopped reports whether SIGSTOP has taken effect or the process has ended.
func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	// "pid (name) state …", where the name may contain anything.
	_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return len(state) == 0 || bytes.IndexByte([]byte("TtZX"), state[0]) >= 0
}
