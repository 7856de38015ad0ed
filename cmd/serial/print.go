package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/dailyserial/serial"
)

// print prints a number that was issued.
func (c *command) print(number string) error {
	if !c.json {
		_, _ = fmt.Fprintln(c.out, number)
		return nil
	}
	n, err := c.scheme.Parse(number)
	if err == nil {
		c.printJSON(lineOf(n))
	}
	return err
}

// A line is what -json prints.
type line struct {
	Number string    `json:"number,omitempty"` // left out if none was issued
	Type   string    `json:"type"`
	Start  time.Time `json:"start"`
	Seq    int64     `json:"seq"`
	Used   *float64  `json:"used,omitempty"` // share of the period's numbers
	Next   string    `json:"next,omitempty"` // the number after this one; left out if none is left
}

func lineOf(n serial.Number) line {
	l := line{Type: n.Type, Start: n.Start, Seq: n.Seq}
	if n.Seq > 0 {
		l.Number = n.String()
	}
	return l
}

func (c *command) printJSON(l line) { _ = json.NewEncoder(c.out).Encode(l) }
