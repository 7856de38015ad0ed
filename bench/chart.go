package main

import (
	"fmt"
	"math"
	"strings"
)

// palette contains the colors of Okabe and Ito, which color-blind people can distinguish.
var palette = []string{"#000000", "#e69f00", "#56b4e9", "#d55e00", "#009e73", "#cc79a7"}

// The plot of the chart is on the left, and its legend is on the right.
const (
	chartWidth, chartHeight = 860, 430
	left, right             = 80, 600 // edges of the plot
	top, bottom             = 40, 380
)

// chart draws the numbers per second for each number of callers, on logarithmic axes. If there are fewer than two
// points to draw, it returns an empty string.
func chart(o *output) string {
	curves := map[string][]benchmark{}
	maxCallers, lowest, highest := 1, math.Inf(1), 0.0
	for _, b := range o.order {
		if b.name == "Next" && b.network == loopback {
			curves[b.way] = append(curves[b.way], b)
			maxCallers = max(maxCallers, b.callers)
			value := median(o.all(b, rate))
			lowest, highest = min(lowest, value), max(highest, value)
		}
	}
	if maxCallers == 1 {
		return ""
	}
	lowest, highest = math.Log10(lowest/1.2), math.Log10(highest*1.2)
	x := func(callers float64) float64 {
		return left + 10 + (right-left-20)*math.Log10(callers)/math.Log10(float64(maxCallers))
	}
	y := func(value float64) float64 { return bottom - (bottom-top)*(math.Log10(value)-lowest)/(highest-lowest) }

	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" `+
		"font-family=\"Arial,Helvetica,sans-serif\" font-size=\"13\">\n", chartWidth, chartHeight)
	fmt.Fprintln(&svg, `<rect width="100%" height="100%" fill="#fff"/>`) // because the page may be dark
	label := func(x, y float64, anchor, text string) {
		fmt.Fprintf(&svg, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, text)
	}
	rule := func(x1, y1, x2, y2 float64, color string) {
		fmt.Fprintf(&svg, "<path d=\"M%.1f %.1fL%.1f %.1f\" stroke=\"%s\"/>\n", x1, y1, x2, y2, color)
	}
	label((left+right)/2, top-15, "middle", "Numbers per second")
	label((left+right)/2, bottom+40, "middle", "callers")
	for callers := 1.0; callers <= float64(maxCallers); callers *= 10 {
		rule(x(callers), top, x(callers), bottom, "#e1e1e1")
		label(x(callers), bottom+18, "middle", thousands(callers))
	}
	for exponent := math.Floor(lowest); exponent <= highest; exponent++ {
		for _, digit := range []float64{1, 2, 5} {
			if v := digit * math.Pow(10, exponent); y(v) <= bottom && y(v) >= top {
				rule(left, y(v), right, y(v), "#e1e1e1")
				label(left-6, y(v)+4, "end", thousands(v))
			}
		}
	}
	rule(left, bottom, right, bottom, "#000")
	rule(left, top, left, bottom, "#000")
	drawn := 0
	for _, t := range titles {
		if !t.drawn || curves[t.way] == nil {
			continue
		}
		color, height := palette[drawn%len(palette)], float64(top+15+22*drawn)
		dot := func(x, y float64) {
			fmt.Fprintf(&svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"%s\"/>\n", x, y, color)
		}
		var points []string
		for _, b := range curves[t.way] {
			x, y := x(float64(b.callers)), y(median(o.all(b, rate)))
			dot(x, y)
			points = append(points, fmt.Sprintf("%.1f,%.1f", x, y))
		}
		fmt.Fprintf(&svg, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n",
			strings.Join(points, " "), color)
		dot(right+25, height-4)
		text, _, _ := strings.Cut(strings.ReplaceAll(t.title, "*", ""), " (")
		label(right+40, height, "start", text)
		drawn++
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}
