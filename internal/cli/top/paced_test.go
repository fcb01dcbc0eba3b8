package top

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/creack/pty"
)

// The first screen is drawn at once, up to the first lists. Then what changes within a frame is
// drawn at its end, and what changes after a pause at once.
func TestPaced(t *testing.T) {
	f := &fake{}
	now := time.Date(2026, 11, 3, 14, 3, 22, 0, time.UTC)
	m := newModel(t.Context(), Config{Read: f.read, Now: func() time.Time { return now }, Every: 2 * time.Second})
	var waits []time.Duration
	m.tick = func(d time.Duration, _ func(time.Time) tea.Msg) tea.Cmd {
		waits = append(waits, d)
		return nil
	}
	p := newPaced(m)
	has := func(words string, want bool) {
		t.Helper()
		if text := p.View().Content; strings.Contains(text, words) != want {
			t.Errorf("%q on the screen: %v\n%s", words, !want, text)
		}
	}
	has("reading", true)
	p.Update(tea.WindowSizeMsg{Width: 120, Height: 40})
	has("fix-login", false)
	p.Update(p.Init()())
	has("fix-login", true)
	if len(waits) > 0 {
		t.Errorf("the first screen waits: %v", waits)
	}
	press := func(keys string) {
		for _, k := range keys {
			p.Update(tea.KeyPressMsg{Text: string(k), Code: k})
		}
	}
	now = now.Add(frame / 4)
	press("c")
	has("y/n", false)
	if len(waits) != 1 || waits[0] != frame*3/4 {
		t.Errorf("it waits %v", waits)
	}
	press("n/fi") // go out together
	p.Update(frameMsg{})
	has("filter: fi", true)
	if len(waits) != 1 {
		t.Errorf("it waits %v", waits)
	}
	now = now.Add(frame)
	press("x")
	has("filter: fix", true)
	now = now.Add(-time.Hour)
	press("-")
	has("filter: fix-", true)
}

// shown is what a terminal was sent.
type shown struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *shown) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(b)
}

func (s *shown) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// The whole program on a terminal: lists come, a question is asked and answered, and the
// terminal is left as it was.
func TestRun(t *testing.T) {
	master, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = master.Close(), tty.Close() }()
	if err := pty.Setsize(tty, &pty.Winsize{Rows: 24, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	out := &shown{}
	go func() { _, _ = io.Copy(out, master) }() // its end is an error of the kernel's
	did := make(chan string, 1)
	read := func(_ context.Context, _ Want) Snapshot {
		return Snapshot{Tables: map[Tab]Table{Jobs: {Columns: []Column{{Title: "NAME"}}, Rows: []Row{{Key: "a", Cells: []string{"fix-login"},
			Actions: []Action{{Key: "c", Name: "cancel", Ask: "end it?", Do: func(context.Context) (string, error) {
				did <- "cancel"
				return "asked to end", nil
			}}}}}}}}
	}
	ended := make(chan error, 1)
	go func() {
		ended <- Run(t.Context(), tty, tty, []string{"TERM=xterm-256color"}, Config{Read: read, Now: time.Now, Every: time.Hour})
	}()
	await := func(words string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !strings.Contains(out.text(), words); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("no %q in %q", words, out.text())
			}
		}
	}
	await("\x1b[?1049h") // another screen
	await("fix-login")
	keys := func(text string) {
		if _, err := master.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	keys("c")
	await("y/n")
	keys("y")
	if what := <-did; what != "cancel" {
		t.Errorf("done: %s", what)
	}
	await("asked to end")
	keys("q")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	await("\x1b[?1049l")
	if text := out.text(); strings.LastIndex(text, "\x1b[?25h") < strings.LastIndex(text, "\x1b[?25l") {
		t.Errorf("the cursor is left hidden: %q", text)
	}
}
