package gapless

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// arguments maps the names of a statement's arguments to their values. Each value is a []byte, an int64, nil or, for
// MySQL, a [][]byte.
type arguments map[string]any

// bind replaces the arguments of a statement, which are names in braces, by the placeholders of the dialect. It returns
// the new text, and the values in the order of the placeholders. For MySQL, it writes the values into the text instead,
// as literals that need no escaping. MySQL's drivers would prepare a statement that has arguments, which would cost an
// additional round trip.
func (d Dialect) bind(statement string, a arguments) (text string, values []any) {
	bound, whole := make([]byte, 0, 512), statement
	for {
		before, rest, found := strings.Cut(statement, "{")
		bound = append(bound, before...)
		if !found {
			return string(bound), values
		}
		name, after, _ := strings.Cut(rest, "}")
		value, given := a[name]
		if !given {
			panic("gapless: no argument " + name + " for " + whole)
		}
		switch d {
		case PostgreSQL:
			values = append(values, value)
			bound = strconv.AppendInt(append(bound, '$'), int64(len(values)), 10)
		case MySQL:
			bound = appendLiteral(bound, value)
		default:
			values, bound = append(values, value), append(bound, '?')
		}
		statement = after
	}
}

// appendLiteral appends value to text as a MySQL literal.
func appendLiteral(text []byte, value any) []byte {
	switch v := value.(type) {
	case []byte:
		text = append(hex.AppendEncode(append(text, "x'"...), v), '\'')
	case [][]byte: // a list of labels
		for i, label := range v {
			if i > 0 {
				text = append(text, ", "...)
			}
			text = appendLiteral(text, label)
		}
	case int64:
		text = strconv.AppendInt(text, v, 10)
	case nil:
		text = append(text, "NULL"...)
	}
	return text
}
