// Package exampletest contains helpers for the tests of the examples.
package exampletest

import (
	"bufio"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
)

// Must returns the result of a call that must succeed, as [text/template.Must] does.
func Must[T any](result T, err error) T {
	if err != nil {
		panic(err)
	}
	return result
}

// ReadFile returns the text of a file. The name is relative to the package under test.
func ReadFile(t *testing.T, name string) string {
	t.Helper()
	return strings.ReplaceAll(string(Must(os.ReadFile(name))), "\r\n", "\n")
}

// RequireCode requires that a file contains all Go code of a text.
func RequireCode(t *testing.T, text, file string) {
	t.Helper()
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		require.Contains(t, ReadFile(t, file), block[1], "this code of the text is not in %s", file)
	}
}

// PostgreSQL executes statements in a new schema, and returns the address of the schema. SERIAL_POSTGRES_DSN sets the
// server. If there is no server, the test is skipped or, with SERIAL_REQUIRE_SQL=1, fails.
func PostgreSQL(t *testing.T, statements ...string) (db *sql.DB, dsn string) {
	t.Helper()
	dsn = cmp.Or(os.Getenv("SERIAL_POSTGRES_DSN"), "postgres://postgres@127.0.0.1:5432/test?sslmode=disable")
	schema := fmt.Sprintf("examples_%d", time.Now().UnixNano())
	if !strings.Contains(dsn, "?") {
		dsn += "?"
	}
	dsn += "&search_path=" + schema
	db = Must(sql.Open("pgx", dsn))
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.Exec("CREATE SCHEMA " + schema); err != nil {
		require.NotEqual(t, "1", os.Getenv("SERIAL_REQUIRE_SQL"), err)
		t.Skipf("no PostgreSQL: %v", err)
	}
	t.Cleanup(func() { _, _ = db.Exec("DROP SCHEMA " + schema + " CASCADE") })
	for _, statement := range statements {
		Must(db.Exec(statement))
	}
	return db, dsn
}

// RequireSQLite skips a test in builds without SQLite.
func RequireSQLite(t *testing.T) {
	if !slices.Contains(sql.Drivers(), "sqlite") {
		t.Skip("built with the race detector, and therefore without SQLite")
	}
}

// Start runs a service until the test ends, and returns its address and a function that returns its log. The argument
// variable is the name of the environment variable that contains the address on which the service listens.
func Start(t *testing.T, variable string, run func(context.Context, io.Writer, *slog.Logger) error) (address string,
	log func() string) {
	t.Helper()
	t.Setenv(variable, "127.0.0.1:0")
	ctx, stop := context.WithCancel(context.Background())
	out, in := io.Pipe()
	file := Must(os.Create(filepath.Join(t.TempDir(), "log")))
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, in, slog.New(slog.NewTextHandler(file, nil)))
		_ = in.CloseWithError(err)
		ended <- err
	}()
	t.Cleanup(func() {
		stop()
		require.NoError(t, errors.Join(<-ended, file.Close()))
	})
	line := Must(bufio.NewReader(out).ReadString('\n'))
	return regexp.MustCompile(`http://[^/\s]+`).FindString(line), func() string { return ReadFile(t, file.Name()) }
}
