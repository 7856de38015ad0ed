package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial/examples/orders/internal/numbers"
	"github.com/dailyserial/serial/internal/redistest"
	_ "github.com/dailyserial/serial/serialcmd" // see build
)

// An evening is what an operator sees of the service. The environment is the service's, as it is in a runbook.
type evening struct {
	*process                   // running, or the last one that was
	all      []*process        // every process of the evening
	issued   map[string]string // the key of each number
	redis    *redistest.Server
}

// Whatever stops the service at night is ended by what the service's log or its command prints.
func TestEvening(t *testing.T) {
	redisServer := redistest.Start(t)
	programs := build(t)
	t.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	require.Contains(t, shell(t, 1, "ORDERS_REDIS_URL= orders-serial next IS"), "ORDERS_REDIS_URL is not set")
	t.Setenv("ORDERS_REDIS_URL", "redis://"+redisServer.Addr())
	t.Setenv("SERIAL_REDIS_URL", "redis://"+redisServer.Addr())
	t.Setenv("ORDERS_TZ", noon.String())
	for _, tt := range []struct {
		name string
		test func(t *testing.T, e *evening)
	}{
		{"wrong zone", wrongZone},
		{"lost counter", lostCounter},
		{"full day", fullDay},
		{"ledger returns", ledgerReturns},
		{"ledger is gone", ledgerGone},
	} {
		t.Run(tt.name, func(t *testing.T) {
			each(t, func(t *testing.T, fresh func(t *testing.T) string) {
				require.NoError(t, redisServer.Do("FLUSHALL").Err())
				t.Setenv("ORDERS_DATABASE", fresh(t))
				e := &evening{redis: redisServer, issued: map[string]string{}}
				tt.test(t, e)
				// A command that fails may end before it has released its lock, which then expires.
				require.Eventually(t, func() bool {
					return len(redisServer.Do("KEYS", "*:lock").Val().([]any)) == 0
				}, 10*time.Second, 10*time.Millisecond)
				e.order(t, "refused") // a customer tries again
				e.order(t, "last")
				for _, p := range e.all {
					require.NotContains(t, p.journal.String(), "was issued twice")
				}
			})
		})
	}
}

// build builds the service's command and cmd/serial, and returns their folder. go test does not know that the test needs
// them, so an import and a read of the folder keep it from reporting an old result.
func build(t *testing.T) string {
	t.Helper()
	_, err := os.ReadDir("cmd/orders-serial")
	require.NoError(t, err)
	programs := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", programs+"/", "./cmd/orders-serial",
		"github.com/dailyserial/serial/cmd/serial").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return programs
}

// Another process with another zone has opened the day.
func wrongZone(t *testing.T, e *evening) {
	t.Setenv("ORDERS_TZ", zoneOf(13).String())
	e.start(t)
	e.order(t, "astray")
	stray := e.Server
	t.Setenv("ORDERS_TZ", noon.String())
	e.start(t)
	line := e.command(t, e.refuses(t))
	stray.Close()
	shell(t, 0, line)
}

// The ledger was turned on after the loss, so it does not know what was issued before.
func lostCounter(t *testing.T, e *evening) {
	t.Setenv("ORDERS_PROTECT", "floor")
	e.start(t)
	e.order(t, "first")
	day := e.order(t, "second")[2:10]
	e.Close()
	require.NoError(t, e.redis.Do("DEL", "serial:{IS}:"+day).Err())
	t.Setenv("ORDERS_PROTECT", "ledger")
	e.start(t)
	shell(t, 0, e.command(t, e.refuses(t)))
}

// The day has no numbers left. The orders of the day can still be read after the template was widened.
func fullDay(t *testing.T, e *evening) {
	e.start(t)
	first := e.order(t, "first")
	shell(t, 0, "orders-serial raise IS 9998")
	e.order(t, "9999")
	wider := regexp.MustCompile(`a wider template, such as (\S+), takes effect at once`)
	found := wider.FindStringSubmatch(e.refuses(t))
	require.NotNil(t, found, e.journal)
	e.Close()
	t.Setenv("ORDERS_TEMPLATE", found[1])
	e.start(t)
	require.Equal(t, first[:10]+"10000", e.order(t, "10000"))
	a, err := e.send(t.Context(), "GET", "/orders/"+first, from(ada.Customer), "")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, a.status)
}

// The database has lost the ledger's table, and gets it back.
func ledgerReturns(t *testing.T, e *evening) {
	e.loseLedger(t)
	require.Contains(t, shell(t, 1, "orders-serial next IS"),
		"the ledger failed: the table serial_ledger does not exist: call CreateTable")
	_, err := e.orders.db.Exec("ALTER TABLE lost RENAME TO serial_ledger")
	require.NoError(t, err)
}

// The ledger's table is gone for good, so the service does without a ledger for the rest of the day.
func ledgerGone(t *testing.T, e *evening) {
	e.loseLedger(t)
	line := e.command(t, shell(t, 1, "orders-serial next IS"))
	e.Close()
	shell(t, 0, line)
	t.Setenv("ORDERS_PROTECT", "floor")
	e.start(t)
}

// start starts the service.
func (e *evening) start(t *testing.T) {
	t.Helper()
	e.process = startWith(t, numbers.FromEnvironment())
	e.all = append(e.all, e.process)
}

// order places an order and returns its number.
func (e *evening) order(t *testing.T, key string) string {
	t.Helper()
	number := e.must(t, http.StatusCreated, key, ada).Number
	require.NotContains(t, e.issued, number)
	e.issued[number] = key
	return number
}

// refuses requires that the service issues no numbers until somebody does something, and returns the end of its log.
func (e *evening) refuses(t *testing.T) string {
	t.Helper()
	logged := len(e.journal.String())
	require.Empty(t, e.must(t, http.StatusServiceUnavailable, "refused", ada).header.Get("Retry-After"))
	return e.journal.String()[logged:]
}

// loseLedger renames the ledger's table. The service notices when it has used up what is set aside.
func (e *evening) loseLedger(t *testing.T) {
	t.Helper()
	e.start(t)
	e.order(t, "first")
	_, err := e.orders.db.Exec("ALTER TABLE serial_ledger RENAME TO lost")
	require.NoError(t, err)
	for i := range 99 {
		e.order(t, fmt.Sprint(i))
	}
	e.must(t, http.StatusServiceUnavailable, "refused", ada)
}

var printed = regexp.MustCompile(`run: ([^\n]* SEQ), where `)

// command returns the command line in a text. SEQ is the last sequence in the table.
func (e *evening) command(t *testing.T, text string) string {
	t.Helper()
	found := printed.FindStringSubmatch(text)
	require.NotNil(t, found, text)
	var last string
	require.NoError(t, e.orders.db.QueryRowContext(t.Context(), "SELECT max(seq) FROM orders").Scan(&last))
	return strings.TrimSuffix(found[1], "SEQ") + last
}

// shell runs a line in a shell, requires its exit code, and returns what it printed.
func shell(t *testing.T, code int, line string) string {
	t.Helper()
	sh := exec.CommandContext(t.Context(), "sh", "-c", line)
	out, _ := sh.CombinedOutput() // its error says no more than the exit code
	require.Equal(t, code, sh.ProcessState.ExitCode(), "%s\n%s", line, out)
	return string(out)
}
