package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
)

// Numbers are issued in batches of 100,000. Each batch must be printed before the next one is requested.
func TestBatches(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("issues 250,000 numbers")
	}
	_, e, day := issued(t, 0)
	next := []string{"next", "-template", "{type}{date:yyyyMMdd}{seq:6}", "-n", "150000", "IS"}
	numbers := func(first, last int) string {
		var b strings.Builder
		for seq := first; seq <= last; seq++ {
			fmt.Fprintf(&b, "IS%s%06d\n", day, seq)
		}
		return b.String()
	}
	stdout, stderr := e.exits(t, 0, next...)
	require.True(t, numbers(1, 150_000) == stdout) // not Equal: it would print both
	require.Empty(t, stderr)
	e.exits(t, 0, "raise", next[1], next[2], "IS", "850000") // enough numbers are left for one batch, but not for two
	stdout, stderr = e.exits(t, 1, next...)
	require.True(t, numbers(850_001, 950_000) == stdout)
	require.Regexp(t, `^serial: numbers exhausted: .*; 100000 of 150000 numbers were printed\n$`, stderr)
}

// A fullDisk accepts only as many bytes as it has room for.
type fullDisk struct{ room int }

func (d *fullDisk) Write(b []byte) (int, error) {
	n := min(len(b), d.room)
	if d.room -= n; n < len(b) {
		return n, errors.New("no space left")
	}
	return n, nil
}

// If the output cannot be written, every command must fail, and the error must contain the numbers that were issued or
// skipped.
func TestOutputFails(t *testing.T) {
	m, e, day := issued(t, 0)
	const general = "the output could not be written"
	wide := "-template={type}{date:yyyyMMdd}{seq:6}"
	for _, row := range []struct {
		says string
		args []string
	}{
		{"the 100000 numbers from IS" + day + "000001 to IS" + day + "100000 were issued but could not all be written",
			[]string{"next", "-n", "250000", "IS", wide}},
		{"the number PO" + day + "0001 was issued but could not be written", []string{"next", "PO"}},
		{"the number PO" + day + "0002 was issued but could not be written", []string{"next", "-once", "a", "PO"}},
		{"the 2 numbers from PO" + day + "0003 to PO" + day + "0004 were issued but could not all be written",
			[]string{"next", "-n", "2", "-json", "PO"}},
		{"raise succeeded and skipped 5 to 7, but " + general, []string{"raise", "PO", "7"}},
		{"prepare succeeded, but " + general, []string{"prepare", "-json", "PO"}},
		{general, []string{"peek", "PO"}},
		{general, []string{"history", "-json", "PO"}},
		{general, []string{"audit", "PO"}},
		{general, []string{"import", "PO"}},
		{general, []string{"version"}},
		{general, []string{"parse", "IS202110240001"}},
		{general, []string{"template", "{type}{date:yyyyMMdd}{seq}"}},
		{general, []string{"help"}},
	} {
		var errs bytes.Buffer
		code := start(t.Context(), e, row.args, strings.NewReader("PO"+day+"0001"), &fullDisk{room: 5}, &errs)
		require.Equal(t, 1, code, row.args)
		require.True(t, strings.HasSuffix(errs.String(), "serial: "+row.says+": no space left\n"), &errs)
	}
	last, err := m.Get("serial:{IS}:" + day)
	require.NoError(t, err)
	require.Equal(t, "100000", last, "it requested another batch")
}

// If nothing can be written, no command may change a counter. A program that wants no output may open /dev/null for
// reading and writing. Only next must reject this, because a closed stdout looks the same.
func TestOutputToDevices(t *testing.T) {
	for _, output := range []struct {
		name  string
		mode  int
		fails string
	}{
		{"/dev/null", os.O_RDWR, ""},
		{"/dev/null", os.O_RDONLY, "bad file descriptor"},
		{"/dev/full", os.O_WRONLY, "no space left on device"},
	} {
		file, err := os.OpenFile(output.name, output.mode, 0)
		if err != nil && runtime.GOOS != "linux" {
			t.Skip(err)
		}
		require.NoError(t, err)
		defer file.Close()
		for _, args := range [][]string{{"raise", "IS", "41"}, {"takeover", "IS", "41"}, {"import", "-force"}} {
			m, e, day := issued(t, 1)
			var errs bytes.Buffer
			stdin := strings.NewReader("IS" + day + "0001\nIS" + day + "0041\n")
			code := start(t.Context(), e, args, stdin, file, &errs)
			last, _ := m.Get("serial:{IS}:" + day)
			if output.fails == "" {
				require.Equal(t, []any{0, "", "41"}, []any{code, errs.String(), last}, args)
				continue
			}
			require.Equal(t, []any{1, "1"}, []any{code, last}, args)
			require.Regexp(t, output.fails+"; nothing was sent\n$", errs.String())
		}
	}
}

// A keyboard is an input that looks like a terminal.
type keyboard struct {
	io.Reader
	fs.FileInfo
}

func (k keyboard) Stat() (fs.FileInfo, error) { return k, nil }
func (k keyboard) Mode() fs.FileMode          { return fs.ModeDevice | fs.ModeCharDevice }

// At a terminal, import must read the terminal or a file, and write nothing by default. The stdin of a service is not a
// terminal.
func TestTerminal(t *testing.T) {
	m, e, day := issued(t, 0)
	file := t.TempDir() + "/numbers.txt"
	require.NoError(t, os.WriteFile(file, []byte("IS"+day+"0041"), 0o600))
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer null.Close()
	for _, row := range []struct {
		stdin io.Reader
		args  []string
		code  int
		says  string
	}{
		{keyboard{Reader: strings.NewReader("IS" + day + "0041")}, nil, 0, "reading numbers from this terminal"},
		{keyboard{Reader: strings.NewReader("")}, []string{file}, 0, "dry run: nothing was written"},
		{keyboard{Reader: strings.NewReader("")}, []string{file + "x"}, 1, "no such file"},
		{null, []string{file}, 0, ""},
	} {
		require.Empty(t, m.Keys())
		var out, errs bytes.Buffer
		code := start(t.Context(), e, append([]string{"import"}, row.args...), row.stdin, &out, &errs)
		require.Equal(t, row.code, code, row.args)
		require.Contains(t, errs.String(), row.says)
	}
	require.NotEmpty(t, m.Keys())
}

// endless is an input whose first line never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// A signal must end an audit that waits for input, and one that is reading it.
func TestAuditInterrupted(t *testing.T) {
	_, e, day := issued(t, 2)
	in, out := io.Pipe()
	defer out.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = out.Write([]byte("IS" + day + "0001\n"))
		cancel()
	}()
	var printed, errs bytes.Buffer
	require.Equal(t, 1, start(ctx, e, []string{"audit", "IS"}, in, &printed, &errs))
	require.Contains(t, errs.String(), "context canceled")
	require.Empty(t, printed.String())
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.Equal(t, 1, start(ctx, e, []string{"audit", "IS"}, endless{}, &printed, &errs))
}

// utf16Text returns a text in UTF-16 with a byte order mark.
func utf16Text(order binary.AppendByteOrder, text string) string {
	var b []byte
	for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
		b = order.AppendUint16(b, unit)
	}
	return string(b)
}

// Numbers and explanations may be in lines or in CSV, with any separator that spreadsheets use, in UTF-8 or UTF-16, in
// reads of any size, and enclosed in ="…".
func TestInput(t *testing.T) {
	t.Parallel()
	_, e, day := issued(t, 2)
	one, two := "IS"+day+"0001", "IS"+day+"0002"
	file := t.TempDir() + "/one.txt"
	require.NoError(t, os.WriteFile(file, []byte(one), 0o600))
	audit, column, explained := []string{"audit", "IS"}, []string{"audit", "IS", "-column", "number"},
		[]string{"audit", "IS", file, "-explained", "-"}
	for _, row := range []struct {
		args []string
		text string
	}{
		{audit, one + "\n" + two},
		{audit, "\n\n" + one + " \r\n  \r\n\t" + two + "\r"},
		{audit, "\u00a0" + one + "\n" + two + "\u00a0\n\u00a0\n"},
		{audit, "sep=;\n" + one + "\n" + two},
		{audit, "=\"" + one + "\"\r\n=\"" + two + "\"\n"},
		{column, "id,number,note\n1," + one + ",\"a; b; c\"\n2,,none\n3,\"" + two + "\",\n"},
		{column, "number;amount;note\n" + one + ";1,50;a\n" + two + ";2,75;\"b;c\"\n"},
		{column, "amount\tnumber\tnote\n1,50\t" + one + "\ta;b\n2,75\t" + two + "\t\n"},
		{column, "\"a;b;c\nd;e\",number,note\n1," + one + ",\n2," + two + ",\n"},
		{column, "\r\n\nnumber;amount\n" + one + ";1,5\n" + two + ";2,5"},
		{column, "sep=;\nnumber;a,b,c,d\n" + one + ";1,50\n" + two + ";\n"},
		{column, "\"SEP=\t\"\r\nnumber\ta,b,c\r\n" + one + "\t1,5\r\n" + two + "\t\r\n"},
		{column, "number;𝄞 é\n" + one + "   ;𝄞\n\"\u00a0" + two + " \";\n"},
		{column, "id,number\n1,=\"" + one + "\"\r\n2,\"=\"\"" + two + "\"\"\"\n"},
		{column, "=\"number\";id\n=\"" + one + "\";=\"1\"\n\n=\"" + two + "\";\"=\n=\"\"=\"\n"},
		{explained, "number;reason;remark\n " + two + "\u00a0;void;1,5\n"},
		{explained, "first\tlast\treason\tby\n2\t 2 \tvoid, both\tAda\n"},
		{explained, "sep=;\r\nreason;number\r\nvoid;=\"" + two + "\"\n"},
	} {
		texts := []string{row.text, "\ufeff" + row.text, utf16Text(binary.LittleEndian, row.text),
			utf16Text(binary.BigEndian, row.text)}
		if testing.Short() {
			texts = texts[:1]
		}
		for _, text := range texts {
			for _, stdin := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
				var out, errs bytes.Buffer
				require.Equal(t, 0, start(t.Context(), e, row.args, stdin, &out, &errs), "%q: %s%s", text, &out, &errs)
			}
		}
	}
	long := strings.Repeat("x", 200_000)
	for _, row := range []struct {
		text, want string
	}{
		{one + "\n" + long + "\n" + two + "\n", "used       2\n"},
		{long, "foreign    1\n  \"" + strings.Repeat("x", 256) + "\"\n"},
		{one + "\n" + strings.Repeat("x", 64<<10), "foreign    1\n"}, // the line fills the buffer, and has no line ending
		{utf16Text(binary.LittleEndian, one+"\n1") + "x", "foreign    1\n  \"1\ufffd\"\n"},
	} {
		e["stdin"] = row.text
		stdout, _ := e.exits(t, 3, "audit", "IS")
		require.Contains(t, stdout, row.want)
	}
}

// If an input cannot be read, the error must contain the reason and, if possible, the line in the file.
func TestInputRefused(t *testing.T) {
	_, e, day := issued(t, 1)
	one := "IS" + day + "0001"
	const hint = "if the input is CSV with a header, use -column\n"
	for _, row := range []struct {
		says, text string
		args       []string
	}{
		{`no column has the name "x"; the columns are ["id" "number"]`, "id,number\n", []string{"-column", "x"}},
		{`no column has the name "number"; the columns are ["sep=|"]`, "sep=|\nnumber|x\n", []string{"-column", "number"}},
		{`two columns have the name "a"`, "a;b;a\n1;2;3\n", []string{"-column", "a"}},
		{"the input is empty; want a header", "sep=;\n", []string{"-column", "a"}},
		{"cannot be read as CSV: record on line 3: wrong number of fields", "sep=;\na;b\n1\n", []string{"-column", "a"}},
		{`line 3: invalid number: "bad"`, "sep=;\nx;number\n1;bad\n", []string{"-column", "number"}},
		{`line 3: invalid number: "bad"`, "number;x\n\n=\"bad\";1\n", []string{"-column", "number"}},
		{`line 3: invalid number: "bad"`, "\nsep=;\nbad\n", nil},
		{hint, "id,number\n1," + one + "\n", nil},
		{hint, "1;" + one + " ;x\n", nil},
		{hint, `"` + one + `"`, nil},
		{"nothing was written; " + hint, "number\n" + one, nil},
		{"1 line cannot be parsed; nothing was written\n", "IS1,2\n", nil}, // no field is a number
		{"the input cannot be read: this is a spreadsheet or an archive; save it as CSV\n", "PK\x03\x04\x14\n", nil},
		{"cannot be read as CSV: this is a spreadsheet or an archive; save it", "PK\x03\x04\n", []string{"-column", "a"}},
	} {
		e["stdin"] = row.text
		_, stderr := e.exits(t, 1, append([]string{"import"}, row.args...)...)
		require.Contains(t, stderr, row.says)
		if row.says == hint {
			_, stderr = e.exits(t, 3, "audit", "IS")
			require.Equal(t, "serial: "+hint+"serial: not all numbers are accounted for\n", stderr)
		}
	}
}

// A closing quote is missing, so the rest of the file is one field. After 1 MB, this must cause an error, so that the
// command does not need much memory.
func TestLongFields(t *testing.T) {
	if testing.Short() {
		t.Skip("reads 40 MB")
	}
	_, e, day := issued(t, 1)
	one, file := "IS"+day+"0001", t.TempDir()+"/one.txt"
	require.NoError(t, os.WriteFile(file, []byte(one), 0o600))
	text := strings.Repeat(one+",some text\n", 40<<20/26) // to read it all, 32 MB would not be enough
	for _, row := range []struct {
		begins string
		args   []string
	}{
		{"number,note\n" + one + ",fine\n" + one + ",\"a \"\"quote\"\"\n", []string{"import", "-column", "number"}},
		{"number,note\n\n" + one + ",=\"", []string{"audit", "-column", "number", "IS"}},
		{"first,last,reason\n\n2,3,\"", []string{"audit", "IS", file, "-explained", "-"}},
	} {
		stdin := struct{ io.Reader }{strings.NewReader(row.begins + text)} // without WriteTo, which would copy it
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var out, errs strings.Builder
		code := start(t.Context(), e, row.args, stdin, &out, &errs)
		runtime.ReadMemStats(&after)
		require.Equal(t, 1, code)
		require.Contains(t, errs.String(), "a field that begins on line 3 has more than 1 MB, the maximum")
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20))
	}
	e["stdin"] = "number,note\r\n" + one + ",\"" + strings.Repeat("x,\n=", 1<<18) + "\"\r\n" // 1 MB
	e.exits(t, 0, "audit", "-column", "number", "IS")
}
