//go:build unix

package redistest

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"syscall"
)

var sigStop, sigCont os.Signal = syscall.SIGSTOP, syscall.SIGCONT

// dieWithParent makes the kernel kill the process when the thread that starts it ends. This is necessary because
// t.Cleanup does not run if the test binary ends with a timeout or a SIGKILL. Only Linux supports it, so only there the
// struct has the field; elsewhere, the servers of a test binary that is killed keep running.
func dieWithParent() *syscall.SysProcAttr {
	attributes := new(syscall.SysProcAttr)
	if field := reflect.ValueOf(attributes).Elem().FieldByName("Pdeathsig"); field.IsValid() {
		field.Set(reflect.ValueOf(syscall.SIGKILL))
	}
	return attributes
}

// stopped reports whether SIGSTOP has taken effect or the process has ended. It returns true where there is no cheap way
// to check this.
func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	// "pid (name) state …", where the name may contain anything.
	_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
	return len(state) == 0 || bytes.IndexByte([]byte("TtZX"), state[0]) >= 0
}
