package look

import (
	"fmt"
	"math"
	"slices"
	"strconv"
)

// Plot is a picture of a report, in its own coordinates; a page has it as SVG.
type Plot struct {
	Title, X, Y   string // of the axes
	Width, Height int
	Grid          []Stroke
	Strokes       []Stroke
	Bars          []Bar
	Dots          []Dot
	Labels        []Label
}

// What a plot is made of.
type (
	// Stroke is a line.
	Stroke struct{ Path, Class string }
	// Bar is a rectangle.
	Bar struct{ X, Y, W, H, Class, Tip string }
	// Dot is a point.
	Dot struct{ X, Y, Class, Tip string }
	// Label is a text.
	Label struct{ X, Y, Anchor, Text string }
)

// The room of a plot, with what stands around its data.
const (
	plotW, plotH                        = 460, 260
	padLeft, padRight, padTop, padBelow = 58, 14, 12, 40
)

func at(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// short is a number for people.
func short(v float64) string {
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case a >= 1e6 || a < 1e-3:
		return strconv.FormatFloat(v, 'e', -1, 32)
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}

// axis maps values, or names, to places.
type axis struct {
	lo, hi   float64
	log      bool
	names    []string // of one that has names
	from, to float64
}

// numeric is the axis of numbers; over more than two powers of ten it is logarithmic.
func numeric(values []float64, from, to float64) axis {
	a := axis{from: from, to: to, lo: math.Inf(1), hi: math.Inf(-1)}
	for _, v := range values {
		a.lo, a.hi = min(a.lo, v), max(a.hi, v)
	}
	if len(values) == 0 {
		a.lo, a.hi = 0, 1
	}
	a.log = a.lo > 0 && a.hi/a.lo > 100
	if a.lo == a.hi {
		pad := max(math.Abs(a.lo)*0.1, 0.5)
		a.lo, a.hi = a.lo-pad, a.hi+pad
	}
	return a
}

func (a axis) place(v float64) float64 {
	lo, hi := a.lo, a.hi
	if a.log {
		lo, hi, v = math.Log(lo), math.Log(hi), math.Log(v)
	}
	return a.from + (v-lo)/(hi-lo)*(a.to-a.from)
}

// name is the place of one of its names.
func (a axis) name(n string) float64 {
	return a.from + (float64(slices.Index(a.names, n))+0.5)/float64(len(a.names))*(a.to-a.from)
}

// ticks are some values that stand beside it.
func (a axis) ticks() (out []float64) {
	if a.log {
		step := max(1, math.Ceil((math.Log10(a.hi)-math.Log10(a.lo))/6))
		for e := math.Ceil(math.Log10(a.lo) - 1e-9); e <= math.Log10(a.hi)+1e-9; e += step {
			out = append(out, math.Pow(10, e))
		}
		return out
	}
	step := math.Pow(10, math.Floor(math.Log10((a.hi-a.lo)/5)))
	for _, m := range []float64{5, 2} {
		if (a.hi-a.lo)/(step*m) >= 4 {
			step *= m
			break
		}
	}
	for n := math.Ceil(a.lo / step); n <= a.hi/step+1e-9 && len(out) < 20; n++ {
		out = append(out, n*step)
	}
	return out
}

func newPlot(title, x, y string) *Plot {
	return &Plot{Title: title, X: x, Y: y, Width: plotW, Height: plotH}
}

// sides draws the axes' ticks.
func (p *Plot) sides(x, y axis) {
	for _, v := range y.ticks() {
		h := at(y.place(v))
		p.Grid = append(p.Grid, Stroke{fmt.Sprintf("M%d %sH%d", padLeft, h, plotW-padRight), ""})
		p.Labels = append(p.Labels, Label{at(padLeft - 6), at(y.place(v) + 4), "end", short(v)})
	}
	below := at(plotH - padBelow + 16)
	if x.names != nil {
		for i, n := range x.names {
			if len(x.names) > 8 && i%((len(x.names)+7)/8) != 0 {
				continue
			}
			w := x.name(n)
			p.Labels = append(p.Labels, Label{at(w), below, "middle", cutText(n, 12)})
		}
		return
	}
	for _, v := range x.ticks() {
		p.Labels = append(p.Labels, Label{at(x.place(v)), below, "middle", short(v)})
	}
}

func cutText(s string, n int) string {
	r := []rune(s)
	if len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// histogram counts values in bins, those of tasks that succeeded below the others. Bins of
// values over more than two powers of ten grow with them.
type histogram struct {
	log    bool
	lo, hi float64
	n      [2][40]int // ok, and not
}

func newHistogram(lo, hi float64) *histogram {
	h := &histogram{lo: lo, hi: hi, log: lo > 0 && hi/lo > 100}
	if h.hi <= h.lo {
		h.hi = h.lo + max(math.Abs(h.lo)*0.1, 1e-6)
	}
	return h
}

func (h *histogram) add(v float64, ok bool) {
	lo, hi := h.lo, h.hi
	if h.log {
		lo, hi, v = math.Log(lo), math.Log(hi), math.Log(max(v, h.lo))
	}
	bins := len(h.n[0])
	i := min(max(int((v-lo)/(hi-lo)*float64(bins)), 0), bins-1)
	k := 0
	if !ok {
		k = 1
	}
	h.n[k][i]++
}

func (h *histogram) plot(title, unit string) *Plot {
	p := newPlot(title, unit, "tasks")
	most := 0
	bins := len(h.n[0])
	for i := range bins {
		most = max(most, h.n[0][i]+h.n[1][i])
	}
	x := axis{lo: h.lo, hi: h.hi, log: h.log, from: padLeft, to: plotW - padRight}
	y := numeric([]float64{0, float64(most)}, plotH-padBelow, padTop)
	p.sides(x, y)
	w := (x.to - x.from) / float64(bins)
	for i := range bins {
		base := 0
		for k, class := range []string{"ok", "bad"} {
			n := h.n[k][i]
			if n == 0 {
				continue
			}
			top := y.place(float64(base + n))
			p.Bars = append(p.Bars, Bar{at(x.from + w*float64(i) + 0.5), at(top), at(w - 1), at(max(y.place(float64(base))-top, 0.5)), class,
				fmt.Sprintf("%d tasks (%s)", n, map[string]string{"ok": "ok", "bad": "not ok"}[class])})
			base += n
		}
	}
	return p
}
