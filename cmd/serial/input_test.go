package main

import (
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"
)

// inUTF16 returns a text in UTF-16, with the byte order mark.
func inUTF16(order binary.AppendByteOrder, text string) string {
	var b []byte
	for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
		b = order.AppendUint16(b, unit)
	}
	return string(b)
}

// Spreadsheets write UTF-16, and other separators where numbers contain commas.
func TestInputOfSpreadsheets(t *testing.T) {
	_, e, day := issued(t, 2)
	one, two := "IS"+day+"0001", "IS"+day+"0002"
	tables := map[string]string{
		"comma":      "number,amount,note\n" + one + ",1,\"a; b; c\"\n" + two + ",2,\n",
		"semicolon":  "number;amount;note\n" + one + ";1,50;a\n" + two + ";2,75;\"b;c\"\n",
		"tab":        "amount\tnumber\tnote\n1,50\t" + one + "\ta;b\n2,75\t" + two + "\t\n",
		"most":       "amount, net;number;note;date\n1,50;" + one + ";;\n2,75;" + two + ";;\n",
		"quoted":     "\"a;b;c\nd;e\",number,note\n1," + one + ",\n2," + two + ",\n",
		"blank":      "\r\n\nnumber;amount\n" + one + ";1,5\n" + two + ";2,5",
		"sep=;":      "sep=;\nnumber;a,b,c,d\n" + one + ";1,50\n" + two + ";\n",
		"sep=,":      "sep=,\r\nnumber,a;b;c\r\n" + one + ",1\r\n" + two + ",\r\n",
		"SEP=tab":    "\"SEP=\t\"\r\nnumber\ta,b,c\r\n" + one + "\t1,5\r\n" + two + "\t\r\n",
		"one column": "number\n" + one + "\n" + two + "\n",
		"padded":     "number;note\n" + one + "   ;\n\"\u00a0" + two + " \";\n",
		"𝄞":          "number;𝄞 é\n" + one + ";𝄞\n" + two + ";\n",
	}
	for name, table := range tables {
		for _, text := range map[string]string{
			"UTF-8":                       table,
			"UTF-8 with a mark":           "\ufeff" + table,
			"UTF-16 with the least first": inUTF16(binary.LittleEndian, table),
			"UTF-16 with the most first":  inUTF16(binary.BigEndian, table),
		} {
			e.with(text).exits(t, 0, "audit", "-column", "number", "IS")
		}
		text := strings.ReplaceAll(strings.ReplaceAll(table, "number", "reason"), one, "void")
		stdout, _ := e.with(text).exits(t, 3, "audit", "-column", "reason", "IS")
		require.Regexp(t, `foreign    1\n  "void *"\n`, stdout, name)
	}
	for _, text := range []string{one + " \r\n\t" + two, "sep=;\n" + one + "\n" + two,
		"\u00a0" + one + "\n" + two + "\u00a0\n\u00a0\n",
		inUTF16(binary.LittleEndian, one+"\r\n"+two+"\r\n"), inUTF16(binary.BigEndian, one+"\n"+two)} {
		e.with(text).exits(t, 0, "audit", "IS")
	}

	// Line numbers refer to the file.
	for _, table := range []string{"sep=;\nx;number\n1;bad\n", "number;x\n\nbad;1\n", "\nsep=;\nbad\n"} {
		args := []string{"import", "-column", "number"}
		if !strings.Contains(table, "number") {
			args = args[:1]
		}
		_, _, stderr := e.with(table).do(args...)
		require.Contains(t, stderr, `line 3: invalid number: "bad"`)
	}
	for _, row := range []struct{ says, text string }{
		{`no column is called "number"; the columns are ["sep=|"]`, "sep=|\nnumber|x\n"},
		{`two columns are called "number"`, "number;a;number\n"},
		{"the input cannot be read as CSV: record on line 3: wrong number of fields", "sep=;\nnumber;a\n1\n"},
		{"the input is empty", inUTF16(binary.LittleEndian, "")},
		{"the input is empty", "sep=;\n"},
	} {
		e.with(row.text).fails(t, 1, row.says, "audit", "-column", "number", "IS")
	}
	text := inUTF16(binary.BigEndian, one+"\n"+two+"\n\U0001d11e\n") + "\xd8\x00\x00\x31"
	stdout, _ := e.with(text).exits(t, 3, "audit", "IS")
	require.Contains(t, stdout, "foreign    2\n  \"\U0001d11e\"\n  \"\ufffd1\"\n", "half a character is invalid")
	stdout, _ = e.with(inUTF16(binary.LittleEndian, one+"\n1")+"x").exits(t, 3, "audit", "IS")
	require.Contains(t, stdout, "foreign    1\n  \"1\ufffd\"\n")
}

// Programs write ="IS202110240001" into CSV so that Excel takes it for a text. It is read as the text, and so are numbers
// that only begin alike.
func TestFormulasOfExcel(t *testing.T) {
	_, e, day := issued(t, 3)
	one, two, three := "IS"+day+"0001", "IS"+day+"0002", "IS"+day+"0003"
	for _, table := range []string{
		"id,number\n1,=\"" + one + "\"\r\n2,\"=\"\"" + two + "\"\"\"\n=\"3\",=\"" + three + "\"",
		"=\"number\";id\n=\"" + one + "\";=\"1\"\n\n=\"" + two + "\";=\n" + three + ";\"=\n=\"\"=\"\n",
	} {
		e.with(table).exits(t, 0, "audit", "-column", "number", "IS")
		for _, piece := range []int{1, 2, 3} { // in which the input arrives
			var errs strings.Builder
			args := []string{"audit", "-column", "number", "IS"}
			code := run(t.Context(), args, e.get, &pieces{table, piece}, io.Discard, &errs)
			require.Equal(t, 0, code, errs.String())
		}
	}
	e.with("=\""+one+"\"\r\n=\""+two+"\"\n"+three+"\n").exits(t, 0, "audit", "IS")
	stored := written(t, one+"\n")
	e.with("reason,number\nvoid,=\""+two+"\"\nvoid,\"=\"\""+three+"\"\"\"\n").exits(t, 0, "audit", "IS", stored,
		"-explained", "-")
	e.with("number\n=\"bad\"\n").fails(t, 1, `line 2: invalid number: "bad"`, "import", "-column", "number")
}

// pieces is an input that arrives in pieces.
type pieces struct {
	rest string
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if p.rest == "" {
		return 0, io.EOF
	}
	n := copy(b, p.rest[:min(p.size, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}

// metered counts the bytes that were read.
type metered struct {
	io.Reader
	read atomic.Int64
}

func (m *metered) Read(b []byte) (int, error) {
	n, err := m.Reader.Read(b)
	m.read.Add(int64(n))
	return n, err
}

// A quote that is never closed makes one field of the rest of the file. It is refused after 1 MB, with its line, so that
// a large file takes little memory.
func TestLongFields(t *testing.T) {
	_, e, day := issued(t, 1)
	one := "IS" + day + "0001"
	text := strings.Repeat("IS"+day+"0001,some text\n", 10<<20/26)
	for _, row := range []struct {
		start string
		args  []string
	}{
		{"number,note\n" + one + ",fine\n" + one + ",\"a \"\"quote\"\"\n", []string{"import", "-column", "number"}},
		{"number,note\n\n" + one + ",=\"", []string{"audit", "-column", "number", "IS"}},
		{"first,last,reason\n\n2,3,\"", []string{"audit", "IS", written(t, one), "-explained", "-"}},
		{"number,note\n\n" + one + "," + strings.Repeat("x", 1<<20), []string{"audit", "-column", "number", "IS"}},
	} {
		rows := &metered{Reader: strings.NewReader(text)} // its own, since the last run may still copy a part
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var out, errs strings.Builder
		code := run(t.Context(), row.args, e.get, io.MultiReader(strings.NewReader(row.start), rows), &out, &errs)
		runtime.ReadMemStats(&after)
		require.Equal(t, 1, code, row.start[:12])
		require.Contains(t, errs.String(), "a field that begins on line 3 has more than 1 MB; want at most that")
		require.Less(t, len(errs.String()), 500)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(32<<20), "allocated, even if free again")
		require.Less(t, rows.read.Load(), int64(5<<20), "it does not read on")
	}
	long := "number,note\r\n" + one + ",\"" + strings.Repeat("x,\n=", 1<<18) + "\"\r\n" // 1 MB
	e.with(long).exits(t, 0, "audit", "-column", "number", "IS")
}

// Without -column, the lines of CSV are not numbers. Then audit and import name that flag.
func TestCSVWithoutColumn(t *testing.T) {
	_, e, day := issued(t, 2)
	number := "IS" + day + "0001"
	const hint = "if the input is CSV whose first line names the columns, use -column\n"
	for _, table := range []string{"id,number\n1," + number + "\n", "1;" + number + " ;x\n", "a\t" + number,
		"id,number\n" + strings.Repeat("x,y\n", 20) + "1," + number, `"` + number + `"`} {
		_, stderr := e.with(table).exits(t, 1, "import")
		require.True(t, strings.HasSuffix(stderr, "; nothing was written; "+hint), stderr)
		for _, flag := range []string{"-json", "-json=false"} {
			_, stderr = e.with(table).exits(t, 3, "audit", flag, "IS")
			require.Equal(t, "serial: "+hint+"serial: not all numbers are accounted for\n", stderr)
		}
	}
	_, stderr := e.with("number\n"+number).exits(t, 1, "import")
	require.Contains(t, stderr, "1 line cannot be parsed; nothing was written; "+hint)

	_, stderr = e.with("IS1,2\nbad\n").exits(t, 1, "import")
	require.NotContains(t, stderr, "-column", "no field is a number, and the first line has digits")
	_, stderr = e.with("number;note\n\"1,"+number+"\";\n").exits(t, 1, "import", "-column", "number")
	require.NotContains(t, stderr, "if the input is CSV")
}

// Explanations may come from spreadsheets, too.
func TestExplanationsOfSpreadsheets(t *testing.T) {
	_, e, day := issued(t, 3)
	stored := written(t, "IS"+day+"0001\n")
	for _, table := range []string{
		"number;reason;remark\nIS%[1]s0002;void;1,5\n IS%[1]s0003\u00a0;void;\n",
		"first\tlast\treason\tby\n2\t 3 \tvoid, both\tAda\n",
		"sep=;\r\nfirst;last;reason\r\n2;3;a,b,c,d\r\n",
	} {
		text := table
		if strings.Contains(table, "%") {
			text = fmt.Sprintf(table, day)
		}
		for _, file := range []string{text, "\ufeff" + text, inUTF16(binary.LittleEndian, text),
			inUTF16(binary.BigEndian, text)} {
			e.with(file).exits(t, 0, "audit", "IS", stored, "-explained", "-")
		}
	}
	_, _, stderr := e.with("sep=;\nfirst;last;reason\n2;x;void\n").do("audit", "IS", stored, "-explained", "-")
	require.Contains(t, stderr, `line 3: last "x"`)
}
