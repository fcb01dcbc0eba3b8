// Package mdtext shows pages of Markdown as text of a terminal: what docs/ is written in,
// and no more. Paragraphs, list items and the cells of tables are wrapped, code is kept
// as it is.
package mdtext

import (
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// Style says how a page is shown.
type Style struct {
	Width int  // columns that text is wrapped to; code may be wider
	Ink   bool // bold and underlined by escape sequences, else by the marks of Markdown
}

const (
	codeIndent = "    "
	columnGap  = "  "
	// leastColumn is how narrow a table's column becomes at most, in columns.
	leastColumn = 8
)

// page is what one call of Render has written.
type page struct {
	Style
	out    strings.Builder
	topics []string // the pages that it links to, in their order
}

// Render returns the text, and the files of the links to other pages (network.md), each
// once.
func Render(markdown string, style Style) (text string, links []string) {
	p := &page{Style: style}
	lines := strings.Split(strings.ReplaceAll(markdown, "\t", codeIndent), "\n")
	for i := 0; i < len(lines); {
		i = p.block(lines, i)
	}
	return strings.TrimRight(p.out.String(), "\n") + "\n", p.topics
}

// block writes what begins at line i, and returns the line behind it.
func (p *page) block(lines []string, i int) int {
	line := strings.TrimLeft(lines[i], " ")
	indent := lines[i][:len(lines[i])-len(line)]
	end := i + 1
	switch {
	case line == "":
		p.gap()
	case strings.HasPrefix(line, "<!--"):
		for ; end < len(lines) && !strings.Contains(lines[end-1], "-->"); end++ {
		}
	case strings.HasPrefix(line, "```"):
		for ; end < len(lines) && !strings.HasPrefix(strings.TrimLeft(lines[end], " "), "```"); end++ {
			p.code(indent, lines[end])
		}
		end++
	case isHeading(line):
		p.heading(line)
	case strings.HasPrefix(line, "|"):
		for ; end < len(lines) && strings.HasPrefix(strings.TrimLeft(lines[end], " "), "|"); end++ {
		}
		p.table(lines[i:end])
	default:
		mark := itemMark(line)
		words := []string{line[len(mark):]}
		for ; end < len(lines) && continues(lines[end]); end++ {
			words = append(words, strings.TrimSpace(lines[end]))
		}
		p.wrapped(indent+mark, strings.Join(words, " "))
	}
	return end
}

// continues reports whether a line is part of the paragraph or list item before it.
func continues(line string) bool {
	line = strings.TrimLeft(line, " ")
	return line != "" && itemMark(line) == "" && !strings.HasPrefix(line, "```") && !strings.HasPrefix(line, "|") &&
		!strings.HasPrefix(line, "<!--") && !isHeading(line)
}

func isHeading(line string) bool {
	return strings.HasPrefix(strings.TrimLeft(line, "#"), " ") && strings.HasPrefix(line, "#")
}

// itemMark is what a list item begins with: "- ", "* ", "12. "; "" is that it is none.
func itemMark(line string) string {
	digits := len(line) - len(strings.TrimLeft(line, "0123456789"))
	switch {
	case strings.HasPrefix(line, "- "), strings.HasPrefix(line, "* "):
		return line[:2]
	case digits > 0 && strings.HasPrefix(line[digits:], ". "):
		return line[:digits+2]
	}
	return ""
}

// gap writes an empty line, unless there is one.
func (p *page) gap() {
	if s := p.out.String(); s != "" && !strings.HasSuffix(s, "\n\n") {
		p.out.WriteByte('\n')
	}
}

func (p *page) code(indent, line string) {
	line = codeIndent + indent + strings.TrimPrefix(line, indent)
	p.out.WriteString(strings.TrimRight(line, " ") + "\n")
}

func (p *page) heading(line string) {
	p.gap()
	mark, title, _ := strings.Cut(line, " ")
	longest := 0
	for _, part := range wrap(p.inline(title), p.Width) {
		longest = max(longest, columns(part))
		if p.Ink {
			part = bold(ansi.Strip(part))
		}
		p.out.WriteString(part + "\n")
	}
	if under := map[string]string{"#": "=", "##": "-"}[mark]; under != "" && !p.Ink {
		p.out.WriteString(strings.Repeat(under, longest) + "\n")
	}
	p.gap()
}

// wrapped writes a text whose first line begins with a mark, and the others below the text.
func (p *page) wrapped(mark, text string) {
	below := strings.Repeat(" ", len(mark))
	for i, line := range wrap(p.inline(text), max(leastColumn, p.Width-len(mark))) {
		if i > 0 {
			mark = below
		}
		p.out.WriteString(mark + line + "\n")
	}
}

// wrap breaks a text at its spaces. A longer word has a line of its own.
func wrap(text string, width int) (lines []string) {
	var line strings.Builder
	used := 0
	for word := range strings.FieldsSeq(text) {
		n := columns(word)
		if line.Len() > 0 && used+1+n > width {
			lines, used = append(lines, line.String()), 0
			line.Reset()
		}
		if line.Len() > 0 {
			line.WriteByte(' ')
			used++
		}
		line.WriteString(word)
		used += n
	}
	return append(lines, line.String())
}

// columns is how wide a text is on a terminal. Plain ASCII, which is most of a page, is
// not looked at for wide characters.
func columns(text string) int {
	for i := range len(text) {
		if text[i] < ' ' || text[i] > '~' {
			return ansi.StringWidth(text)
		}
	}
	return len(text)
}

// table writes rows with their columns one below the other, as wide as there is room.
func (p *page) table(lines []string) {
	var rows [][]string
	count := 0
	for i, line := range lines {
		if i == 1 { // the line below the header
			continue
		}
		cells := cells(line)
		for j := range cells {
			cells[j] = p.inline(cells[j])
		}
		rows = append(rows, cells)
		count = max(count, len(cells))
	}
	natural, least := make([]int, count), make([]int, count)
	for _, cells := range rows {
		for j, cell := range cells {
			natural[j] = max(natural[j], columns(cell))
			for word := range strings.FieldsSeq(cell) {
				least[j] = max(least[j], columns(word))
			}
		}
	}
	widths, fits := share(natural, least, p.Width-len(columnGap)*(count-1))
	if !fits {
		p.stack(rows)
		return
	}
	for i, cells := range rows {
		if i == 0 && p.Ink {
			for j, cell := range cells {
				cells[j] = bold(ansi.Strip(cell))
			}
		}
		p.row(cells, widths)
		if i == 0 {
			for j, w := range widths {
				cells[j] = strings.Repeat("-", w)
			}
			p.row(cells, widths)
		}
	}
}

func (p *page) row(cells []string, widths []int) {
	parts, height := make([][]string, len(cells)), 0
	for j, cell := range cells {
		parts[j] = wrap(cell, widths[j])
		height = max(height, len(parts[j]))
	}
	for n := range height {
		var line strings.Builder
		for j, part := range parts {
			text := ""
			if n < len(part) {
				text = part[n]
			}
			line.WriteString(text)
			if j < len(parts)-1 {
				line.WriteString(strings.Repeat(" ", widths[j]-columns(text)) + columnGap)
			}
		}
		p.out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// stack writes a table that is too wide: each row below the other, its first cell above
// the rest of them, each with its header.
func (p *page) stack(rows [][]string) {
	for i, cells := range rows {
		for j, cell := range cells {
			switch {
			case i == 0 || cell == "":
			case j == 0:
				p.lines("", rows[0][0]+": "+cell)
			default:
				p.out.WriteString(codeIndent + rows[0][j] + ":\n")
				p.lines(codeIndent+columnGap, cell)
			}
		}
	}
}

// lines writes a text that has been inlined, each line behind an indent.
func (p *page) lines(indent, text string) {
	for _, line := range wrap(text, max(leastColumn, p.Width-len(indent))) {
		p.out.WriteString(indent + line + "\n")
	}
}

// share gives columns their natural widths, and takes from the widest what is more than
// there is room for. No column is narrower than its longest word.
func share(natural, least []int, room int) (widths []int, fits bool) {
	widths = slices.Clone(natural)
	total := 0
	for _, w := range widths {
		total += w
	}
	for ; total > room; total-- {
		widest := -1
		for j, w := range widths {
			if w > max(least[j], leastColumn) && (widest < 0 || w > widths[widest]) {
				widest = j
			}
		}
		if widest < 0 {
			return nil, false
		}
		widths[widest]--
	}
	return widths, true
}

// cells are those of a table's line; a bar behind a backslash is part of one.
func cells(line string) (out []string) {
	line = strings.ReplaceAll(strings.TrimSpace(line), `\|`, "\x00")
	for cell := range strings.SplitSeq(strings.Trim(line, "|"), "|") {
		out = append(out, strings.ReplaceAll(strings.TrimSpace(cell), "\x00", "|"))
	}
	return out
}

func bold(s string) string { return "\x1b[1m" + s + "\x1b[22m" }
