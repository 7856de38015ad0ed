//go:build !unix

package redistest

import (
	"os"
	"syscall"
)

// There is no redis-server that tests can use, so the package only has to compile.

var sigStop, sigCont = os.Kill, os.Kill

func dieWithParent() *syscall.SysProcAttr { return nil }

func stopped(int) bool { return true }
