package top

import (
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
)

// helpKeys are the keys that are the same in all lists.
var helpKeys = [][2]string{
	{"1-5, tab, right, left", "another list"},
	{"up, down, j, k, PgUp, PgDn, Home, End", "another row"},
	{"/", "filter: rows that have all the words; enter keeps it, esc takes it away"},
	{"s, S", "sort by the next column; the other way round"},
	{"a", "also what has ended"},
	{"l", "the output of the chosen row beside the list, as it comes; again: close it"},
	{"d, enter", "its details, with why it waits; again: close them"},
	{"J, K", "scroll what stands beside"},
	{"c, r, x, p", "what the last line offers for the row: each that ends something asks first"},
	{"mouse", "a click chooses a row, a list, or a column to sort by; the wheel moves"},
	{"ctrl-L", "draw the screen again"},
	{"ctrl-Z", "back to the shell; fg comes back"},
	{"q, ctrl-C", "leave: what runs goes on; an action is finished first, unless pressed again"},
}

func (m *model) key(k tea.KeyPressMsg) tea.Cmd {
	name := k.String()
	switch {
	case name == "ctrl+c":
		return m.leave()
	case name == "ctrl+z":
		return tea.Suspend
	case name == "ctrl+l":
		return tea.ClearScreen
	case m.ask != nil:
		return m.answer(name)
	case m.typing:
		return m.typed(k, name)
	case m.help:
		m.help = false
		if name == "q" {
			return m.leave()
		}
		return nil
	}
	m.say("", false)
	if cmd, ok := m.move(name); ok {
		return cmd
	}
	l := m.list()
	switch name {
	case "q":
		return m.leave()
	case "?", "h", "f1":
		m.help = true
	case "/":
		m.typing = true
	case "esc":
		m.setFilter("")
		return m.chosen()
	case "s":
		l.sort++
		if l.sort >= len(l.table.Columns) {
			l.sort = -1
		}
		return m.resort()
	case "S":
		l.down = !l.down
		return m.resort()
	case "a":
		m.All = !m.All
		return m.begin()
	case "l":
		return m.open(paneOutput)
	case "d", "enter":
		return m.open(paneDetail)
	case "J":
		m.scroll = max(m.scroll+m.scrollSign(), 0)
	case "K":
		m.scroll = max(m.scroll-m.scrollSign(), 0)
	default:
		if r := m.row(); r != nil {
			for _, a := range r.Actions {
				if a.Key == name {
					return m.do(a, false)
				}
			}
		}
	}
	return nil
}

// scrollSign is the way in which the scroll of the pane grows when one goes down: an output
// is scrolled from its end.
func (m *model) scrollSign() int {
	if m.pane == paneOutput {
		return -1
	}
	return 1
}

// move moves to another list or row; ok is that the key does so.
func (m *model) move(name string) (cmd tea.Cmd, ok bool) {
	l := m.list()
	page := max(m.rowsHigh()-1, 1)
	switch name {
	case "1", "2", "3", "4", "5":
		return m.show(Tab(name[0] - '1')), true
	case "tab", "right":
		return m.show((m.tab + 1) % tabs), true
	case "shift+tab", "left":
		return m.show((m.tab + tabs - 1) % tabs), true
	case "up", "k":
		return m.to(l.at - 1), true
	case "down", "j":
		return m.to(l.at + 1), true
	case "pgup":
		return m.to(l.at - page), true
	case "pgdown":
		return m.to(l.at + page), true
	case "home", "g":
		return m.to(0), true
	case "end", "G":
		return m.to(len(l.shown) - 1), true
	}
	return nil, false
}

// show shows another list, and reads it where that was long ago.
func (m *model) show(t Tab) tea.Cmd {
	m.tab, m.about = t, ""
	m.place()
	cmd := m.chosen()
	if l := m.list(); m.Now().Sub(l.read) > m.wait {
		return tea.Batch(cmd, m.begin())
	}
	return cmd
}

func (m *model) to(at int) tea.Cmd {
	l := m.list()
	l.at = max(min(at, len(l.shown)-1), 0)
	m.place()
	return m.chosen()
}

func (m *model) resort() tea.Cmd {
	l := m.list()
	key := l.key()
	l.arrange()
	l.choose(key)
	m.place()
	return m.chosen()
}

func (m *model) open(p pane) tea.Cmd {
	m.wide, m.scroll = true, 0
	if m.pane == p {
		p = paneNone
	}
	m.pane = p
	m.about = ""
	m.place()
	return m.chosen()
}

func (m *model) answer(name string) tea.Cmd {
	a := *m.ask
	m.ask = nil
	if name != "y" && name != "Y" {
		m.say(a.Name+": not done", false)
		return nil
	}
	return m.do(a, true)
}

// typed is a key of the filter.
func (m *model) typed(k tea.KeyPressMsg, name string) tea.Cmd {
	f := m.list().filter
	switch name {
	case "enter":
		m.typing = false
	case "esc":
		m.typing = false
		m.setFilter("")
	case "backspace":
		_, n := utf8.DecodeLastRuneInString(f)
		m.setFilter(f[:len(f)-n])
	case "ctrl+u":
		m.setFilter("")
	default:
		if k.Text != "" {
			m.setFilter(f + k.Text)
		}
	}
	return m.chosen()
}

// click chooses what stands there.
func (m *model) click(e tea.Mouse) tea.Cmd {
	if e.Button != tea.MouseLeft || m.ask != nil || m.help {
		return nil
	}
	m.say("", false)
	switch row := e.Y - rowsAt; {
	case e.Y == tabsAt:
		for t, x := 0, 0; t < int(tabs); t++ {
			w := len(m.tabText(Tab(t)))
			if e.X >= x && e.X < x+w {
				return m.show(Tab(t))
			}
			x += w + len(gap)
		}
	case e.X >= m.listWide():
	case e.Y == headAt:
		x := len(mark)
		for _, c := range m.fitted() {
			if e.X >= x && e.X < x+c.wide {
				l := m.list()
				l.down = l.sort == c.at && !l.down
				l.sort = c.at
				return m.resort()
			}
			x += c.wide + len(gap)
		}
	case row >= 0 && row < m.rowsHigh() && m.list().top+row < len(m.list().shown):
		return m.to(m.list().top + row)
	}
	return nil
}

func (m *model) wheel(e tea.Mouse) tea.Cmd {
	by := 3
	switch {
	case m.ask != nil || m.help:
		return nil
	case e.Button == tea.MouseWheelUp:
		by = -by
	case e.Button != tea.MouseWheelDown:
		return nil
	}
	if e.Y >= rowsAt+m.rowsHigh() || e.X > m.listWide() {
		m.scroll = max(m.scroll+by*m.scrollSign(), 0)
		return nil
	}
	return m.to(m.list().at + by)
}
