package serial_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The programs in the README compile as they stand there.
func TestReadmeCompiles(t *testing.T) {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	require.Len(t, blocks, 2)
	imports := map[string]string{
		"context.": "context", "fmt.": "fmt", "log.": "log", "time.": "time", "testing.": "testing",
		"redis.": "github.com/redis/go-redis/v9", "serial.": "github.com/dailyserial/serial",
		"miniredis.": "github.com/alicebob/miniredis/v2", "require.": "github.com/stretchr/testify/require",
	}
	for _, block := range blocks {
		source := "package main\n"
		for name, path := range imports {
			if regexp.MustCompile(`\b` + regexp.QuoteMeta(name)).MatchString(block[1]) {
				source += "import \"" + path + "\"\n"
			}
		}
		source += block[1]
		file := "main.go"
		args := []string{"build", "-o", os.DevNull}
		if strings.Contains(block[1], "testing.T") {
			file = "main_test.go"
			args = []string{"test"} // this one can be run
		}
		file = filepath.Join(t.TempDir(), file)
		require.NoError(t, os.WriteFile(file, []byte(source), 0o600))
		out, err := exec.Command("go", append(args, file)...).CombinedOutput()
		require.NoError(t, err, "%s\n%s", out, source)
	}
}
