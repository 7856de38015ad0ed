package main

import (
	"bytes"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Okabe and Ito's colours, which colour-blind people can distinguish; the shapes distinguish curves without colours.
var palette = []color.Color{
	color.RGBA{0, 0, 0, 255},
	color.RGBA{230, 159, 0, 255},
	color.RGBA{86, 180, 233, 255},
	color.RGBA{213, 94, 0, 255},
	color.RGBA{0, 158, 115, 255},
	color.RGBA{204, 121, 167, 255},
	color.RGBA{0, 114, 178, 255},
}

var shapes = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.PyramidGlyph{}, draw.BoxGlyph{}, draw.RingGlyph{},
	draw.CrossGlyph{},
}

// plots writes the curves of the loopback into dir; the other networks have too few points for curves.
func plots(dir string, rows []*row) error {
	throughput := func(r *row) float64 { return r.numbersPerSecond }
	p99 := func(r *row) float64 { return r.p99 }
	err := drawCurves(filepath.Join(dir, "throughput.svg"), "Numbers per second", rows, throughput, power)
	if err != nil {
		return err
	}
	return drawCurves(filepath.Join(dir, "p99.svg"), "99th percentile of a call's duration", rows, p99, span)
}

func drawCurves(path, title string, rows []*row, value func(*row) float64, label func(float64) string) error {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(6)
	p.X.Label.Text = "callers"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks{power, "1"}, ticks{label, "125"}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = color.Gray{225}, color.Gray{225}
	p.Add(grid)
	legend := plot.NewLegend()
	legend.Top, legend.Left = true, true
	legend.Padding = vg.Points(4)
	for _, style := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.X.Tick.Label.Font,
		&p.Y.Tick.Label.Font, &legend.TextStyle.Font} {
		style.Variant = "Sans"
	}
	drawn := 0
	for _, c := range contestants() {
		points := curve(rows, c, value)
		if !c.drawn || len(points) < 2 { // around a single point, the logarithmic axis would begin at 0
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, dots.Color = palette[drawn%len(palette)], palette[drawn%len(palette)]
		line.Width, dots.Radius, dots.Shape = vg.Points(1.5), vg.Points(3.5), shapes[drawn%len(shapes)]
		p.Add(line, dots)
		legend.Add(legendText(c), line, dots)
		drawn++
	}
	if drawn == 0 {
		return nil
	}
	p.Y.Min, p.Y.Max = p.Y.Min/1.1, p.Y.Max*1.1
	const width, height, margin, forLegend = 9 * vg.Inch, 4.5 * vg.Inch, 6, 2.5 * vg.Inch
	canvas := vgsvg.New(width, height)
	all := draw.New(canvas)
	all.SetColor(color.White) // readers may have a dark page
	all.Fill(all.Rectangle.Path())
	p.Draw(draw.Crop(all, margin, -forLegend, margin, -margin))
	legend.Draw(draw.Crop(all, width-forLegend+2*margin, 0, 0, -6*margin))
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	// The font is not embedded; most systems have a similar one.
	text := strings.ReplaceAll(svg.String(), "Liberation Sans", "Liberation Sans,Arial,Helvetica,sans-serif")
	return os.WriteFile(path, []byte(text), 0o644)
}

func curve(rows []*row, c *contestant, value func(*row) float64) plotter.XYs {
	var points plotter.XYs
	for _, r := range rows {
		if r.network == networks[0].name && r.contestant.id == c.id {
			points = append(points, plotter.XY{X: float64(r.callers), Y: value(r)})
		}
	}
	return points
}

// legendText returns the title without emphasis and remarks.
func legendText(c *contestant) string {
	title, _, _ := strings.Cut(strings.ReplaceAll(c.title, "*", ""), " (")
	return title
}

// ticks are the ticks of a logarithmic axis.
type ticks struct {
	label    func(float64) string
	labelled string // the leading digits that get a label
}

func (t ticks) Ticks(lowest, highest float64) []plot.Tick {
	var all []plot.Tick
	for e := math.Floor(math.Log10(lowest)); e <= math.Ceil(math.Log10(highest)); e++ {
		for digit := 1; digit < 10; digit++ {
			v := float64(digit) * math.Pow(10, e)
			if v < lowest*0.999 || v > highest*1.001 {
				continue
			}
			tick := plot.Tick{Value: v}
			if strings.Contains(t.labelled, strconv.Itoa(digit)) {
				tick.Label = t.label(v)
			}
			all = append(all, tick)
		}
	}
	return all
}

func power(v float64) string {
	switch {
	case v > 0.99e6:
		return strconv.FormatFloat(v/1e6, 'g', 3, 64) + "M"
	case v > 0.99e3:
		return strconv.FormatFloat(v/1e3, 'g', 3, 64) + "k"
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func span(ns float64) string { return time.Duration(math.Round(ns)).String() }
