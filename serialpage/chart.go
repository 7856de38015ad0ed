package serialpage

import (
	"fmt"
	"slices"

	"github.com/dailyserial/serial"
)

// A chart has a column for each period, oldest first, and its figures as text.
type chart struct {
	Width, Height, Step int
	First, Last         string // names of the first and last period
	Narrow              bool   // these names do not fit below the columns
	Columns             []column
}

// labelWidth is the width of a wide letter below the columns.
const labelWidth = 8

// A column is a stack of bars.
type column struct {
	X     int
	Title string // figures as text
	Bars  []bar
}

// A bar is a part of a column.
type bar struct {
	Class  string
	X      int
	Y      float64
	Width  int
	Height float64
}

// A part is the count of a period's numbers of one kind.
type part struct {
	class string
	n     int64
}

// A stack is what a column shows.
type stack struct {
	title, label string
	parts        []part
}

// draw draws each stack as a column of width step. The highest column takes the whole height.
func draw(stacks []stack, step, height int) chart {
	c := chart{Width: step * len(stacks), Height: height, Step: step}
	if len(stacks) > 0 {
		c.First, c.Last = stacks[0].label, stacks[len(stacks)-1].label
		c.Narrow = c.Width < labelWidth*(len(c.First)+len(c.Last))
	}
	most := int64(1)
	for _, s := range stacks {
		sum := int64(0)
		for _, p := range s.parts {
			sum += p.n
		}
		most = max(most, sum)
	}
	for i, s := range stacks {
		col := column{X: i * step, Title: s.title}
		top := float64(height)
		for _, p := range s.parts {
			if p.n > 0 {
				tall := max(float64(p.n)/float64(most)*float64(height), 1) // so that a few look different from none
				top -= tall
				col.Bars = append(col.Bars, bar{p.class, i*step + 1, max(top, 0), step - 2, tall})
			}
		}
		c.Columns = append(c.Columns, col)
	}
	return c
}

// usage draws how many numbers were issued in each of the latest periods.
func usage(s *Series, history []serial.Number, first int64) chart {
	var stacks []stack
	for _, n := range slices.Backward(history) {
		issued := max(0, n.Seq-first+1)
		stacks = append(stacks, stack{title: fmt.Sprintf("%s: %s", spanOf(s, n.Start).Name, count(issued)),
			parts: []part{{"issued", issued}}})
	}
	return draw(stacks, 6, 24)
}
