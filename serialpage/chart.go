package serialpage

import (
	"fmt"
	"slices"

	"github.com/dailyserial/serial"
)

// A chart is a bar chart with a column for each period. The oldest period is on the left.
type chart struct {
	Width, Height, Step int
	First, Last         string // names of the first and last period
	Narrow              bool   // whether the chart is too narrow for both names
	Columns             []column
}

// labelWidth is the width of a wide letter in the names below the columns.
const labelWidth = 8

// A column is a stack of bars.
type column struct {
	X     int
	Title string // text with the counts
	Bars  []bar
}

// A bar is a rectangle in a column.
type bar struct {
	Class  string
	X      int
	Y      float64
	Width  int
	Height float64
}

// A part is the count of the numbers of one kind in a period, for example of the stored numbers.
type part struct {
	class string
	n     int64
}

// A stack contains the values that a column shows.
type stack struct {
	title, label string
	parts        []part
}

// draw draws each stack as a column of width step. The highest column fills the height of the chart.
func draw(stacks []stack, step, height int) chart {
	c := chart{Width: step * len(stacks), Height: height, Step: step}
	if len(stacks) > 0 {
		c.First, c.Last = stacks[0].label, stacks[len(stacks)-1].label
		c.Narrow = c.Width < labelWidth*(len(c.First)+len(c.Last))
	}
	highest := int64(1)
	for _, s := range stacks {
		sum := int64(0)
		for _, p := range s.parts {
			sum += p.n
		}
		highest = max(highest, sum)
	}
	for i, s := range stacks {
		col := column{X: i * step, Title: s.title}
		top := float64(height)
		for _, p := range s.parts {
			if p.n > 0 {
				tall := max(float64(p.n)/float64(highest)*float64(height), 1) // keeps small counts visible
				top -= tall
				col.Bars = append(col.Bars, bar{p.class, i*step + 1, max(top, 0), step - 2, tall})
			}
		}
		c.Columns = append(c.Columns, col)
	}
	return c
}

// usage returns a chart of the counts of issued numbers. The slice history contains the last number of each period,
// newest period first.
func usage(s *Series, history []serial.Number, first int64) chart {
	var stacks []stack
	for _, n := range slices.Backward(history) {
		issued := max(0, n.Seq-first+1)
		stacks = append(stacks, stack{title: fmt.Sprintf("%s: %s", periodFrom(s, n.Start).Name, count(issued)),
			parts: []part{{"issued", issued}}})
	}
	return draw(stacks, 6, 24)
}
