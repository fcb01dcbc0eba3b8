// Screen makes a picture of what a terminal shows: text with escape sequences, as tmux
// captures it, becomes an SVG without anything that a browser would fetch or run. It is
// read on light and on dark ground, as the reader's browser is set.
package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	uv "github.com/charmbracelet/ultraviolet"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/vt"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "screen:", err)
		os.Exit(1)
	}
}

func run(args []string, in io.Reader, out io.Writer) error {
	var size [2]int
	for i := range size {
		if len(args) != len(size) {
			return fmt.Errorf("usage: screen COLUMNS LINES <CAPTURED >PICTURE")
		}
		n, err := strconv.Atoi(args[i])
		if err != nil || n < 1 || n > 500 {
			return fmt.Errorf("%q is no number of columns or lines from 1 to 500", args[i])
		}
		size[i] = n
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	_, err = out.Write(picture(text, size[0], size[1]))
	return err
}

// Sizes in pixels: of a cell, of a letter, of the edge around all.
const (
	cellWide = 8
	cellHigh = 18
	letter   = 13
	edge     = 12
)

// The classes: 0 to 7 are the first colours of a terminal, in what is read well on white and
// on the dark ground of the site.
const style = `
.ground { fill: #fff; stroke: #d9dde2 }
text { fill: #1d2329; white-space: pre }
.reverse { fill: #fff } .mark { fill: #1d2329 }
.bold { font-weight: bold } .faint { fill: #59636e }
.c1 { fill: #b3261e } .c2 { fill: #1a6b2f } .c3 { fill: #7a4a00 } .c4 { fill: #0b5a8f } .c5 { fill: #7b3294 } .c6 { fill: #0a6570 }
@media (prefers-color-scheme: dark) {
.ground { fill: #14181c; stroke: #363e46 }
text { fill: #dfe4e8 }
.reverse { fill: #14181c } .mark { fill: #dfe4e8 }
.faint { fill: #9aa5b0 }
.c1 { fill: #ff8a80 } .c2 { fill: #7ed491 } .c3 { fill: #e0b070 } .c4 { fill: #7cbce8 } .c5 { fill: #d5a0ea } .c6 { fill: #6fd0dc }
}
`

// picture draws the cells of a terminal, those of one style together. Each such text says how
// wide it is, so that columns stand below each other in whatever font there is.
func picture(text []byte, columns, lines int) []byte {
	screen := vt.NewEmulator(columns, lines)
	_, _ = screen.WriteString(ansi.SetModeLineFeedNewLine) // a capture has bare line feeds
	_, _ = screen.Write(bytes.TrimRight(text, "\n"))
	wide, high := columns*cellWide+2*edge, lines*cellHigh+2*edge
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" xml:space="preserve" `, wide, high, wide, high)
	fmt.Fprintf(&b, `font-family="ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="%d">`+"\n<style>%s</style>\n", letter, style)
	fmt.Fprintf(&b, `<rect class="ground" x="0.5" y="0.5" width="%d" height="%d" rx="6"/>`+"\n", wide-1, high-1)
	for y := range lines {
		for x := 0; x < columns; {
			from, cell := x, screen.CellAt(x, y)
			var words strings.Builder
			for x < columns {
				c := screen.CellAt(x, y)
				if c == nil || cell == nil || !c.Style.Equal(&cell.Style) {
					break
				}
				words.WriteString(c.Content)
				x += max(c.Width, 1)
			}
			if x == from {
				x++
				continue
			}
			draw(&b, from, x, y, words.String(), cell.Style)
		}
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func draw(b *bytes.Buffer, from, to, y int, words string, style uv.Style) {
	classes := classesOf(style)
	left, top := edge+from*cellWide, edge+y*cellHigh
	if style.Attrs&uv.AttrReverse != 0 {
		fmt.Fprintf(b, `<rect class="mark" x="%d" y="%d" width="%d" height="%d"/>`+"\n", left, top, (to-from)*cellWide, cellHigh)
	} else {
		shown := strings.TrimLeft(words, " ")
		left += (len(words) - len(shown)) * cellWide
		from += len(words) - len(shown)
		words = strings.TrimRight(shown, " ")
		to -= len(shown) - len(words)
	}
	if words == "" {
		return
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" textLength="%d" lengthAdjust="spacingAndGlyphs"`, left, top+cellHigh-5, (to-from)*cellWide)
	if len(classes) > 0 {
		fmt.Fprintf(b, ` class="%s"`, strings.Join(classes, " "))
	}
	b.WriteString(">")
	_ = xml.EscapeText(b, []byte(words)) // a buffer takes all
	b.WriteString("</text>\n")
}

func classesOf(style uv.Style) (classes []string) {
	for _, a := range []struct {
		bit  uint8
		name string
	}{{uv.AttrBold, "bold"}, {uv.AttrFaint, "faint"}, {uv.AttrReverse, "reverse"}} {
		if style.Attrs&a.bit != 0 {
			classes = append(classes, a.name)
		}
	}
	if c, ok := style.Fg.(ansi.BasicColor); ok && c%8 > 0 && c%8 < 7 {
		classes = append(classes, fmt.Sprintf("c%d", c%8))
	}
	return classes
}
