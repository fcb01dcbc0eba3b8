package top

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/jobs"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// updating is the flag -update: the golden screens are written. teatest brings it.
func updating() bool { return flag.Lookup("update").Value.String() == "true" }

// fake is a source of lists.
type fake struct {
	reads []Want
	did   []string
	fail  error
	cost  time.Duration
	out   string // of the job that runs
	kept  string // what it has written before, whenever that is looked at
	gone  string // the key of a row that is left out
}

func (f *fake) read(_ context.Context, want Want) Snapshot {
	f.reads = append(f.reads, want)
	s := Snapshot{Tables: map[Tab]Table{}, Summary: "1 running, 1 pending, 1 failed; 2.31 USD, 41.20 core-hours"}
	t := Table{Empty: "no jobs", Columns: []Column{{Title: "ID", Most: 8}, {Title: "STATE", Most: 30}, {Title: "NAME"}, {Title: "NODE", Most: 16, Drop: 2},
		{Title: "SUBMITTED", Most: 9, Drop: 1}, {Title: "CORE-H", Most: 9, Drop: 3, Right: true}}}
	add := func(id, state, name, node, when string, at, hours float64, tone Tone, action string) {
		if id == f.gone {
			return
		}
		r := Row{Key: id, Cells: []string{id, state, name, node, when, fmt.Sprintf("%.2f", hours)}, By: map[int]float64{4: at, 5: hours}, Tone: tone,
			Actions: []Action{{Key: "c", Name: action, Ask: action + " job " + id + "?", Do: func(context.Context) (string, error) {
				f.did = append(f.did, action+" "+id)
				return "job " + id + " is asked to end", f.fail
			}}},
			Detail: func(context.Context) ([][2]string, error) {
				return [][2]string{{"job", id}, {"state", state}, {"that is", "it waits for other jobs, which have a higher priority than this one has at present"}}, nil
			}}
		if tone == Running {
			r.OutputOf = "1"
			r.Output = func(l *Lines) func() error {
				w, kept := l.Stream(), f.kept
				return func() error {
					_, err := w.Write([]byte(kept + f.out))
					kept, f.out = "", ""
					return err
				}
			}
		}
		t.Rows = append(t.Rows, r)
	}
	add("0a1b2c3d", "running", "fix-login", "n01", "5m ago", 30, 41.2, Running, "cancel")
	add("1b2c3d4e", "pending (Priority)", "a-name-that-is-much-longer-than-there-is-room-for-on-a-screen", "-", "4m ago", 20, 0, Waiting, "cancel")
	add("2c3d4e5f", "failed (exit code 3)", "evil\x1b]0;owned\x07\x1b[2J\u202ename", "n02", "9h ago", 10, 7, Bad, "retry")
	s.Tables[Jobs] = t
	if want.Tabs[Environments] {
		s.Tables[Environments] = Table{Columns: []Column{{Title: "NAME"}}, Empty: "no environments; berth exec makes one"}
	}
	return s
}

// screen drives a model without a terminal.
type screen struct {
	*model
	t    *testing.T
	f    *fake
	left bool
}

func newScreen(t *testing.T, width, height int) *screen {
	f := &fake{}
	now := time.Date(2026, 11, 3, 14, 3, 22, 0, time.UTC)
	s := &screen{newModel(t.Context(), Config{Read: f.read, Now: func() time.Time { return now }, Every: 2 * time.Second}), t, f, false}
	s.tick = func(time.Duration, func(time.Time) tea.Msg) tea.Cmd { return nil }
	used := time.Duration(0)
	s.cpu = func() time.Duration { used += f.cost; return used }
	s.send(tea.WindowSizeMsg{Width: width, Height: height})
	s.run(s.Init())
	return s
}

// run does what a command asks for; nothing ticks.
func (s *screen) run(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	switch msg := cmd().(type) {
	case tea.BatchMsg:
		for _, c := range msg {
			s.run(c)
		}
	case tea.QuitMsg:
		s.left = true
	default:
		s.send(msg)
	}
}

func (s *screen) send(msg tea.Msg) {
	if msg != nil {
		_, cmd := s.Update(msg)
		s.run(cmd)
	}
}

// keys presses keys: words such as "down", or characters.
func (s *screen) keys(names ...string) {
	special := map[string]rune{"down": tea.KeyDown, "up": tea.KeyUp, "enter": tea.KeyEnter, "esc": tea.KeyEscape, "tab": tea.KeyTab,
		"backspace": tea.KeyBackspace, "end": tea.KeyEnd, "pgdown": tea.KeyPgDown}
	for _, n := range names {
		k := tea.KeyPressMsg{Text: n, Code: []rune(n)[0]}
		if code, ok := special[n]; ok {
			k = tea.KeyPressMsg{Code: code}
		}
		s.send(k)
	}
}

// text is the screen without its colours; each line fits the terminal.
func (s *screen) text() string {
	s.t.Helper()
	lines := s.clipped()
	if len(lines) > s.height {
		s.t.Errorf("%d lines on a screen of %d", len(lines), s.height)
	}
	for i, l := range lines {
		lines[i] = strings.TrimRight(ansi.Strip(l), " ")
		if n := ansi.StringWidth(l); n > s.width {
			s.t.Errorf("line %d is %d wide on a screen of %d: %q", i, n, s.width, l)
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

func (s *screen) has(words ...string) {
	s.t.Helper()
	for _, w := range words {
		if text := s.text(); !strings.Contains(text, w) {
			s.t.Errorf("no %q in\n%s", w, text)
		}
	}
}

func (s *screen) golden(name string) {
	s.t.Helper()
	path := filepath.Join("testdata", name)
	got := s.text()
	if updating() {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != got {
		s.t.Errorf("%s: %v: have\n%s", path, err, got)
	}
}

func TestScreens(t *testing.T) {
	newScreen(t, 80, 12).golden("80.txt")
	s := newScreen(t, 120, 12)
	s.f.out = "one\ntwo\n"
	s.send(outTick{s.out})
	s.golden("120.txt")
	s.keys("down", "d")
	s.send(settledMsg{rowID{Jobs, "1b2c3d4e"}})
	s.golden("120-details.txt")
	s = newScreen(t, 80, 24)
	s.keys("d", "?")
	s.golden("80-keys.txt")
	for _, size := range [][2]int{{1, 1}, {20, 4}, {40, 6}, {79, 24}, {300, 100}} { // whatever it is, it fits
		s := newScreen(t, size[0], size[1])
		for _, key := range []string{"l", "d", "?"} {
			s.keys(key)
			_ = s.text()
		}
	}
}

// What tasks and programs write does not drive the terminal.
func TestHostile(t *testing.T) {
	s := newScreen(t, 120, 12)
	s.f.out = "\x1b]0;owned\x07\x1b[2Jtitle\x1b[31mred\x1b[8m\rprogress 1%\rprogress 2%\r\n\xff\u202eback\tx\n\x1b[41m"
	s.send(outTick{s.out})
	s.f.fail = errors.New("a\x1b[2Jb")
	s.keys("c", "y", "/", "f", "i", "enter")
	raw := strings.Join(s.screen(), "\n")
	for _, bad := range []string{"\x07", "\x1b]", "\x1b[2J", "\x1b[8m", "\x1b[41m", "\u202e", "\r", "\t"} {
		if strings.Contains(raw, bad) {
			t.Errorf("%q is on the screen: %q", bad, raw)
		}
	}
	s.has("progress 2%", "back    x")
	if strings.Contains(raw, "progress 1%") {
		t.Error("what was overwritten is shown")
	}
	for _, line := range strings.Split(raw, "\n") { // no colour reaches past its line
		if i := strings.LastIndex(line, "\x1b["); i >= 0 && !strings.HasPrefix(line[i:], "\x1b[m") {
			t.Errorf("a style is left open: %q", line)
		}
	}
}

func TestFilterSort(t *testing.T) {
	s := newScreen(t, 80, 12)
	order := func() (keys []string) {
		for _, n := range s.list().shown {
			keys = append(keys, s.list().table.Rows[n].Key)
		}
		return keys
	}
	s.keys("down", "/", "P", "r", "i", "o", " ", "n", "a", "m", "e")
	if got := order(); !slices.Equal(got, []string{"1b2c3d4e"}) {
		t.Errorf("filtered: %q", got)
	}
	s.has("filter: Prio name_")
	s.keys("x", "backspace", "enter", "tab", "1")
	s.has("filter: Prio name (1 of 3; esc shows all)")
	s.keys("/", "q") // a letter of the filter, not the end
	s.has(`none of 3 has "Prio nameq"`)
	s.keys("esc")
	s.keys("s", "s", "s", "s", "s", "s", "S") // by core-hours, downwards
	if got := order(); !slices.Equal(got, []string{"0a1b2c3d", "2c3d4e5f", "1b2c3d4e"}) {
		t.Errorf("sorted: %q", got)
	}
	s.keys("s")
	if got := order(); got[0] != "0a1b2c3d" || s.row().Key == "" {
		t.Errorf("as read: %q", got)
	}
	// A click on a head sorts by it, another one the other way round.
	x := strings.Index(s.screen()[headAt], "SUBMITTED") - len("\x1b[1m")
	s.send(tea.MouseClickMsg{X: x, Y: headAt, Button: tea.MouseLeft})
	if got := order(); got[0] != "2c3d4e5f" {
		t.Errorf("clicked: %q", got)
	}
	s.send(tea.MouseClickMsg{X: x, Y: headAt, Button: tea.MouseLeft})
	if got := order(); got[0] != "0a1b2c3d" {
		t.Errorf("clicked twice: %q", got)
	}
	s.send(tea.MouseClickMsg{X: 5, Y: rowsAt + 1, Button: tea.MouseLeft})
	s.has("> 1b2c3d4e")
	s.send(tea.MouseWheelMsg{X: 5, Y: rowsAt, Button: tea.MouseWheelUp})
	s.has("> 0a1b2c3d")
	s.send(tea.MouseClickMsg{X: len("1 jobs 3") + 4, Y: tabsAt, Button: tea.MouseLeft})
	s.has("no environments; berth exec makes one")
}

// What ends something asks first, and only y does it.
func TestAsk(t *testing.T) {
	s := newScreen(t, 80, 12)
	for _, key := range []string{"n", "enter", "esc", "q", "c"} {
		s.keys("c")
		s.has("cancel job 0a1b2c3d? y/n")
		s.keys(key)
		s.has("cancel: not done")
	}
	s.keys("x") // is of no action of this row
	if len(s.f.did) != 0 {
		t.Fatalf("done: %q", s.f.did)
	}
	// The question is of the row that it was asked for, whatever is read meanwhile.
	s.keys("c")
	s.f.gone = "0a1b2c3d"
	s.run(s.begin())
	n := len(s.f.reads)
	s.keys("y")
	if !slices.Equal(s.f.did, []string{"cancel 0a1b2c3d"}) || len(s.f.reads) != n+1 {
		t.Errorf("done %q, read %d times", s.f.did, len(s.f.reads)-n)
	}
	s.has("job 0a1b2c3d is asked to end")
	s.f.fail = &jobs.Error{Kind: jobs.KindInfra, Msg: "no answer", Hint: "berth doctor"}
	s.keys("c", "y")
	s.has("no answer; berth doctor")
}

// Whoever leaves while an action goes on waits for its end, and learns how it failed; or
// leaves a second time.
func TestLeave(t *testing.T) {
	for _, key := range []tea.KeyPressMsg{{Code: 'q', Text: "q"}, {Code: 'c', Mod: tea.ModCtrl}} {
		s := newScreen(t, 80, 12)
		s.f.fail = errors.New("no answer")
		s.keys("c")
		_, action := s.Update(tea.KeyPressMsg{Code: 'y', Text: "y"})
		s.keys("?")
		s.send(key)
		s.has("the action is finished first; again leaves at once")
		s.keys("down", "c") // what is read and pressed meanwhile leaves that on the screen
		s.run(s.begin())
		s.has("the action is finished first; again leaves at once")
		if s.left || len(s.f.did) != 0 {
			t.Fatalf("left: %v, done: %q", s.left, s.f.did)
		}
		s.run(action)
		if !s.left || !errors.Is(s.failed, s.f.fail) || len(s.f.did) != 1 {
			t.Errorf("left: %v, %v, done: %q", s.left, s.failed, s.f.did)
		}
		s = newScreen(t, 80, 12)
		s.keys("c")
		s.Update(tea.KeyPressMsg{Code: 'y', Text: "y"})
		s.send(key)
		if s.send(key); !s.left {
			t.Error("not left at once")
		}
		s = newScreen(t, 80, 12)
		if s.send(key); !s.left || s.failed != nil {
			t.Errorf("left: %v, %v", s.left, s.failed)
		}
	}
}

// two puts rows with outputs and details in two lists, which share their keys.
func two(s *screen) {
	t := Table{Columns: []Column{{Title: "ID"}}}
	for _, key := range []string{"a", "b"} {
		n := 0
		t.Rows = append(t.Rows, Row{Key: key, Cells: []string{key},
			Output: func(l *Lines) func() error {
				w := l.Stream()
				return func() error {
					_, _ = fmt.Fprintln(w, "output of", key)
					return errors.New("error of " + key)
				}
			},
			Detail: func(context.Context) ([][2]string, error) {
				n++
				return [][2]string{{"answer", fmt.Sprint(n)}}, nil
			}})
	}
	for _, tab := range []Tab{Jobs, Reviews} {
		s.lists[tab].table, s.lists[tab].read = t, s.Now()
		s.lists[tab].arrange()
	}
}

// A look that hangs keeps that of no other row, and what it says at last is of its own.
func TestOutputOf(t *testing.T) {
	s := newScreen(t, 120, 12)
	two(s)
	hangs := s.chosen()
	s.keys("down")
	if s.has("output of b"); s.outErr == nil || s.outErr.Error() != "error of b" {
		t.Errorf("the error %v", s.outErr)
	}
	_, cmd := s.Update(hangs())
	if cmd != nil || s.outErr.Error() != "error of b" {
		t.Errorf("of another row: %v, and it is looked at again: %v", s.outErr, cmd != nil)
	}
	if of := s.out; s.look() != nil { // it waits for its tick
		t.Error("two looks at once")
	} else if s.send(outTick{&Lines{}}); !s.looking {
		t.Error("a tick of another output")
	} else if _, cmd := s.Update(outTick{of}); cmd == nil {
		t.Error("not looked at again")
	}
}

// Details are those of the row in its list, and never older than those that are shown.
func TestDetailOf(t *testing.T) {
	s := newScreen(t, 120, 12)
	two(s)
	s.keys("d")
	first, second := s.readDetail(s.row()), s.readDetail(s.row())
	older := first()
	s.run(second)
	s.has("answer  2")
	s.send(older)
	s.has("answer  2")
	late := s.readDetail(s.row())
	s.keys("5")
	s.run(late) // of the job a, and the review a is chosen
	s.has("reading ...")
	s.send(settledMsg{rowID{Jobs, "a"}})
	s.has("reading ...")
	s.send(settledMsg{rowID{Reviews, "a"}})
	s.has("answer  4")
}

// A reading that costs much is made less often, and lists that are not shown still less.
func TestPace(t *testing.T) {
	s := newScreen(t, 80, 12)
	if len(s.f.reads) != 2 || !s.f.reads[0].Quick || s.f.reads[1].Quick || !s.f.reads[1].Tabs[Reviews] {
		t.Fatalf("reads: %+v", s.f.reads)
	}
	if s.wait != 2*time.Second {
		t.Errorf("waits %s after a reading that costs nothing", s.wait)
	}
	for cost, want := range map[time.Duration]time.Duration{50 * time.Millisecond: 10 * time.Second, 2 * time.Second: rarely} {
		s.f.cost = cost
		if s.run(s.begin()); s.wait != want {
			t.Errorf("waits %s after %s of CPU, want %s", s.wait, cost, want)
		}
	}
	behindReads := 0
	for range 2 * behind {
		s.lists[Reviews].read, s.lists[Sweeps].read, s.lists[Allocations].read = s.Now(), s.Now(), s.Now()
		s.send(readTick{s.round})
		if s.f.reads[len(s.f.reads)-1].Tabs[Reviews] {
			behindReads++
		}
	}
	if behindReads != 2 {
		t.Errorf("a list that is not shown was read in %d of %d readings", behindReads, 2*behind)
	}
	// A tick of an earlier plan reads nothing.
	n := len(s.f.reads)
	s.send(readTick{s.round - 1})
	if len(s.f.reads) != n {
		t.Error("an old tick reads")
	}
}

// The chosen row stays the same one when rows come and go.
func TestChosen(t *testing.T) {
	s := newScreen(t, 80, 12)
	s.keys("down", "down")
	s.f.gone = "0a1b2c3d"
	s.run(s.begin())
	s.has("> 2c3d4e5f")
	s.f.gone = "2c3d4e5f"
	s.run(s.begin())
	s.has("> 1b2c3d4e")
}

func TestLines(t *testing.T) {
	var l Lines
	w := l.Stream()
	for i := range 3 * mostLines {
		_, _ = fmt.Fprintf(w, "line %d\n", i)
	}
	_, _ = w.Write([]byte(strings.Repeat("x", 3*mostLine)))
	lines, more := l.last(2, 0)
	if len(lines) != 2 || lines[0] != fmt.Sprintf("line %d", 3*mostLines-1) || len(lines[1]) != mostLine || more != mostLines-1 {
		t.Errorf("%d lines, %d more", len(lines), more)
	}
	if lines, _ := l.last(2, 1<<30); lines[0] != fmt.Sprintf("line %d", 2*mostLines) {
		t.Errorf("scrolled to the begin: %q", lines)
	}
}

// A screen with a thousand rows is drawn quickly: it is drawn with each key.
func BenchmarkView(b *testing.B) {
	m := newModel(context.Background(), Config{Now: time.Now})
	t := Table{Columns: []Column{{Title: "ID", Most: 8}, {Title: "NAME"}}}
	for i := range 1000 {
		t.Rows = append(t.Rows, Row{Key: fmt.Sprint(i), Cells: []string{fmt.Sprint(i), "a name"}})
	}
	m.lists[Jobs].table = t
	m.lists[Jobs].arrange()
	m.width, m.height = 120, 40
	for b.Loop() {
		m.View()
	}
}
