package top

import (
	"fmt"
	"strings"

	"berth/jobs"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// Lines of the screen.
const (
	tabsAt = 1
	headAt = 2
	rowsAt = 3
	foot   = 2 // message, keys
)

const (
	gap  = "  "
	mark = "  " // before a row; "> " is the chosen one
)

// fromWide is the width from which the pane stands beside the list, not below it.
const fromWide = 110

func (m *model) beside() bool { return m.width >= fromWide }

// listWide is the width of the list.
func (m *model) listWide() int {
	if m.pane != paneNone && m.beside() {
		return max(m.width*11/20, 66)
	}
	return m.width
}

// rowsHigh is how many rows of the list there is room for.
func (m *model) rowsHigh() int {
	all := max(m.height-rowsAt-foot, 1)
	if m.pane != paneNone && !m.beside() {
		return max(all-m.paneHigh(), 1)
	}
	return all
}

// paneHigh is the height of the pane, with its title.
func (m *model) paneHigh() int {
	all := max(m.height-rowsAt-foot, 1)
	if m.beside() {
		return all + 1
	}
	return all / 2
}

// plain reports whether each byte of a text is a character that takes one place: most are,
// and need no closer look.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// width is how many places a text takes.
func width(s string) int {
	if plain(s) {
		return len(s)
	}
	return ansi.StringWidth(s)
}

// cell fits untrusted text into a width.
func cell(s string, wide int, right bool) string {
	if !plain(s) {
		s = jobs.Printable(s)
	}
	n := width(s)
	if n > wide {
		s = ansi.Truncate(s, wide, "~")
		n = ansi.StringWidth(s)
	}
	pad := strings.Repeat(" ", max(wide-n, 0))
	if right {
		return pad + s
	}
	return s + pad
}

// styles of the screen: the terminal's own first colours, and where it has none, none of them.
var (
	strong = ansi.NewStyle().Bold()
	faint  = ansi.NewStyle().Faint()
	picked = ansi.NewStyle().Reverse(true)
	alarm  = ansi.NewStyle().Bold().ForegroundColor(ansi.Red)
	tones  = map[Tone]ansi.Style{
		Running: ansi.NewStyle().ForegroundColor(ansi.Cyan), Waiting: ansi.NewStyle().ForegroundColor(ansi.Yellow),
		Good: ansi.NewStyle().ForegroundColor(ansi.Green), Bad: ansi.NewStyle().ForegroundColor(ansi.Red),
	}
)

// View draws the screen. The renderer sends what has changed.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.clipped(), "\n"))
	v.AltScreen, v.MouseMode = true, tea.MouseModeCellMotion
	return v
}

// clipped is the screen, cut where the terminal is smaller than what is always shown.
func (m *model) clipped() []string {
	lines := m.screen()
	if m.width < 40 {
		for i, l := range lines {
			lines[i] = ansi.Truncate(l, m.width, "")
		}
	}
	return lines
}

func (m *model) screen() []string {
	if m.help {
		return m.helpScreen()
	}
	lines := make([]string, 0, m.height)
	clock := gap + "reading"
	if !m.read.IsZero() {
		clock = gap + m.read.Format("15:04:05")
	}
	lines = append(lines, strong.Styled("berth top")+cell(gap+m.summary, max(m.width-len("berth top")-len(clock), 0), false)+clock)
	lines = append(lines, m.tabLine())
	body := m.listLines()
	switch {
	case m.pane == paneNone:
	case m.beside():
		side := m.paneLines(m.width - m.listWide() - 2)
		for i := range min(len(body), len(side)) { // the title stands beside the head
			body[i] += faint.Styled("|") + " " + side[i]
		}
	default:
		body = append(body, m.paneLines(m.width)...)
	}
	lines = append(lines, body...)
	lines = append(lines, m.messageLine(), cell(m.keyLine(), m.width, false))
	return lines[:min(len(lines), max(m.height, 1))]
}

func (m *model) tabText(t Tab) string {
	s := fmt.Sprintf("%d %s", t+1, titles[t])
	if l := &m.lists[t]; len(l.table.Columns) > 0 {
		s += fmt.Sprintf(" %d", len(l.table.Rows))
	}
	return s
}

func (m *model) tabLine() string {
	var b strings.Builder
	left := m.width
	for t := range tabs {
		text := m.tabText(t)
		if t > 0 {
			text = gap + text
		}
		text = cell(text, min(len(text), left), false)
		left -= len(text)
		if t == m.tab {
			trimmed := strings.TrimPrefix(text, gap)
			b.WriteString(text[:len(text)-len(trimmed)] + picked.Styled(trimmed))
		} else {
			b.WriteString(text)
		}
	}
	return b.String()
}

// fitting is a column as it is drawn.
type fitting struct {
	Column
	at, wide int
}

// fitted are the columns that there is room for, with their widths.
func (m *model) fitted() []fitting {
	l := m.list()
	var out []fitting
	for i, c := range l.table.Columns {
		f := fitting{c, i, width(c.Title)}
		for _, n := range l.shown[min(l.top, len(l.shown)):min(l.top+m.rowsHigh(), len(l.shown))] {
			f.wide = max(f.wide, width(l.table.Rows[n].Cells[i]))
		}
		if c.Most > 0 {
			f.wide = min(f.wide, max(c.Most, len(c.Title)))
		}
		out = append(out, f)
	}
	room := m.listWide() - len(mark) - 1
	for {
		over, rest, drop := -len(gap)-room, -1, -1
		for i, f := range out {
			over += f.wide + len(gap)
			if f.Most == 0 {
				rest = i
			}
			if f.Drop > 0 && (drop < 0 || f.Drop > out[drop].Drop) {
				drop = i
			}
		}
		if over <= 0 {
			return out
		}
		// The column without a bound is cut first, down to what still says something.
		if rest >= 0 && out[rest].wide-over >= min(out[rest].wide, leastRest) {
			out[rest].wide -= over
			return out
		}
		if drop < 0 {
			if rest >= 0 {
				out[rest].wide = max(out[rest].wide-over, 1)
			}
			return out
		}
		out = append(out[:drop], out[drop+1:]...)
	}
}

// leastRest is how narrow a column is made before another one is left out.
const leastRest = 14

// listLines are the head and the rows, as wide as the list.
func (m *model) listLines() []string {
	l, wide, high := m.list(), m.listWide(), m.rowsHigh()
	cols := m.fitted()
	head := make([]string, len(cols))
	for i, c := range cols {
		title := c.Title
		if c.at == l.sort {
			title += map[bool]string{false: "^", true: "v"}[l.down]
		}
		head[i] = cell(title, c.wide, c.Right)
	}
	lines := []string{strong.Styled(cell(mark+strings.Join(head, gap), wide, false))}
	for i := range high {
		n := l.top + i
		if n >= len(l.shown) {
			text := ""
			if i == 0 {
				text = m.emptyText()
			}
			lines = append(lines, cell(mark+text, wide, false))
			continue
		}
		r := &l.table.Rows[l.shown[n]]
		cells := make([]string, len(cols))
		for j, c := range cols {
			cells[j] = cell(r.Cells[c.at], c.wide, c.Right)
		}
		text := cell(mark+strings.Join(cells, gap), wide, false)
		switch style, ok := tones[r.Tone]; {
		case n == l.at:
			text = picked.Styled(">" + text[1:])
		case ok:
			text = style.Styled(text)
		}
		lines = append(lines, text)
	}
	return lines
}

func (m *model) emptyText() string {
	l := m.list()
	switch {
	case len(l.table.Columns) == 0:
		return "reading ..."
	case l.filter != "":
		return fmt.Sprintf("none of %d has %q; esc shows all", len(l.table.Rows), l.filter)
	}
	return l.table.Empty
}

// paneLines are the title and the lines of the pane.
func (m *model) paneLines(wide int) []string {
	high := max(m.paneHigh()-1, 0)
	title, body := "", []string(nil)
	r := m.row()
	switch {
	case r == nil:
		title = "nothing is chosen"
	case m.pane == paneDetail:
		title = "details of " + r.Key
		body = m.detailLines(wide)
		m.scroll = min(m.scroll, max(len(body)-high, 0))
		body = body[m.scroll:]
	case m.out == nil:
		title = "output: there is none in this list"
	default:
		title = "output of " + r.Key
		var more int
		body, more = m.out.last(high, m.scroll)
		m.scroll = min(m.scroll, more)
		switch {
		case m.scroll > 0:
			title += fmt.Sprintf(", %d lines before the last", m.scroll)
		case len(body) == 0 && m.outErr != nil:
			body = []string{m.outErr.Error()}
		case len(body) == 0:
			body = []string{"nothing is written yet"}
		}
	}
	lines := []string{strong.Styled(cell(title, wide, false))}
	if !m.beside() {
		lines[0] = strong.Styled(cell("-- "+title+" "+strings.Repeat("-", m.width), wide, false))
	}
	for i := range high {
		text := ""
		if i < len(body) {
			text = body[i]
		}
		lines = append(lines, cell(text, wide, false))
	}
	return lines
}

// detailLines are labels and values, broken into lines.
func (m *model) detailLines(wide int) []string {
	if m.about == "" {
		return []string{"reading ..."}
	}
	label := 0
	for _, d := range m.detail {
		label = max(label, len(d[0]))
	}
	label = min(label, 14) + len(gap)
	var out []string
	for _, d := range m.detail {
		first := cell(d[0], label, false)
		for _, s := range strings.Split(ansi.Wrap(jobs.Printable(d[1]), max(wide-label, 10), "/"), "\n") {
			out = append(out, first+s)
			first = strings.Repeat(" ", label)
		}
	}
	return out
}

func (m *model) messageLine() string {
	l := m.list()
	switch {
	case m.leaving:
		return cell("the action is finished first; again leaves at once", m.width, false)
	case m.ask != nil:
		return alarm.Styled(cell(m.ask.Ask+" y/n", m.width, false))
	case m.typing:
		return cell("filter: "+l.filter+"_", m.width, false)
	case m.message != "" && m.bad:
		return alarm.Styled(cell(m.message, m.width, false))
	case m.message != "":
		return cell(m.message, m.width, false)
	case l.filter != "":
		return cell(fmt.Sprintf("filter: %s (%d of %d; esc shows all)", l.filter, len(l.shown), len(l.table.Rows)), m.width, false)
	case len(l.shown) > m.rowsHigh():
		return cell(fmt.Sprintf("%d to %d of %d", l.top+1, min(l.top+m.rowsHigh(), len(l.shown)), len(l.shown)), m.width, false)
	}
	return cell("", m.width, false)
}

// keyLine says what can be pressed now.
func (m *model) keyLine() string {
	switch {
	case m.ask != nil:
		return "y does it, any other key does not"
	case m.typing:
		return "enter keeps the filter, esc takes it away"
	}
	var words []string
	if r := m.row(); r != nil {
		for _, a := range r.Actions {
			words = append(words, a.Key+" "+a.Name)
		}
	}
	ended := "a ended, too"
	if m.All {
		ended = "a only open"
	}
	return strings.Join(append(words, "/ filter", "s sort", "l output", "d details", ended, "? keys", "q quit"), gap)
}

func (m *model) helpScreen() []string {
	lines := []string{strong.Styled("Keys of berth top"), ""}
	wide := 0
	for _, k := range helpKeys {
		wide = max(wide, len(k[0]))
	}
	wide = min(wide, m.width/2)
	for _, k := range helpKeys {
		first := cell(k[0], wide, false)
		for _, s := range strings.Split(ansi.Wrap(k[1], max(m.width-wide-len(gap), 10), ""), "\n") {
			lines = append(lines, first+gap+s)
			first = strings.Repeat(" ", wide)
		}
	}
	lines = append(lines, "", "Any key goes back.")
	return lines[:min(len(lines), max(m.height, 1))]
}
