package gapless

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// arguments are the values of a statement's arguments, by name. Each is a []byte, an int64, nil or, for MySQL, a
// [][]byte.
type arguments map[string]any

// bind returns a statement as the driver takes it, and the values of its arguments in their order. An argument is a
// name in braces. Drivers of MySQL prepare a statement that has arguments, which takes another round trip. So for MySQL
// they become literals that need no escaping.
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

// appendLiteral appends an argument as MySQL reads it in the text of a statement.
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
