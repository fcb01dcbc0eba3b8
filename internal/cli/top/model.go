package top

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"berth/jobs"

	tea "charm.land/bubbletea/v2"
)

// How often something is done.
const (
	// share is how many times as long as a reading has used a CPU the next one waits: half a
	// percent of a core. rarely is the longest that it waits.
	share  = 200
	rarely = time.Minute
	// behind is after how many readings lists are read that are not shown.
	behind = 10
	// pace is how often the files of the shown output are looked at.
	pace = time.Second
	// settled is how long a row is chosen before its details are read.
	settled = 150 * time.Millisecond
)

// pane is what is shown beside the list.
type pane int

const (
	paneNone pane = iota
	paneOutput
	paneDetail
)

// list is a table with what the person has made of it.
type list struct {
	table  Table
	read   time.Time // zero is never
	shown  []int     // indexes of the rows that pass the filter, in the order of the screen
	at     int       // the chosen one of them
	top    int       // the first one on the screen
	sort   int       // a column, -1 is as they were read
	down   bool
	filter string
}

// model is the whole state of the screen.
type model struct {
	Config
	ctx           context.Context
	cpu           func() time.Duration
	tick          func(time.Duration, func(time.Time) tea.Msg) tea.Cmd
	width, height int
	tab           Tab
	lists         [tabs]list
	summary       string
	reading       bool
	again         bool // read at once after the reading that goes on
	round         int  // of readings, so that a tick of an earlier plan does nothing
	count         int  // readings so far
	read          time.Time
	wait          time.Duration

	pane    pane
	wide    bool // the person has chosen the pane: it is not opened by itself
	scroll  int
	out     *Lines
	next    func() error
	of      string // the row and output that out is of
	outErr  error
	looking bool // at out
	detail  [][2]string
	about   string // the row that detail is of
	asked   int    // times that details were asked for
	told    int    // which of them detail answers

	ask     *Action
	doing   bool
	leaving bool  // when what is being done is done
	failed  error // how that failed, after which the screen was left
	typing  bool
	help    bool
	message string
	bad     bool // the message is of a failure
}

func newModel(ctx context.Context, c Config) *model {
	m := &model{Config: c, ctx: ctx, tab: c.Tab, cpu: func() time.Duration { return 0 }, tick: tea.Tick, width: 80, height: 24}
	for i := range m.lists {
		m.lists[i].sort = -1
	}
	return m
}

// rowID is a row of a list: lists may share keys.
type rowID struct {
	tab Tab
	key string
}

// Messages to the model.
type (
	readMsg struct {
		Snapshot
		quick bool
		cost  time.Duration
	}
	readTick struct{ round int }
	outTick  struct{ of *Lines }
	outMsg   struct {
		of  *Lines
		err error
	}
	settledMsg struct{ of rowID }
	detailMsg  struct {
		of    rowID
		asked int
		rows  [][2]string
		err   error
	}
	doneMsg struct {
		text string
		err  error
	}
)

// Init reads the records first, which is quick, and then all.
func (m *model) Init() tea.Cmd {
	m.reading = true
	return func() tea.Msg {
		return readMsg{Snapshot: m.Read(m.ctx, Want{Quick: true, All: m.All}), quick: true}
	}
}

// begin begins a reading of the list that is shown, of the jobs, and now and then of the others.
func (m *model) begin() tea.Cmd {
	if m.reading {
		m.again = true
		return nil
	}
	m.reading, m.again = true, false
	m.round++
	want := Want{All: m.All}
	for t := range tabs {
		want.Tabs[t] = t == m.tab || t == Jobs || m.lists[t].read.IsZero() || m.count%behind == 0
	}
	m.count++
	return func() tea.Msg {
		before := m.cpu()
		s := m.Read(m.ctx, want)
		return readMsg{Snapshot: s, cost: m.cpu() - before}
	}
}

func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
		if !m.wide {
			m.pane = paneNone
			if m.beside() {
				m.pane = paneOutput
			}
		}
		m.place()
		return m, m.chosen()
	case tea.KeyPressMsg:
		return m, m.key(msg)
	case tea.PasteMsg:
		if m.typing {
			m.setFilter(m.list().filter + msg.Content)
		}
	case tea.MouseClickMsg:
		return m, m.click(msg.Mouse())
	case tea.MouseWheelMsg:
		return m, m.wheel(msg.Mouse())
	case readMsg:
		return m, m.took(msg)
	case readTick:
		if msg.round == m.round {
			return m, m.begin()
		}
	case outTick:
		if msg.of == m.out {
			m.looking = false
			return m, m.look()
		}
	case outMsg:
		if msg.of == m.out { // else another output is shown by now
			m.outErr = msg.err
			return m, m.tick(pace, func(time.Time) tea.Msg { return outTick{msg.of} })
		}
	case settledMsg:
		if r := m.row(); r != nil && msg.of == (rowID{m.tab, r.Key}) && m.pane == paneDetail {
			return m, m.readDetail(r)
		}
	case detailMsg:
		if r := m.row(); r != nil && msg.of == (rowID{m.tab, r.Key}) && msg.asked > m.told {
			m.detail, m.about, m.told = msg.rows, r.Key, msg.asked
			if msg.err != nil {
				m.detail = append(m.detail, [2]string{"error", msg.err.Error()})
				if h := jobs.HintOf(msg.err); h != "" {
					m.detail = append(m.detail, [2]string{"hint", h})
				}
			}
		}
	case doneMsg:
		m.doing = false
		m.say(msg.text, false)
		if msg.err != nil {
			text := msg.err.Error()
			if h := jobs.HintOf(msg.err); h != "" {
				text += "; " + h
			}
			m.say(text, true)
		}
		if m.leaving {
			m.failed = msg.err
			return m, tea.Quit
		}
		return m, m.begin()
	}
	return m, nil
}

func (m *model) say(text string, bad bool) { m.message, m.bad = text, bad }

// took puts what was read in place, and plans the next reading.
func (m *model) took(msg readMsg) tea.Cmd {
	now := m.Now()
	m.reading, m.read, m.summary = false, now, msg.Summary
	for t, table := range msg.Tables {
		l := &m.lists[t]
		key := l.key()
		l.table = table
		if !msg.quick {
			l.read = now
		}
		l.arrange()
		l.choose(key)
	}
	if n := len(msg.Said); n > 0 {
		m.say(msg.Said[n-1], true)
	}
	m.place()
	if msg.quick || m.again {
		return tea.Batch(m.chosen(), m.begin())
	}
	m.wait = min(max(m.Every, share*msg.cost), rarely)
	round := m.round
	cmds := []tea.Cmd{m.chosen(), m.tick(m.wait, func(time.Time) tea.Msg { return readTick{round} })}
	if r := m.row(); r != nil && m.pane == paneDetail {
		cmds = append(cmds, m.readDetail(r))
	}
	return tea.Batch(cmds...)
}

func (m *model) list() *list { return &m.lists[m.tab] }

// row is the chosen one, or nil.
func (m *model) row() *Row { return m.list().row() }

func (l *list) row() *Row {
	if l.at < 0 || l.at >= len(l.shown) {
		return nil
	}
	return &l.table.Rows[l.shown[l.at]]
}

func (l *list) key() string {
	if r := l.row(); r != nil {
		return r.Key
	}
	return ""
}

// arrange filters and sorts the rows.
func (l *list) arrange() {
	l.shown = l.shown[:0]
	words := strings.Fields(strings.ToLower(l.filter))
	for i := range l.table.Rows {
		if l.table.Rows[i].has(words) {
			l.shown = append(l.shown, i)
		}
	}
	if l.sort < 0 || l.sort >= len(l.table.Columns) {
		return
	}
	slices.SortStableFunc(l.shown, func(a, b int) int {
		c := l.table.Rows[a].compare(&l.table.Rows[b], l.sort)
		if l.down {
			return -c
		}
		return c
	})
}

// has reports whether each word stands in one of the cells.
func (r *Row) has(words []string) bool {
	for _, w := range words {
		if !slices.ContainsFunc(r.Cells, func(c string) bool { return strings.Contains(strings.ToLower(c), w) }) {
			return false
		}
	}
	return true
}

func (r *Row) compare(o *Row, column int) int {
	return cmp.Or(cmp.Compare(r.By[column], o.By[column]), strings.Compare(r.Cells[column], o.Cells[column]))
}

// choose chooses the row with this key, or where that is gone, the one in its place.
func (l *list) choose(key string) {
	for i, n := range l.shown {
		if l.table.Rows[n].Key == key {
			l.at = i
			return
		}
	}
	l.at = max(min(l.at, len(l.shown)-1), 0)
}

func (m *model) setFilter(s string) {
	l := m.list()
	key := l.key()
	l.filter = jobs.Printable(s)
	l.arrange()
	l.choose(key)
	m.place()
}

// place keeps the chosen row on the screen.
func (m *model) place() {
	l, n := m.list(), m.rowsHigh()
	l.top = max(min(l.top, l.at, len(l.shown)-n), 0)
	if l.at >= l.top+n {
		l.top = l.at - n + 1
	}
}

// chosen begins what is shown beside the chosen row, where that is another one than before.
func (m *model) chosen() tea.Cmd {
	r := m.row()
	key := ""
	if r != nil {
		key = titles[m.tab] + "\x00" + r.Key + "\x00" + r.OutputOf
	}
	if m.of != key || m.pane != paneOutput {
		m.out, m.next, m.of, m.outErr, m.looking = nil, nil, "", nil, false
	}
	switch m.pane {
	case paneOutput:
		if r == nil || r.Output == nil || m.of == key {
			return nil
		}
		m.of, m.out, m.scroll = key, &Lines{}, 0
		m.next = r.Output(m.out)
		return m.look()
	case paneDetail:
		if r != nil && m.about != r.Key {
			m.detail, m.about, m.scroll = nil, "", 0
			of := rowID{m.tab, r.Key}
			return m.tick(settled, func(time.Time) tea.Msg { return settledMsg{of} })
		}
	case paneNone:
	}
	return nil
}

// look reads more of the output, once at a time. One that hangs does not keep those of
// other rows.
func (m *model) look() tea.Cmd {
	next, of := m.next, m.out
	if next == nil || m.looking {
		return nil
	}
	m.looking = true
	return func() tea.Msg { return outMsg{of, next()} }
}

func (m *model) readDetail(r *Row) tea.Cmd {
	if r.Detail == nil {
		return nil
	}
	m.asked++
	of, asked, read := rowID{m.tab, r.Key}, m.asked, r.Detail
	return func() tea.Msg {
		rows, err := read(m.ctx)
		return detailMsg{of, asked, rows, err}
	}
}

// leave leaves the screen, after what is being done: a second time at once.
func (m *model) leave() tea.Cmd {
	if !m.doing || m.leaving {
		return tea.Quit
	}
	m.leaving, m.help = true, false
	return nil
}

// do does what a key stands for, after the question where it has one.
func (m *model) do(a Action, asked bool) tea.Cmd {
	if m.doing {
		m.say("the action before goes on still", true)
		return nil
	}
	if a.Ask != "" && !asked {
		m.ask = &a
		return nil
	}
	m.doing = true
	m.say(a.Name+" ...", false)
	return func() tea.Msg {
		text, err := a.Do(m.ctx)
		return doneMsg{text, err}
	}
}
