package serialpage

import (
	"fmt"
	"html/template"
	"net/url"
	"runtime/debug"
)

// A linker asks the application for the addresses of documents.
type linker struct {
	link   func(number string) string // nil: there are none
	failed string                     // panic and stack; then, none of the links must be shown
}

// address returns the address of the document with a number, or "" if there is none.
func (l *linker) address(number string) (address template.URL) {
	if l.link == nil || l.failed != "" {
		return ""
	}
	returned := false
	defer func() {
		if !returned {
			l.failed = fmt.Sprintf("panic: %v\n%s", recover(), debug.Stack())
		}
	}()
	text := l.link(number)
	returned = true
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "" && u.Scheme != "http" && u.Scheme != "https" {
		return ""
	}
	return template.URL(text) // checked above; the template escapes it
}
