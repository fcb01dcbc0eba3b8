package look

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Plot is a picture of a report, in its own coordinates; a page has it as SVG. A unit is about
// a pixel at each width of the page, so that texts stay legible: what is wider than a phone
// scrolls in its box.
type Plot struct {
	Title         string
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
	// Label is a text; Tip is all of one that is cut.
	Label struct{ X, Y, Anchor, Text, Tip string }
)

// The room of a plot, with what stands around its data: above it the name of the vertical axis,
// below it values and the name of the horizontal one, to the left values, which take what they need.
const (
	plotW, plotH               = 320, 230
	padRight, padTop, padBelow = 12, 26, 46
	rowHeight                  = 18  // of the names of an axis
	mostLeft                   = 120 // of what values may take to the left of the data
)

func at(v float64) string { return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64) }

// short is a number for people.
func short(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

// drawn tells whether a number has a place in a picture: differences of others overflow.
func drawn(v float64) bool { return math.Abs(v) <= 1e300 }

// axis maps values, or names, to places.
type axis struct {
	lo, hi   float64
	log      bool
	whole    bool     // it counts: no value lies between 0 and 1
	names    []string // of one that has names
	from, to float64
}

// numeric is the axis of numbers; over more than two powers of ten it is logarithmic.
func numeric(values []float64) axis {
	a := axis{lo: math.Inf(1), hi: math.Inf(-1)}
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
	if a.whole {
		step = max(step, 1)
	}
	for n := math.Ceil(a.lo / step); n <= a.hi/step+1e-9 && len(out) < 20; n++ {
		out = append(out, n*step)
	}
	return out
}

// count is the axis of numbers of tasks.
func count(most int) axis { return axis{hi: float64(max(most, 1)), whole: true} }

// newPlot draws the axes of a plot: their names and values. It gives them their places.
func newPlot(title, xName string, x axis, yName string, y axis) (*Plot, axis, axis) {
	p := &Plot{Title: title, Width: plotW, Height: plotH}
	if y.names != nil {
		p.Height = padTop + padBelow + len(y.names)*rowHeight
	}
	y.from, y.to = float64(p.Height-padBelow), padTop
	if y.names != nil { // they are read from above
		y.from, y.to = y.to, y.from
	}
	marks := y.marks()
	left := 0.0
	for _, m := range marks {
		left = max(left, textWidth(m.text))
	}
	left = min(left, mostLeft) + 8
	x.from, x.to = left, plotW-padRight
	for _, m := range marks {
		p.Grid = append(p.Grid, Stroke{fmt.Sprintf("M%s %sH%d", at(left), at(m.at), plotW-padRight), ""})
		p.label(left-6, m.at+4, "end", m.text, mostLeft)
	}
	end := 0.0 // of the last label
	for _, m := range x.marks() {
		w := textWidth(m.text)
		if middle := min(m.at, plotW-w/2); middle-w/2 >= end {
			p.label(middle, float64(p.Height-padBelow+18), "middle", m.text, w)
			end = middle + w/2 + 6
		}
	}
	p.label(0, 11, "start", yName, plotW)
	p.label((x.from+x.to)/2, float64(p.Height-7), "middle", xName, x.to-x.from)
	return p, x, y
}

// mark is a text beside an axis.
type mark struct {
	at   float64
	text string
}

func (a axis) marks() (all []mark) {
	for _, n := range a.names {
		all = append(all, mark{a.name(n), n})
	}
	if a.names != nil {
		return all
	}
	for digits := 6; digits <= 12; digits++ { // until no two are the same
		all = all[:0]
		for _, v := range a.ticks() {
			all = append(all, mark{a.place(v), strconv.FormatFloat(v, 'g', digits, 64)})
		}
		if len(slices.CompactFunc(slices.Clone(all), func(x, y mark) bool { return x.text == y.text })) == len(all) {
			break
		}
	}
	return all
}

// label puts a text into the picture, as much of it as has room.
func (p *Plot) label(x, y float64, anchor, text string, room float64) {
	l := Label{X: at(x), Y: at(y), Anchor: anchor, Text: fit(text, room)}
	if l.Text != text {
		l.Tip = text
	}
	p.Labels = append(p.Labels, l)
}

// textWidth is how wide a label is at most, in the widest of the usual fonts.
func textWidth(s string) float64 {
	w := 0.0
	for _, r := range s {
		switch {
		case strings.ContainsRune("ijl.,:;'|! ", r):
			w += 0.42
		case strings.ContainsRune("mwMW@%", r) || r > 0x2000 && r < 0x2e80:
			w += 1.05
		case r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r == '-' || r == '_':
			w += 0.65
		case r < 0x2e80:
			w += 0.85
		default: // ideographs, and pictures
			w += 1.4
		}
	}
	return w * 11
}

// fit cuts a text to a room.
func fit(s string, room float64) string {
	if textWidth(s) <= room {
		return s
	}
	w := textWidth("…")
	for i, r := range s {
		if w += textWidth(string(r)); w > room {
			return s[:i] + "…"
		}
	}
	return s
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
	most := 0
	bins := len(h.n[0])
	for i := range bins {
		most = max(most, h.n[0][i]+h.n[1][i])
	}
	p, x, y := newPlot(title, unit, axis{lo: h.lo, hi: h.hi, log: h.log}, "tasks", count(most))
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
