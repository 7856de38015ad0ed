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
	for _, row := range []struct {
		want, version string
		deps          []*debug.Module
	}{
		{"serial v0.2.0, go1.26.0", "v0.2.0", nil},
		{"serial (devel), go1.26.0", "", nil},
		{"serial v2.3.4, serial v0.5.0, go1.26.0", "v2.3.4",
			[]*debug.Module{{Path: "example.com/other"}, {Path: "github.com/dailyserial/serial", Version: "v0.5.0"}}},
	} {
		info := &debug.BuildInfo{GoVersion: "go1.26.0", Main: debug.Module{Version: row.version}, Deps: row.deps}
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
