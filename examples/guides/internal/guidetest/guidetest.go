// Package guidetest has helpers for the tests of the guides in docs/: test databases, and the guides' text.
package guidetest

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
)

// docs is the folder of the guides, seen from a package of this module.
const docs = "../../../docs"

// ReadFile returns a file of the package under test.
func ReadFile(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

// ReadGuide returns the text of a guide or, with a heading after a #, of its section.
func ReadGuide(t testing.TB, name string) string {
	t.Helper()
	name, heading, inSection := strings.Cut(name, "#")
	text := ReadFile(t, filepath.Join(docs, name))
	if inSection {
		_, section, found := strings.Cut(text, "\n## "+heading+"\n")
		require.True(t, found, "%s has no section %q", name, heading)
		text, _, _ = strings.Cut(section, "\n## ")
	}
	return text
}

// RequireCode requires that each Go block in a guide appears verbatim in one of the files, which are named relative to the
// package under test, and that the guide shows every function of these files.
func RequireCode(t *testing.T, guide string, files ...string) {
	t.Helper()
	var all strings.Builder
	for _, file := range files {
		all.WriteString(ReadFile(t, file))
	}
	text, source, shown := ReadGuide(t, guide), all.String(), 0
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1) {
		require.Contains(t, source, block[1], "code in %s differs from %s", guide, files)
		shown += strings.Count("\n"+block[1], "\nfunc ")
	}
	require.Equal(t, strings.Count(source, "\nfunc "), shown, "functions of %s in %s", files, guide)
}

// PostgreSQL returns a new schema on the server that SERIAL_POSTGRES_DSN names, or on the one at the usual port, and
// its DSN. With SERIAL_REQUIRE_SQL=1, a missing server is a failure.
func PostgreSQL(t testing.TB) (db *sql.DB, dsn string) {
	t.Helper()
	dsn = os.Getenv("SERIAL_POSTGRES_DSN")
	if dsn == "" {
		dsn = "postgres://postgres@127.0.0.1:5432/test?sslmode=disable"
	}
	server := open(t, "pgx", dsn)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := server.PingContext(ctx); err != nil {
		if os.Getenv("SERIAL_REQUIRE_SQL") == "1" {
			t.Fatalf("SERIAL_REQUIRE_SQL=1: %v", err)
		}
		t.Skipf("no PostgreSQL: %v", err)
	}
	schema := fmt.Sprintf("guides_%d_%d", os.Getpid(), time.Now().UnixNano())
	Exec(t, server, "CREATE SCHEMA "+schema)
	t.Cleanup(func() {
		_, err := server.Exec("DROP SCHEMA " + schema + " CASCADE")
		require.NoError(t, err)
	})
	separator := "?"
	if strings.Contains(dsn, "?") {
		separator = "&"
	}
	dsn += separator + "search_path=" + schema
	return open(t, "pgx", dsn), dsn
}

// SQLite returns a database in a new file. Under the race detector the test is skipped; see sqlite.go.
func SQLite(t testing.TB) *sql.DB {
	t.Helper()
	if !slices.Contains(sql.Drivers(), "sqlite") {
		t.Skip("SQLite is tested only without the race detector")
	}
	return open(t, "sqlite", "file:"+filepath.Join(t.TempDir(), "guide.db")+
		"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
}

func open(t testing.TB, driver, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Exec executes a statement.
func Exec(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), query, args...)
	require.NoError(t, err)
}

// Strings returns the only column of a query.
func Strings(t testing.TB, db *sql.DB, query string) (all []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var s string
		require.NoError(t, rows.Scan(&s))
		all = append(all, s)
	}
	require.NoError(t, rows.Err())
	return all
}

// Noon returns a zone in which it is about noon, so no test runs over midnight.
func Noon() *time.Location {
	return time.FixedZone("noon", (12-time.Now().UTC().Hour())*3600)
}

var unique atomic.Int64

// Unique returns a number that no other call in this process returns.
func Unique() int64 { return unique.Add(1) }
