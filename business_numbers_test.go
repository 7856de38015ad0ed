package serial_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// notYet are options that docs/business-numbers.md uses before they exist. Its rows with one of them are not tested.
var notYet []string

// Each number in docs/business-numbers.md is issued at its date with its row's options, and reads back; each refused
// template is refused with the words of its row.
func TestBusinessNumbers(t *testing.T) {
	t.Parallel()
	quoted := regexp.MustCompile("`(.*?)`")
	options := func(cell string) (list string) {
		for _, option := range quoted.FindAllStringSubmatch(cell, -1) {
			if strings.HasPrefix(option[1], "serial.") {
				list += option[1] + ", "
			} else {
				list += fmt.Sprintf("serial.WithTemplate(%q), ", option[1])
			}
		}
		return list
	}
	all := func(cell string) (texts []string) {
		for _, text := range quoted.FindAllStringSubmatch(cell, -1) {
			texts = append(texts, text[1])
		}
		return texts
	}
	source, printed, refused, pending := "", 0, 0, 0
	for _, section := range strings.Split(unix(t, "docs/business-numbers.md"), "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		_, shared, _ := strings.Cut("\n"+strings.Split(text, "\n|")[0], "\nOptions: ")
		_, table, found := strings.Cut(text, "\n| ---")
		if !found {
			continue
		}
		table, _, _ = strings.Cut(table, "\n\n")
		for _, line := range strings.Split(strings.TrimSpace(table), "\n")[1:] {
			cells := strings.Split(strings.Trim(line, "| "), " | ")
			numbers, types, asked, says := cells[0], []string(nil), "", ""
			switch {
			case len(cells) == 4:
				if types = all(cells[2]); cells[2] == "none" {
					types = []string{""}
				}
				printed++
			case strings.HasPrefix(name, "Refused") && len(cells) == 6:
				asked, says, numbers = options(cells[2]), all(cells[3])[0], cells[4]
				numbers = quoted.FindString(numbers)
				refused++
			default:
				require.Fail(t, "unexpected cells", "%q", cells)
			}
			row := options(shared) + options(cells[len(cells)-1])
			if regexp.MustCompile(strings.ReplaceAll(strings.Join(notYet, "|"), "(", `\(`)).MatchString(row) {
				t.Logf("not tested yet: %s", line)
				pending++
				row = ""
			}
			if strings.Contains(cells[1], "GST") {
				require.Len(t, all(numbers)[0], 16, "rule 46 allows no more")
			}
			requireRF(t, all(numbers)[0])
			source += fmt.Sprintf("\t{%q, %#v, %#v, []serial.Option{%s}, []serial.Option{%s}, %q},\n", name, all(numbers),
				types, row, asked, says)
		}
	}
	require.GreaterOrEqual(t, printed, 51)
	require.Equal(t, 7, refused)
	t.Log(printed, "printed,", refused, "refused,", pending, "pending")

	source = businessProgram + source + "}\n"
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").
		FindAllStringSubmatch(unix(t, "docs/business-numbers.md"), -1) {
		source += block[1]
	}
	requireRuns(t, source)
}

// requireRF requires that a creditor reference of ISO 11649 has correct check digits.
func requireRF(t *testing.T, number string) {
	t.Helper()
	digits, isRF := strings.CutPrefix(number, "RF")
	if !isRF {
		return
	}
	rest := 0
	for _, c := range digits[2:] + "RF" + digits[:2] {
		v, err := strconv.ParseInt(string(c), 36, 0)
		require.NoError(t, err)
		shift := 10
		if v > 9 { // a letter is two digits
			shift = 100
		}
		rest = (rest*shift + int(v)) % 97
	}
	require.Equal(t, 1, rest, "%s: moved to the end, RF and check digits make 1", number)
}

const businessProgram = `package main

import (
	"context"
	"errors"
	"log"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/dailyserial/serial"
)

var key = []byte("an example's key")

func main() {
	utc := serial.WithLocation(time.UTC)
	m := miniredis.NewMiniRedis()
	if err := m.Start(); err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	for _, r := range rows {
		if _, err := serial.New(rdb, append(r.asked, utc)...); len(r.asked) > 0 &&
			(err == nil || !strings.Contains(err.Error(), r.says)) {
			log.Fatalf("%s: %v; want %s", r.numbers, err, r.says)
		}
		if len(r.options) == 0 {
			continue // not yet
		}
		m.FlushAll()
		gen, err := serial.New(rdb, append(r.options, utc, serial.WithMaxSkew(-1))...)
		if err != nil {
			log.Fatalf("%s: %v", r.numbers, err)
		}
		var types []string
		for _, want := range r.numbers {
			requirePrints(m, gen, want)
			n, _ := gen.Parse(want)
			types = append(types, n.Type)
		}
		if len(r.types) == 0 {
			r.types = types // not in the row
		}
		if !slices.Equal(types, r.types) {
			log.Fatalf("%s: types %q; want %q", r.numbers, types, r.types)
		}
	}
	requireGuides()
}

// requirePrints requires that a generator issues a number at its date, and reads it back.
func requirePrints(m *miniredis.Miniredis, gen *serial.Generator, want string) {
	n, err := gen.Parse(want)
	if err != nil {
		log.Fatal(err)
	}
	at := n.Date.Add(12 * time.Hour)
	if at.Year() == 1970 { // never starting again
		at = at.AddDate(50, 0, 0)
	}
	m.SetTime(at)
	ctx := context.Background()
	if first, _ := gen.Scheme().Limits(); n.Seq > first {
		if err := gen.Raise(ctx, n.Type, n.Seq-1); err != nil {
			log.Fatalf("%s: %v", want, err)
		}
	}
	issued, err := gen.NextNumber(ctx, n.Type)
	if err != nil || issued.String() != want || issued.Seq != n.Seq {
		log.Fatalf("%s (%d), %v, instead of %s", issued, issued.Seq, err, want)
	}
	back, err := gen.Parse(issued.String())
	if err != nil || back.Type != n.Type || back.Seq != n.Seq || !back.Start.Equal(issued.Start) {
		log.Fatalf("%s parsed: %+v, %v", want, back, err)
	}
}

// requireGuides runs the guide's functions.
func requireGuides() {
	if err := typed("PICK-241230-0001-7"); err != nil {
		log.Fatal(err)
	}
	if err := typed("PICK-241230-0010-7"); !errors.Is(err, serial.ErrCheckDigit) {
		log.Fatal(err)
	}
	for _, c := range []struct {
		typ, template string
		want          bool
	}{
		{"INV", "{type}/{date:FFFF-EE}/{seq:4}", true},
		{"INVO", "{type}/{date:FFFF-EE}/{seq:4}", false},
		{"INV", "{type}/{date:FFFF-EE}/{seq:4+}", false},
		{"INV", "{type}/{date:yy}/{seq:9}", true},
		{"INV", "{type}/{date:d.M.yyyy}-{seq:1}", true},
		{"INVO", "{type}/{date:d.M.yyyy}-{seq:1}", false},
		{"I", "{type}/{date:d-R-yyyy}/{seq:1}", true},
		{"IV", "{type}/{date:d-R-yyyy}/{seq:1}", false}, // in August, VIII
	} {
		s, err := serial.NewScheme(serial.WithLocation(time.UTC), serial.WithPeriod(serial.PerYear),
			serial.WithTemplate(c.template))
		if err != nil {
			log.Fatal(err)
		}
		if got, err := fits(s, c.typ, 16); err != nil || got != c.want {
			log.Fatal(c, got, err)
		}
	}
}

var rows = []struct {
	section string
	numbers []string
	types   []string
	options []serial.Option
	asked   []serial.Option
	says    string
}{
`
