package look

import (
	"bufio"
	_ "embed"
	"fmt"
	"html"
	"io"
	"strings"
)

// What is the same on every page: nothing is loaded, and light and dark have their colours.
//
//go:embed report.head.html
var pageHead string

// printer writes HTML. The library's templates find methods by name, so that the linker would
// leave out none of the program's.
type printer struct{ w *bufio.Writer }

// put writes a format, which is of this package, with values that are only text in it.
func (p printer) put(format string, values ...any) {
	for i, v := range values {
		values[i] = escape(fmt.Sprint(v))
	}
	_, _ = fmt.Fprintf(p.w, format, values...) // Flush tells the error
}

// escape makes text of anything, in content and between double quotes.
func escape(s string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r == 0xfffe || r == 0xffff {
			return '\ufffd'
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd")))
}

// Write writes the page.
func (r *Report) Write(w io.Writer) error {
	p := printer{bufio.NewWriter(w)}
	p.put("<!doctype html>\n<html lang=\"en\">\n<head>\n<title>Sweep %s</title>\n", r.Name)
	_, _ = p.w.WriteString(pageHead)
	p.put("</head>\n<body>\n<h1>Sweep %s</h1>\n<p><code>%s</code> · made %s</p>\n<p class=\"command\" tabindex=\"0\"><code>%s</code></p>\n<dl>",
		r.Name, r.Short, r.Made, r.Command)
	for _, f := range r.Facts {
		p.put("<div><dt>%s</dt><dd>%s</dd></div>", f[0], f[1])
	}
	p.put("</dl>\n")
	for _, n := range r.Notes {
		p.put("<p>%s</p>\n", n)
	}
	if len(r.Plots) > 0 {
		p.put("<h2>Progress, time and memory</h2>\n" + legend)
		p.figures(r.Plots)
	}
	if len(r.Parameters) > 0 {
		p.put("<h2>%s against each parameter</h2>\n"+legend, r.Metric)
		p.figures(r.Parameters)
	}
	if r.Parallel != nil {
		p.put("<h2>All parameters together</h2>\n<p class=\"keys\">A line is a task. Its %s ranks low ", r.Metric)
		for i := range 5 {
			p.put("<span class=\"key q%v\"></span>", i)
		}
		p.put(" high.</p>\n<figure class=\"wide\" tabindex=\"0\">")
		p.plot(r.Parallel)
		p.put("</figure>\n")
	}
	p.put("<h2>Failures</h2>\n")
	p.failures(r.Groups)
	p.put("</body>\n</html>\n")
	return p.w.Flush()
}

const legend = "<p class=\"keys\"><span class=\"key ok\"></span> ok <span class=\"key bad\"></span> not ok</p>\n"

func (p printer) figures(all []*Plot) {
	p.put("<div class=\"plots\">")
	for _, f := range all {
		p.put("<figure><h3>%s</h3>", f.Title)
		p.plot(f)
		p.put("</figure>")
	}
	p.put("</div>\n")
}

// plot draws a picture between its own width, which a phone has, and half as much again.
func (p printer) plot(f *Plot) {
	size := ""
	if f.Width != plotW {
		size = fmt.Sprintf("min-width:%dpx;max-width:%dpx", f.Width, f.Width*3/2)
	}
	p.put("<svg viewBox=\"0 0 %v %v\" style=\"%s\" role=\"img\" aria-label=\"%s\">\n", f.Width, f.Height, size, f.Title)
	for _, g := range f.Grid {
		p.put("<path class=\"grid\" d=\"%s\"/>", g.Path)
	}
	for _, b := range f.Bars {
		p.put("<rect class=\"%s\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\"><title>%s</title></rect>", b.Class, b.X, b.Y, b.W, b.H, b.Tip)
	}
	for _, s := range f.Strokes {
		p.put("<path class=\"line %s\" d=\"%s\"/>", s.Class, s.Path)
	}
	for _, d := range f.Dots {
		p.put("<circle class=\"%s\" cx=\"%s\" cy=\"%s\" r=\"3\"><title>%s</title></circle>", d.Class, d.X, d.Y, d.Tip)
	}
	for _, l := range f.Labels {
		p.put("<text x=\"%s\" y=\"%s\" text-anchor=\"%s\">%s", l.X, l.Y, l.Anchor, l.Text)
		if l.Tip != "" {
			p.put("<title>%s</title>", l.Tip)
		}
		p.put("</text>")
	}
	p.put("\n</svg>")
}

func (p printer) failures(groups []Group) {
	if len(groups) == 0 {
		p.put("<p>No task has failed.</p>\n")
		return
	}
	p.put("<div class=\"wide\" tabindex=\"0\"><table><thead><tr><th>Tasks</th><th>Class</th><th>State</th><th>Exit</th>" +
		"<th>Last line</th><th>Such as</th></tr></thead><tbody>\n")
	for _, g := range groups {
		p.put("<tr><td>%v</td><td>%s</td><td>%s</td><td>%v</td><td><code>%s</code></td><td>", g.Count, g.Class, g.State, g.Exit, g.LastLine)
		for _, n := range g.Examples {
			p.put("%v ", n)
		}
		p.put("</td></tr>\n")
	}
	p.put("</tbody></table></div>\n")
}
