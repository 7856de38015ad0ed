//go:build !unix

package redistest

import (
	"os"
	"syscall"
)

// supported is false on systems without redis-server. Start does not find a server there, so the rest of the package
// only has to compile.
const supported = false

var sigStop, sigCont = os.Kill, os.Kill

func dieWithParent() *syscall.SysProcAttr { return nil }

func stopped(int) bool { return true }
