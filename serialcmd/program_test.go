// The scripts in cmd/serial test the commands, including those of a service. The tests in this file need Go code for
// hooks, a register, a ledger that fails, and shells.
package serialcmd_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/internal/race"
	"github.com/dailyserial/serial/serialcmd"
	"github.com/dailyserial/serial/serialtest"
)

func TestMain(m *testing.M) {
	signal.Notify(make(chan os.Signal, 1), os.Interrupt) // starts a goroutine that must not belong to a bubble
	_, _ = net.LookupHost("localhost")                   // creates a channel that must not belong to a bubble
	os.Exit(m.Run())
}

var noon = time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)

// A process replaces the environment of the current process.
type process serialcmd.Setup

func (p *process) Apply(s *serialcmd.Setup) {
	s.Name, s.Args, s.Context = "orders-serial", p.Args, p.Context
	s.Stdin, s.Stdout, s.Stderr = p.Stdin, p.Stdout, p.Stderr
	s.Getenv = func(name string) string { panic(name + " is read") }
}

// exits runs the command of a service's generator, requires an exit code, and returns the output.
func exits(t *testing.T, gen *serial.Generator, want int, stdin, line string, opts ...serialcmd.Option) (
	stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	p := &process{Args: strings.Fields(line), Context: t.Context(), Stdin: strings.NewReader(stdin), Stdout: &out,
		Stderr: &errs}
	require.Equal(t, want, serialcmd.Main(gen, append([]serialcmd.Option{p}, opts...)...), "%s: %s%s", line, &out, &errs)
	return out.String(), errs.String()
}

// A ledger is a function that reserves numbers.
type ledger func(context.Context, serial.Reservation) (int64, error)

func (l ledger) Reserve(ctx context.Context, r serial.Reservation) (int64, error) { return l(ctx, r) }

// A register contains no explanations. It stores new ones, and returns failed.
type register struct {
	all    []serial.Explanation
	failed error
}

func (r *register) Explain(_ context.Context, e serial.Explanation) error {
	r.all = append(r.all, e)
	return r.failed
}

func (r *register) Explanations(context.Context, string, time.Time) iter.Seq2[serial.Explanation, error] {
	return func(yield func(serial.Explanation, error) bool) { yield(serial.Explanation{}, r.failed) }
}

// If a ledger fails, its own error must be the last line, unchanged. The line before it must contain the remedy of that
// error, or the advice to wait, and the command that takes the series out of its ledger.
func TestLedgerFails(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		var failed error
		gen, _ := serialtest.New(t, noon, serial.WithLedger(ledger(func(context.Context, serial.Reservation) (int64, error) {
			return 0, failed
		}), 10))
		const leave = "; or, to stop using it at the risk of duplicates, stop the service, remove WithLedger from it, and " +
			"run: serial takeover -leave-ledger -tz 'UTC' IS SEQ, where SEQ is the last sequence reserved in the ledger for " +
			"the current period, or 0\n"
		away := errors.New("no route to the database")
		for err, remedy := range map[error]string{
			away: "wait until its database works again", unfit{away}: "call CreateTable",
		} {
			failed = err
			_, stderr := exits(t, gen, 1, "", "next IS")
			require.True(t, strings.HasPrefix(stderr, "orders-serial: the ledger failed: "+remedy+leave), stderr)
			require.Regexp(t, away.Error()+`\n$`, stderr)
			require.Equal(t, 2, strings.Count(stderr, "\n"))
		}
		failed = serial.Reservation{}.Check("months", "") // a different calendar, so waiting would not help
		_, stderr := exits(t, gen, 1, "", "next PO")
		require.NotContains(t, stderr, "the ledger failed")

		failed = away
		stdout, stderr := exits(t, gen, 1, "AA202110240001\nIS202110240007\n", "import")
		require.Regexp(t, `^failed AA .*\nnot raised IS .*\n$`, stdout)
		require.Contains(t, stderr, "run: serial takeover -leave-ledger -tz 'UTC' AA SEQ, where")
	})
}

// An unfit error has a remedy, as the error of sqlledger for a missing table does.
type unfit struct{ error }

func (unfit) Remedy() string { return "call CreateTable" }

// If a register cannot store an explanation, the explanation must be printed. If a register cannot be read, the audit
// must fail.
func TestRegisterFails(t *testing.T) {
	gen, _ := serialtest.New(t, noon)
	r := &register{failed: errors.New("the register is down")}
	stdout, stderr := exits(t, gen, 1, "", "raise IS 9 -reason moved -by Bob", serialcmd.WithRegister(r))
	require.Regexp(t, `^next IS202110240010\nfirst,.*\n1,9,moved,Bob,[^,]*,false\n$`, stdout)
	require.Equal(t, "orders-serial: the explanation could not be stored; keep the printed lines: the register is down\n",
		stderr)
	require.Len(t, r.all, 1)
	require.NoError(t, r.all[0].Validate())
	require.Equal(t, "serial:IS", r.all[0].Series)
	exits(t, gen, 0, "", "raise IS 11", serialcmd.WithRegister(r)) // must not store the possible reason
	_, stderr = exits(t, gen, 1, "", "audit IS", serialcmd.WithRegister(r))
	require.Contains(t, stderr, "the register is down")
}

// If no replica confirms a raise, a failover may undo it. So the user's reason must not be stored.
func TestReasonOfUnconfirmedRaise(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		gen, _ := serialtest.New(t, noon, serial.WithReplicas(1, 100*time.Millisecond))
		r := new(register)
		stdout, stderr := exits(t, gen, 1, "", "raise IS 10 -reason moved -by Ada", serialcmd.WithRegister(r))
		require.Regexp(t, `\n1,10,raised,,.*,true\n$`, stdout)
		require.Contains(t, stderr, "not replicated")
		require.Empty(t, r.all)
	})
}

// Before Main returns, the generator's hooks must have received the unused numbers.
func TestFlush(t *testing.T) {
	var unused []serial.Explanation
	var l serialtest.Ledger
	gen, _ := serialtest.New(t, noon, serial.WithLedger(&l, 10), serial.WithHooks(serial.Hooks{
		Unused: func(_ context.Context, e serial.Explanation) {
			time.Sleep(time.Millisecond) // so that the hook takes longer than the command
			unused = append(unused, e)
		}}))
	exits(t, gen, 0, "", "next -n 10 IS") // uses a whole block
	_, err := l.Reserve(t.Context(), serial.Reservation{Series: "serial:IS", Period: "20211024",
		Calendar: gen.Scheme().Calendar(), Print: gen.Scheme().PrintMark(), N: 7})
	require.NoError(t, err)
	exits(t, gen, 0, "", "next IS") // the next block is not adjacent to the counter
	require.Len(t, unused, 1)
	require.Equal(t, serial.BlockSkipped, unused[0].Reason)
	require.Equal(t, []int64{11, 17}, []int64{unused[0].First, unused[0].Last})
}

// If a hook does not return, the skipped numbers must still be printed and stored.
func TestHookHangs(t *testing.T) {
	race.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		defer close(release)
		gen, _ := serialtest.New(t, noon, serial.WithHooks(serial.Hooks{Unused: func(context.Context, serial.Explanation) {
			time.AfterFunc(100*time.Millisecond, cancel) // like a signal, so that the command waits only for a second
			<-release
		}}))
		r := new(register)
		var out, errs bytes.Buffer
		p := &process{Args: strings.Fields("raise IS 5 -reason moved -by Ada"), Stdout: &out, Stderr: &errs, Context: ctx}
		require.Equal(t, 1, serialcmd.Main(gen, p, serialcmd.WithRegister(r)))
		require.Regexp(t, `first,last,.*\n1,5,moved,Ada,[^,]*,false\n$`, out.String())
		require.Contains(t, errs.String(), "gave up waiting until all unused numbers are reported")
		require.Len(t, r.all, 1)
	})
}

// In a printed command, the operator must have to insert the time zone, unless the name of the zone stands for the same
// zone in the command.
func TestPrintedZone(t *testing.T) {
	const insert = "-tz ZONE"
	for zone, want := range map[*time.Location]string{
		time.UTC: "-tz 'UTC'", time.Local: "-tz 'Local'", time.FixedZone("UTC", 0): "-tz 'UTC'",
		time.FixedZone("EST", 10*3600): insert, time.FixedZone("", 0): insert, time.FixedZone("UTC+8", 8*3600): insert,
	} {
		gen, _ := serialtest.New(t, noon, serial.WithLocation(zone), serial.WithLedger(new(serialtest.Ledger), 1))
		_, stderr := exits(t, gen, 2, "", "takeover -leave-ledger IS 1")
		require.Contains(t, stderr, "run: serial takeover -leave-ledger "+want+" IS SEQ, where ")
		require.Equal(t, want == insert,
			strings.Contains(stderr, "where ZONE is the IANA name of the service's time zone, and SEQ"))
	}
}

// A nil generator or register is a mistake in the program, so the functions must panic.
func TestNil(t *testing.T) {
	require.PanicsWithValue(t, "serialcmd: Main: the generator is nil", func() { serialcmd.Main(nil) })
	var none *register
	for _, r := range []serialcmd.Register{nil, none} {
		require.PanicsWithValue(t, "serialcmd: WithRegister: the register is nil", func() { serialcmd.WithRegister(r) })
	}
}

// Each shell must complete commands, flags and arguments of the program under its own name.
func TestCompletion(t *testing.T) {
	gen, _ := serialtest.New(t, noon)
	for shell, script := range map[string]string{
		"bash": `. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _orders_serial; printf '%s\n' "${COMPREPLY[@]}"`,
		"zsh": `compdef() { [[ $1 == _orders_serial && $2 == orders-serial ]] }; compadd() { shift; print -l -- "$@" }; ` +
			`_files() { }; . "$1"; shift; words=("$@"); CURRENT=$#; _orders_serial`,
		"fish": `source $argv[1]; complete -C (string join " " -- $argv[2..-1]) | string replace -r '\t.*' ''; true`,
	} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			stdout, _ := exits(t, gen, 0, "", "completion "+shell)
			if _, err := exec.LookPath(shell); err != nil {
				require.NotEqual(t, "1", os.Getenv("SERIAL_REQUIRE_SHELLS"), err)
				t.Skip(err)
			}
			file := t.TempDir() + "/completion"
			require.NoError(t, os.WriteFile(file, []byte(stdout), 0o600))
			for line, want := range map[string][]string{
				"p":                     {"parse", "peek", "prepare"},
				"-json p":               {"parse", "peek", "prepare"},
				"raise IS 7 -r":         {"-reason"},
				"-json takeover -l":     {"-leave-ledger"},
				"completion b":          {"bash"},
				"help t":                {"takeover", "template"},
				"version -j":            nil,
				"audit IS orders.csv x": nil,
			} {
				args := []string{"-c", script, shell, file, "orders-serial"}
				if shell == "fish" {
					args = slices.Delete(args, 2, 3)
				}
				out, err := exec.Command(shell, append(args, strings.Fields(line)...)...).CombinedOutput()
				require.NoError(t, err, "%s", out)
				last := line[strings.LastIndex(line, " ")+1:]
				got := slices.DeleteFunc(strings.Fields(string(out)), func(w string) bool { return !strings.HasPrefix(w, last) })
				slices.Sort(got)
				require.Equal(t, want, slices.Clip(append([]string(nil), got...)), line)
			}
		})
	}
}
