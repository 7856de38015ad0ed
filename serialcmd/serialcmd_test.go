package serialcmd

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// The version of a service's command must contain the version of the library.
func TestDescribe(t *testing.T) {
	for want, main := range map[string]string{"v0.2.0": "v0.2.0", "(devel)": ""} {
		info := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: main}}
		require.Equal(t, "serial "+want+", go1.26.0", describe("serial", info))
		info.Deps = []*debug.Module{{Path: "example.com/other"}, {Path: "github.com/dailyserial/serial", Version: "v0.5.0"}}
		require.Equal(t, "orders-serial "+want+", serial v0.5.0, go1.26.0", describe("orders-serial", info))
	}
}
