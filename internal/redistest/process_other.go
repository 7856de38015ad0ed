//go:build !unix

package redistest

import (
	"os"
	"syscall"
)

// supported is false on systems without redis-server: Start finds none, and the rest only has to compile.
const supported = false

var sigStop, sigCont = os.Kill, os.Kill

func dieWithParent() *syscall.SysProcAttr { return nil }

func stopped(int) bool { return true }
