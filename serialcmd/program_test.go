package serialcmd_test

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dailyserial/serial"
	"github.com/dailyserial/serial/serialcmd"
	"github.com/dailyserial/serial/serialtest"
)

var noon = time.Date(2021, 10, 24, 12, 0, 0, 0, time.UTC)

// surroundings stand in for a process's.
type surroundings serialcmd.Setup

func (s *surroundings) Apply(c *serialcmd.Setup) {
	c.Name, c.Args, c.Stdin, c.Stdout, c.Stderr = "orders-serial", s.Args, s.Stdin, s.Stdout, s.Stderr
	c.Getenv = func(name string) string { panic(name + " is read") }
	c.Context = context.Background()
}

// during returns an option that ends the command with ctx.
func during(ctx context.Context) serialcmd.Option { return contextOption{ctx} }

type contextOption struct{ context.Context }

func (o contextOption) Apply(c *serialcmd.Setup) { c.Context = o.Context }

// A service has a generator and its own command.
type service struct {
	*serial.Generator
	redis  *serialtest.Redis
	ledger *serialtest.Ledger
	opts   []serialcmd.Option
}

// newService returns a service with a ledger, which cmd/serial cannot stand for.
func newService(t *testing.T, more ...serial.Option) *service {
	t.Helper()
	s := &service{redis: serialtest.NewRedis(t, noon), ledger: new(serialtest.Ledger)}
	s.Generator = s.generator(t, append([]serial.Option{serial.WithLedger(s.ledger, 10)}, more...)...)
	return s
}

func (s *service) generator(t *testing.T, opts ...serial.Option) *serial.Generator {
	t.Helper()
	opts = append([]serial.Option{serial.WithLocation(time.UTC), serial.WithMaxSkew(-1)}, opts...)
	gen, err := serial.New(s.redis.Client(), opts...)
	require.NoError(t, err)
	return gen
}

// exits runs a command line of the service's command, and requires an exit code.
func (s *service) exits(t *testing.T, want int, stdin string, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := serialcmd.Main(s.Generator, append([]serialcmd.Option{&surroundings{Args: args,
		Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs}}, s.opts...)...)
	require.Equal(t, want, code, "%q: %s%s", args, &out, &errs)
	return out.String(), errs.String()
}

// The command has the service's template, ledger and key, and no flags for settings.
func TestMainOfService(t *testing.T) {
	s := newService(t, serial.WithKeyPrefix("shop"), serial.WithTemplate("{type}-{date:yyMMdd}-{seq:5}"))
	stdout, stderr := s.exits(t, 0, "", "next", "-n", "2", "IS")
	require.Equal(t, "IS-211024-00001\nIS-211024-00002\n", stdout)
	require.Empty(t, stderr)
	number, err := s.Next(t.Context(), "IS") // from a block of its own
	require.NoError(t, err)
	require.Equal(t, "IS-211024-00003", number)
	stdout, _ = s.exits(t, 0, "", "-json", "peek", "IS")
	require.Equal(t, `{"number":"IS-211024-00003","type":"IS","start":"2021-10-24T00:00:00Z","seq":3}`+"\n", stdout)
	stdout, _ = s.exits(t, 0, "", "parse", "IS-211024-00003")
	require.Equal(t, "type IS\nstart 2021-10-24T00:00:00Z\nseq 3\n", stdout)
	stdout, _ = s.exits(t, 0, "", "template", "{type}{date:yyyyMMdd}{seq:3:base32}")
	require.Contains(t, stdout, "template   {type}{date:yyyyMMdd}{seq:3:base32}\nperiod     day\nsequences  001 to ZZZ; ")
	s.exits(t, 1, "", "template", "{type}{date:yyyy}{seq}")
	s.exits(t, 1, "", "template", "{type:x}{date:yyyyMMdd}{seq}")
	stdout, _ = s.exits(t, 0, "", "history", "IS")
	require.Contains(t, stdout, " 3 ")
	stdout, _ = s.exits(t, 0, "", "prepare", "IS")
	require.Equal(t, "next IS-211024-00004\n", stdout)
	stdout, _ = s.exits(t, 0, "", "raise", "IS", "40")
	require.Regexp(t, `^next IS-211024-00041\nfirst,last,reason,by,at,possible\n4,40,raised,,[^,]*,true\n$`, stdout)
	stdout, _ = s.exits(t, 0, "IS-211024-00050\n", "import", "-force")
	require.Contains(t, stdout, "raised IS in 24 October 2021: from 00040 to 00050")
	stdout, _ = s.exits(t, 3, "IS-211024-00001\n", "audit", "IS")
	require.Contains(t, stdout, "missing    49\n  00002-00050\n")
	stdout, _ = s.exits(t, 0, "", "help")
	require.True(t, strings.HasPrefix(stdout, "Usage: orders-serial COMMAND"))
	require.NotContains(t, stdout, "SERIAL_")
	stdout, _ = s.exits(t, 0, "", "help", "raise")
	require.True(t, strings.HasPrefix(stdout, "Usage: orders-serial raise [flags] TYPE SEQ\n"))
	var flags []string
	for _, match := range regexp.MustCompile(`(?m)^  (-\S+)`).FindAllStringSubmatch(stdout, -1) {
		flags = append(flags, match[1])
	}
	require.Equal(t, []string{"-reason", "-by", "-json"}, flags)

	for _, args := range [][]string{{"next", "-tz", "UTC", "IS"}, {"-redis", "redis://localhost", "next", "IS"},
		{"next", "-template", "{type}{seq}", "IS"}, {"peek", "-hidden-key", "f", "IS"}, {"next", "-shared", "IS"}, {"next"},
		{"takeover", "-leave-ledger", "IS", "99"}} {
		stdout, stderr = s.exits(t, 2, "", args...)
		require.Empty(t, stdout, args)
		require.Regexp(t, `^usage: orders-serial .*\n(orders-serial: .*\n)+$`, stderr)
	}
	require.Contains(t, stderr, "to leave it, stop the service, remove WithLedger from it, and run: "+
		"serial takeover -leave-ledger -tz 'UTC' "+
		"-template '{type}-{date:yyMMdd}-{seq:5}' -prefix 'shop' IS SEQ, where SEQ is")
	number, err = s.Next(t.Context(), "IS")
	require.NoError(t, err)
	require.Equal(t, "IS-211024-00051", number, "nothing was sent")
}

// With a shared counter and a template that prints no type, there is no TYPE.
func TestMainWithoutType(t *testing.T) {
	s := newService(t, serial.WithSharedCounter(), serial.WithTemplate("{date:yyyyMMdd}-{seq}"))
	stdout, _ := s.exits(t, 0, "", "next")
	require.Equal(t, "20211024-0001\n", stdout)
	s.exits(t, 2, "", "next", "IS")
	stdout, _ = s.exits(t, 0, "", "raise", "7")
	require.Contains(t, stdout, "next 20211024-0008\n")
}

// An error names the command that ends it: the program's own inside the program, PROGRAM in any other process of the
// service, and serial with flags if serial can stand for the generator.
func TestPrintedCommands(t *testing.T) {
	key := serial.WithHiddenSequence(bytes.Repeat([]byte{1}, 16))
	command := regexp.MustCompile(`run: (\S+) (.*) SEQ, where (.*SEQ is the last number used of 2021-10-24, or 0)`)
	for _, row := range []struct {
		name, program, flags string
		opts                 []serial.Option
	}{
		{"key", "PROGRAM", "", []serial.Option{key, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}")}},
		{"floor", "PROGRAM", "", []serial.Option{serial.WithFloor(noFloor)}},
		{"settings", "serial", "-tz 'UTC' -template '{type}-{date:yyMMdd}-{seq:5}' -start '5' -last '5000' -prefix 'shop' " +
			"-until 2021-12-31 -shared ",
			[]serial.Option{serial.WithTemplate("{type}-{date:yyMMdd}-{seq:5}"), serial.WithKeyPrefix("shop"),
				serial.WithStart(5), serial.WithLast(5000), serial.WithUntil(serial.On(2021, 12, 31)),
				serial.WithSharedCounter()}},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := &service{redis: serialtest.NewRedis(t, noon)}
			s.Generator = s.generator(t, row.opts...)
			_, err := s.generator(t, append(slices.Clip(row.opts), serial.WithFloor(noFloor))...).Next(t.Context(), "IS")
			require.NoError(t, err)
			ctx := t.Context()
			for _, k := range s.redis.Client().Keys(ctx, "*2021*").Val() {
				require.NoError(t, s.redis.Client().Del(ctx, k).Err())
			}
			_, err = s.Peek(ctx, "IS")
			require.ErrorIs(t, err, serial.ErrCounterLost)
			found := command.FindStringSubmatch(err.Error())
			require.NotNil(t, found, err)
			require.Equal(t, []string{row.program, row.flags}, []string{found[1],
				strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(found[2], "raise"), " "), "IS")})
			require.Equal(t, row.program == "PROGRAM",
				strings.HasPrefix(found[3], "PROGRAM is the service's own command (see package serialcmd), and "))

			_, stderr := s.exits(t, 1, "", "peek", "IS")
			found = command.FindStringSubmatch(stderr)
			require.NotNil(t, found, stderr)
			require.Equal(t, "orders-serial", found[1])
			stdout, _ := s.exits(t, 0, "", append(strings.Fields(found[2]), "41")...)
			next, _, _ := strings.Cut(strings.TrimPrefix(stdout, "next "), "\n")
			number, err := s.Parse(next)
			require.NoError(t, err)
			require.EqualValues(t, 42, number.Seq)
			got, err := s.Next(ctx, "IS")
			require.NoError(t, err)
			require.Equal(t, next, got)
		})
	}
}

func noFloor(context.Context, string, time.Time) (int64, error) { return 0, nil }

// A full day's error names a wider template, which takes effect at once.
func TestFullDay(t *testing.T) {
	for text, wider := range map[string]string{
		"{type}{date:yyyyMMdd}{seq}":                     "{type}{date:yyyyMMdd}{seq:5}",
		"{{seq}}{seq:1}{type}{date:yyyyMMdd}-":           "{{seq}}{seq:2}{type}{date:yyyyMMdd}-",
		"{type}{date:yyyyMMdd}{seq:2:base32}":            "{type}{date:yyyyMMdd}{seq:3:base32}",
		"{type}{date:yyyyMMdd}{seq:2:alpha}":             "{type}{date:yyyyMMdd}{seq:3:alpha}",
		"{type}{date:yyyyMMdd}{seq:15}":                  "",
		"{seq:9:letters}/{type}{date:yyyyMMdd}":          "",
		"{type}{date:yyyy-'0'MMM-dd}{seq:1}-{check:s10}": "",
	} {
		s := &service{redis: serialtest.NewRedis(t, noon)}
		s.Generator = s.generator(t, serial.WithTemplate(text))
		_, last := s.Scheme().Limits()
		require.NoError(t, s.Raise(t.Context(), "IS", last))
		_, stderr := s.exits(t, 1, "", "next", "IS")
		require.Contains(t, stderr, "numbers exhausted")
		found := regexp.MustCompile(`a wider template, such as (.*), takes effect at once`).FindStringSubmatch(stderr)
		if wider == "" {
			require.Nil(t, found, stderr)
			require.Contains(t, stderr, "; the template can print no wider sequence, so use another type")
			continue
		}
		require.NotNil(t, found, stderr)
		require.Equal(t, wider, found[1])
		number, err := s.generator(t, serial.WithTemplate(found[1])).NextNumber(t.Context(), "IS")
		require.NoError(t, err)
		require.Equal(t, last+1, number.Seq)
	}
}

// A ledger's own error comes last and unchanged, after what ends it.
func TestLedgerFails(t *testing.T) {
	s := newService(t)
	s.exits(t, 0, "", "next", "-n", "10", "IS")
	away := errors.New("no route to the database")
	failing := &service{redis: s.redis}
	failing.Generator = s.generator(t, serial.WithLedger(ledger(func(context.Context, serial.Reservation) (int64, error) {
		return 0, away
	}), 10))
	stdout, stderr := failing.exits(t, 1, "", "next", "IS")
	require.Empty(t, stdout)
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	leave := "; or, to leave it at the risk of duplicates, stop the service, remove WithLedger from it, and run: serial " +
		"takeover -leave-ledger -tz 'UTC' IS SEQ, where SEQ is " +
		"the last sequence set aside (reserved) in the ledger for the current period, or 0"
	require.Contains(t, lines[0], "orders-serial: the ledger failed: wait for its database"+leave)
	require.Len(t, lines, 2)
	require.Contains(t, lines[1], away.Error())
	_, stderr = failing.exits(t, 0, "", "peek", "IS")
	require.Empty(t, stderr, "the ledger is not asked")

	away = unfit{away} // no waiting helps
	_, stderr = failing.exits(t, 1, "", "next", "IS")
	require.Contains(t, stderr, "orders-serial: the ledger failed: call CreateTable"+leave)
	require.True(t, strings.HasSuffix(strings.TrimSpace(stderr), away.Error()), stderr)

	other := &service{redis: s.redis} // another calendar: no waiting helps
	months := func(_ context.Context, r serial.Reservation) (int64, error) { return 0, r.Check("months", r.Print) }
	other.Generator = s.generator(t, serial.WithLedger(ledger(months), 10))
	_, stderr = other.exits(t, 1, "", "next", "PO")
	require.NotContains(t, stderr, "wait for its database")
}

// An unfit error says what ends it, as sqlledger's does for a missing table.
type unfit struct{ error }

func (unfit) Remedy() string { return "call CreateTable" }

type ledger func(context.Context, serial.Reservation) (int64, error)

func (l ledger) Reserve(ctx context.Context, r serial.Reservation) (int64, error) { return l(ctx, r) }

// A register keeps explanations in memory.
type register struct {
	all    []serial.Explanation
	failed error
}

func (r *register) Explain(_ context.Context, e serial.Explanation) error {
	if r.failed == nil {
		r.all = append(r.all, e)
	}
	return r.failed
}

func (r *register) Explanations(_ context.Context, series string, start time.Time,
) iter.Seq2[serial.Explanation, error] {
	return func(yield func(serial.Explanation, error) bool) {
		for _, e := range r.all {
			if e.Series == series && (start.IsZero() || e.Start.Equal(start)) && !yield(e, nil) {
				return
			}
		}
		if r.failed != nil {
			yield(serial.Explanation{}, r.failed)
		}
	}
}

// Raise and takeover store a person's explanation in the register, which audit reads before the file.
func TestRegister(t *testing.T) {
	s, r := newService(t), new(register)
	s.opts = []serialcmd.Option{serialcmd.WithRegister(r)}
	s.exits(t, 0, "", "next", "IS")
	s.exits(t, 0, "", "raise", "IS", "3")
	require.Empty(t, r.all, "the reason is only possible")
	stdout, _ := s.exits(t, 0, "", "raise", "IS", "5", "-reason", "printed by hand", "-by", "Ada")
	require.Regexp(t, `\n4,5,printed by hand,Ada,[^,]*,false\n$`, stdout)
	stdout, _ = s.exits(t, 0, "", "takeover", "-json", "IS", "7", "-reason", "moved", "-by", "Bob")
	require.Regexp(t, `"skipped":\{"first":6,"last":7,"reason":"moved","by":"Bob","at":"[^"]*","possible":false\}`, stdout)
	require.Len(t, r.all, 2)
	for _, e := range r.all {
		require.NoError(t, e.Validate())
		require.Equal(t, []any{"serial:IS", "IS", noon.Truncate(24 * time.Hour), false, false},
			[]any{e.Series, e.Type, e.Start.UTC(), e.Unused, e.Possible})
	}
	stdout, _ = s.exits(t, 3, "IS202110240001\n", "audit", "IS")
	require.Regexp(t, `(?s)explained  4\n  0004-0005 printed by hand \(Ada, .*\n  0006-0007 moved \(Bob, `, stdout)
	require.Contains(t, stdout, "not explained 2\n  0002-0003\n")
	file := t.TempDir() + "/reasons.csv"
	require.NoError(t, os.WriteFile(file, []byte("first,last,reason,by\n2,4,void,Eve\n"), 0o600))
	stdout, _ = s.exits(t, 0, "IS202110240001\n", "audit", "IS", "-explained", file)
	require.Regexp(t, `(?s)  0002-0004 void \(Eve, .*  0005 printed by hand \(Ada`, stdout)

	r.failed = errors.New("the register is away")
	stdout, stderr := s.exits(t, 1, "", "raise", "IS", "9", "-reason", "moved", "-by", "Bob")
	require.Regexp(t, `^next IS202110240010\nfirst,.*\n8,9,moved,Bob,[^,]*,false\n$`, stdout)
	require.Contains(t, stderr, "the explanation could not be stored, so keep what is printed here: "+
		"the register is away\n")
	require.NotContains(t, stderr, "the ledger failed")
	s.exits(t, 0, "", "raise", "IS", "11")
	_, stderr = s.exits(t, 1, "IS202110240001\n", "audit", "IS")
	require.Contains(t, stderr, "the register is away")
}

// With -all, one reading of the input accounts for every period that is kept, and explanations come from the register
// and from a file in which each line has a number.
func TestAuditOfAllPeriods(t *testing.T) {
	s, r := newService(t, serial.WithRetention(9)), new(register)
	s.exits(t, 0, "", "next", "-n", "3", "IS")
	s.redis.SetTime(noon.AddDate(0, 0, 2))
	s.exits(t, 0, "", "next", "-n", "3", "IS")
	const input = "IS202110240001\nIS202110240003\nIS202110260001\nIS202110260003\n"
	stdout, _ := s.exits(t, 3, input+"IS2O2110260002\nPO202110260002\n", "audit", "-all", "IS")
	require.Contains(t, stdout, "IS in 2 periods\n"+
		"26 October 2021  issued 3, used 2, missing 1: not all numbers are accounted for\n"+
		"24 October 2021  issued 3, used 2, missing 1: not all numbers are accounted for\n"+
		"\n26 October 2021 (from 2021-10-26T00:00:00Z)\nissued     3: 0001 to 0003\nused       2\nmissing    1\n  0002\n")
	require.Contains(t, stdout, "without    1\n  25 October 2021\n")
	require.Contains(t, stdout, "foreign    1\n  \"IS2O2110260002\"\nothers     1, of other types or earlier periods\n")

	n, err := s.Scheme().Parse("IS202110240002")
	require.NoError(t, err)
	e, err := s.Scheme().Explanation(n, n, "void", "Ada")
	require.NoError(t, err)
	require.NoError(t, r.Explain(t.Context(), e))
	s.opts = []serialcmd.Option{serialcmd.WithRegister(r)}
	file := t.TempDir() + "/reasons.csv"
	require.NoError(t, os.WriteFile(file, []byte("number,reason,by\nIS202110260002,printed twice,Bob\n"), 0o600))
	stdout, _ = s.exits(t, 0, input, "audit", "-all", "IS", "-explained", file)
	require.Contains(t, stdout, "IS in 2 periods: all numbers are accounted for\n")
	stdout, _ = s.exits(t, 3, input, "audit", "-all", "-json", "IS")
	lines := strings.Split(stdout, "\n")
	require.Len(t, lines, 4)
	require.Contains(t, lines[0], `"start":"2021-10-26T00:00:00Z","first":1,"last":3,"count":2,`+
		`"missing":[{"first":2,"last":2}]`)
	require.Contains(t, lines[1], `"reason":"void","by":"Ada"`)
	require.JSONEq(t, `{"without": ["2021-10-25T00:00:00Z"], "withoutCount": 1, "foreign": [], "foreignCount": 0,
		"otherCount": 0}`, lines[2])
	require.NoError(t, os.WriteFile(file, []byte("first,last,reason\n1,2,void\n"), 0o600))
	_, stderr := s.exits(t, 1, input, "audit", "-all", "IS", "-explained", file)
	require.Contains(t, stderr, "line 2: no number; with -all, each line needs one")
	_, stderr = s.exits(t, 2, input, "audit", "-all", "-date", "2021-10-24", "IS")
	require.Contains(t, stderr, "-all and -date: want one of them")

	// A text that is no number is found in an audit of one period, too.
	s.exits(t, 3, input+"x\n", "audit", "-date", "2021-10-24", "IS")
	stdout, _ = s.exits(t, 3, "IS202110240001\nIS202110240003\nx\n", "audit", "-date", "2021-10-24", "IS")
	require.Contains(t, stdout, "foreign    1\n  \"x\"\n")
}

// After everything was lost, what a person says about a raise is not stored about numbers that the ledger had set aside.
func TestReasonAboveBlocks(t *testing.T) {
	s, r := newService(t), new(register)
	s.opts = []serialcmd.Option{serialcmd.WithRegister(r)}
	s.exits(t, 0, "", "next", "-n", "8", "IS")
	s.redis = serialtest.NewRedis(t, noon)
	s.Generator = s.generator(t, serial.WithLedger(s.ledger, 10))
	stdout, stderr := s.exits(t, 0, "", "raise", "IS", "20", "-reason", "moved", "-by", "Ada")
	require.Regexp(t, `\n11,20,moved,Ada,[^,]*,false\n$`, stdout)
	require.Contains(t, stderr, "the numbers of blocks that the ledger had set aside are not explained")
	stdout, _ = s.exits(t, 3, "IS202110240001\n", "audit", "IS")
	require.Contains(t, stdout, "not explained 9\n  0002-0010")
}

// Replicas do not confirm a raise. A failover may undo it, so what a person says about these numbers is not stored.
func TestReasonOfAnUnconfirmedRaise(t *testing.T) {
	s, r := newService(t), new(register)
	s.opts = []serialcmd.Option{serialcmd.WithRegister(r)}
	s.Generator = s.generator(t, serial.WithReplicas(1, 100*time.Millisecond))
	stdout, stderr := s.exits(t, 1, "", "raise", "IS", "10", "-reason", "moved", "-by", "Ada")
	require.Contains(t, stdout, "\n1,10,raised,,")
	require.Contains(t, stdout, "Z,true\n")
	require.Contains(t, stderr, "not replicated")
	require.Empty(t, r.all)
}

// The day was opened before another start was set. The counter rises even to numbers below that start.
func TestImportBelowTheStart(t *testing.T) {
	for last, next := range map[string]string{"0": "IS202110240006\n", "2": "IS202110240006\n", "7": "IS202110240008\n"} {
		s := newService(t)
		s.Generator = s.generator(t)
		s.exits(t, 0, "", "raise", "IS", last)
		s.Generator = s.generator(t, serial.WithStart(1000))
		s.exits(t, 0, "IS202110240001\nIS202110240005\n", "import")
		stdout, _ := s.exits(t, 0, "", "next", "IS")
		require.Equal(t, next, stdout, last)
	}
}

// Before Main returns, the generator's hooks have received the numbers that nobody got.
func TestFlush(t *testing.T) {
	var unused []serial.Explanation
	s := newService(t, serial.WithHooks(serial.Hooks{Unused: func(_ context.Context, e serial.Explanation) {
		time.Sleep(time.Millisecond) // slower than the command
		unused = append(unused, e)
	}}))
	s.exits(t, 0, "", "next", "-n", "10", "IS") // a block
	series, err := s.Scheme().Series("IS")
	require.NoError(t, err)
	_, err = s.ledger.Reserve(t.Context(), serial.Reservation{Series: series, Period: "20211024",
		Calendar: s.Scheme().Calendar(), Print: s.Scheme().PrintMark(), N: 7})
	require.NoError(t, err)
	s.exits(t, 0, "", "next", "IS") // the next block does not follow on from the counter
	require.Len(t, unused, 1)
	require.Equal(t, serial.BlockSkipped, unused[0].Reason)
	require.Equal(t, []int64{11, 17}, []int64{unused[0].First, unused[0].Last})
}

// If a hook does not return, what was skipped is still known, printed and stored.
func TestHookHangs(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	release := make(chan struct{})
	s, r := newService(t, serial.WithHooks(serial.Hooks{Unused: func(context.Context, serial.Explanation) {
		// As a signal does, so that the command waits a second and not ten. By then Raise must have returned.
		time.AfterFunc(time.Second, cancel)
		<-release
	}})), new(register)
	s.opts = []serialcmd.Option{serialcmd.WithRegister(r), during(ctx)}
	defer close(release)
	stdout, stderr := s.exits(t, 1, "", "raise", "IS", "5", "-reason", "moved", "-by", "Ada")
	require.Regexp(t, `first,last,.*\n1,5,moved,Ada,[^,]*,false\n$`, stdout)
	require.Contains(t, stderr, "gave up waiting until all unused numbers are reported")
	require.Len(t, r.all, 1)
}

// If the ledger fails during an import, the printed command names the type that failed.
func TestLedgerFailsDuringImport(t *testing.T) {
	s := newService(t)
	failing := &service{redis: s.redis}
	failing.Generator = s.generator(t, serial.WithLedger(ledger(func(context.Context, serial.Reservation) (int64, error) {
		return 0, errors.New("no route")
	}), 10))
	stdout, stderr := failing.exits(t, 1, "AA202110240001\nIS202110240007\n", "import")
	require.Regexp(t, `^failed AA .*\nnot raised IS .*\n$`, stdout)
	require.Contains(t, stderr, "run: serial takeover -leave-ledger -tz 'UTC' AA SEQ, where")
	require.Contains(t, stderr, "0 types raised before AA, and none after it\n")
}

// What raise prints is a file of explanations as it is, also if several are joined.
func TestPrintedExplanations(t *testing.T) {
	s := newService(t)
	s.exits(t, 0, "", "next", "IS")
	var file strings.Builder
	for _, seq := range []string{"3", "6"} {
		stdout, _ := s.exits(t, 0, "", "raise", "IS", seq, "-reason", "moved", "-by", "Ada")
		file.WriteString(stdout)
	}
	name := t.TempDir() + "/reasons.csv"
	require.NoError(t, os.WriteFile(name, []byte(file.String()), 0o600))
	s.exits(t, 0, "IS202110240001\n", "audit", "IS", "-explained", name)
}

// If the name of the time zone means another zone to the command, or none, the operator fills it in.
func TestPrintedZone(t *testing.T) {
	const fill = "-tz ZONE"
	for zone, want := range map[*time.Location]string{
		time.UTC: "-tz 'UTC'", time.Local: "-tz 'Local'", time.FixedZone("UTC", 0): "-tz 'UTC'",
		time.FixedZone("EST", 10*3600): fill, time.FixedZone("", 0): fill, time.FixedZone("UTC+8", 8*3600): fill,
	} {
		s := &service{redis: serialtest.NewRedis(t, noon)}
		s.Generator = s.generator(t, serial.WithLocation(zone), serial.WithRetention(3))
		_, err := s.Next(t.Context(), "IS")
		require.NoError(t, err)
		for _, key := range s.redis.Client().Keys(t.Context(), "*2021*").Val() {
			require.NoError(t, s.redis.Client().Del(t.Context(), key).Err())
		}
		_, err = s.Next(t.Context(), "IS")
		require.ErrorIs(t, err, serial.ErrCounterLost)
		require.Contains(t, err.Error(), "run: serial raise "+want+" -retention '3' IS SEQ, where")
		require.Equal(t, want == fill,
			strings.Contains(err.Error(), "where ZONE is the IANA name of the service's time zone, and SEQ is"), err)
		_, stderr := s.exits(t, 1, "", "next", "IS")
		require.Contains(t, stderr, "run: orders-serial raise IS SEQ, where SEQ is")
	}
	s := &service{redis: serialtest.NewRedis(t, noon)}
	s.Generator = s.generator(t, serial.WithLocation(time.FixedZone("EST", 10*3600)),
		serial.WithLedger(new(serialtest.Ledger), 1))
	_, stderr := s.exits(t, 2, "", "takeover", "-leave-ledger", "IS", "1")
	require.Contains(t, stderr, "-tz ZONE IS SEQ, where ZONE is the IANA name of the service's time zone, and SEQ is")
}

// The printed command that leaves a ledger needs the key that hides sequences.
func TestPrintedKey(t *testing.T) {
	s := newService(t, serial.WithTemplate("{type}{date:yyyyMMdd}{seq:6}"),
		serial.WithHiddenSequence(bytes.Repeat([]byte{1}, 16)))
	_, stderr := s.exits(t, 2, "", "takeover", "-leave-ledger", "IS", "1")
	require.Contains(t, stderr, "-template '{type}{date:yyyyMMdd}{seq:6}' -hidden-key FILE IS SEQ, where "+
		"FILE has the key that hides sequences, and SEQ is the last sequence set aside (reserved) in the ledger for ")
}

// The command never prints a URL, which may have a password, and says that it has no flags for settings.
func TestMistypedURL(t *testing.T) {
	s := newService(t)
	for _, args := range [][]string{{"redis://u:secret@h", "next", "IS"}, {"next", "redis://u:secret@h"},
		{"next", "-n", "redis://u:secret@h", "IS"}, {"-redis", "redis://u:secret@h", "next", "IS"}} {
		stdout, stderr := s.exits(t, 2, "", args...)
		require.NotContains(t, stdout+stderr, "secret", args)
	}
	_, stderr := s.exits(t, 2, "", "-tz", "UTC", "next", "IS")
	require.Contains(t, stderr, "no command has a flag -tz; this program has the service's settings\n")
	_, stderr = s.exits(t, 2, "", "peek", "-x")
	require.Contains(t, stderr, "peek has no flag -x; write -- before an argument that begins with -\n")
}

func TestNil(t *testing.T) {
	require.PanicsWithValue(t, "serialcmd: Main: the generator is nil", func() { serialcmd.Main(nil) })
	var none *register
	for _, r := range []serialcmd.Register{nil, none} {
		require.PanicsWithValue(t, "serialcmd: WithRegister: the register is nil", func() { serialcmd.WithRegister(r) })
	}
}

// Each shell completes commands, flags and arguments of the program by its own name.
func TestCompletion(t *testing.T) {
	s := newService(t)
	ask := map[string]string{
		"bash": `. "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _orders_serial; printf '%s\n' "${COMPREPLY[@]}"`,
		"zsh": `compdef() { [[ $1 == _orders_serial && $2 == orders-serial ]] }; compadd() { shift; print -l -- "$@" }; ` +
			`_files() { }; . "$1"; shift; words=("$@"); CURRENT=$#; _orders_serial`,
		"fish": `source $argv[1]; complete -C (string join " " -- $argv[2..-1]) | string replace -r '\t.*' ''; true`,
	}
	for shell, script := range ask {
		t.Run(shell, func(t *testing.T) {
			stdout, _ := s.exits(t, 0, "", "completion", shell)
			if _, err := exec.LookPath(shell); err != nil {
				require.NotEqual(t, "1", os.Getenv("SERIAL_REQUIRE_SHELLS"), err)
				t.Skip(err)
			}
			file := t.TempDir() + "/completion"
			require.NoError(t, os.WriteFile(file, []byte(stdout), 0o600))
			complete := func(words ...string) []string {
				args := []string{"-c", script}
				if shell != "fish" {
					args = append(args, shell)
				}
				out, err := exec.Command(shell, append(append(args, file, "orders-serial"), words...)...).CombinedOutput()
				require.NoError(t, err, "%s", out)
				last := words[len(words)-1]
				return slices.DeleteFunc(strings.Fields(string(out)), func(w string) bool { return !strings.HasPrefix(w, last) })
			}
			require.ElementsMatch(t, []string{"peek", "prepare", "parse"}, complete("p"))
			require.ElementsMatch(t, []string{"peek", "prepare", "parse"}, complete("-json", "p"))
			require.ElementsMatch(t, []string{"-reason"}, complete("raise", "IS", "7", "-r"))
			require.ElementsMatch(t, []string{"-leave-ledger"}, complete("-json", "takeover", "-l"))
			require.ElementsMatch(t, []string{"bash"}, complete("completion", "b"))
			require.ElementsMatch(t, []string{"takeover", "template"}, complete("help", "t"))
			require.Empty(t, complete("version", "-j"))
		})
	}
	s.exits(t, 2, "", "completion", "tcsh")
}
