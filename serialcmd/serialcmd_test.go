package serialcmd

import (
	"encoding/binary"
	"io"
	"runtime/debug"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
)

func TestDescribe(t *testing.T) {
	setting := func(key, value string) debug.BuildSetting { return debug.BuildSetting{Key: key, Value: value} }
	for _, row := range []struct {
		want, version string
		settings      []debug.BuildSetting
		deps          []*debug.Module
	}{
		{"serial v0.2.0, go1.26.0", "v0.2.0", nil, nil},
		{"serial (devel), go1.26.0", "(devel)", nil, nil},
		{"serial (devel), go1.26.0", "", []debug.BuildSetting{setting("GOOS", "linux")}, nil},
		{"serial (devel), revision 9508a9e, go1.26.0", "(devel)",
			[]debug.BuildSetting{setting("vcs", "git"), setting("vcs.revision", "9508a9e"), setting("vcs.modified", "false")},
			nil},
		{"serial v0.2.1-0.2026+dirty, revision 9508a9e, modified, go1.26.0", "v0.2.1-0.2026+dirty",
			[]debug.BuildSetting{setting("vcs.revision", "9508a9e"), setting("vcs.modified", "true")}, nil},
		{"serial v2.3.4, serial v0.5.0, go1.26.0", "v2.3.4", nil,
			[]*debug.Module{{Path: "example.com/other"}, {Path: "github.com/dailyserial/serial", Version: "v0.5.0"}}},
	} {
		info := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: row.version}, Settings: row.settings,
			Deps: row.deps}
		require.Equal(t, row.want, describe("serial", info))
	}
}

// UTF-16 may arrive in any pieces.
func TestUTF16InPieces(t *testing.T) {
	for n, pieces := range map[int]func(io.Reader) io.Reader{500: iotest.OneByteReader, 50_000: iotest.HalfReader} {
		text := strings.Repeat("é\u20ac𝄞\n", n)
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			var encoded []byte
			for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
				encoded = order.AppendUint16(encoded, unit)
			}
			var b strings.Builder
			_, err := newReader(t.Context(), pieces(strings.NewReader(string(encoded)))).WriteTo(&b)
			require.NoError(t, err)
			require.True(t, text == b.String(), order) // its output would be long
		}
	}
}
