package top

import (
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/exp/teatest/v2"
	"github.com/charmbracelet/x/vt"
)

// terminal is the whole program, with what a terminal of its size shows of it.
type terminal struct {
	*teatest.TestModel
	t     *testing.T
	f     *fake
	shown *vt.Emulator
	all   strings.Builder // what it was sent
}

func newTerminal(t *testing.T, width, height int, environ ...string) *terminal {
	f := &fake{kept: "one\ntwo\n"}
	m := newModel(t.Context(), Config{Read: f.read, Now: time.Now, Every: time.Hour})
	m.cpu = func() time.Duration { return 0 }
	s := &terminal{t: t, f: f, shown: vt.NewEmulator(width, height)}
	s.TestModel = teatest.NewTestModel(t, newPaced(m), teatest.WithInitialTermSize(width, height),
		teatest.WithProgramOptions(tea.WithEnvironment(append(environ, "TERM=xterm-256color", "TTY_FORCE=1"))))
	var reads sync.WaitGroup
	reads.Go(func() { _, _ = io.Copy(io.Discard, s.shown) }) // what it answers to questions
	// The program writes to no terminal, so a line feed stands for itself and a carriage return.
	_, _ = s.shown.WriteString(ansi.SetModeLineFeedNewLine)
	t.Cleanup(func() {
		_ = s.shown.InputPipe().(io.Closer).Close() // [vt.Emulator.Close] is not for a terminal that is still read
		reads.Wait()
		_ = s.shown.Close()
	})
	return s
}

// has waits until the terminal shows all the words.
func (s *terminal) has(words ...string) {
	s.t.Helper()
	s.until(func(text string) bool {
		for _, w := range words {
			if !strings.Contains(text, w) {
				return false
			}
		}
		return true
	})
}

func (s *terminal) until(is func(text string) bool) {
	s.t.Helper()
	teatest.WaitFor(s.t, io.TeeReader(s.Output(), io.MultiWriter(s.shown, &s.all)), func([]byte) bool { return is(s.shown.String()) },
		teatest.WithDuration(time.Minute), teatest.WithCheckInterval(10*time.Millisecond))
}

func (s *terminal) press(code rune) { s.Send(tea.KeyPressMsg{Code: code}) }

// order waits until the rows that are shown are these, from above.
func (s *terminal) order(ids ...string) {
	s.t.Helper()
	s.until(func(text string) bool {
		var have []string
		for line := range strings.Lines(text) {
			for _, id := range []string{"0a1b2c3d", "1b2c3d4e", "2c3d4e5f"} {
				if strings.HasPrefix(strings.TrimLeft(line, "> "), id) {
					have = append(have, id)
				}
			}
		}
		return strings.Join(have, " ") == strings.Join(ids, " ")
	})
}

func (s *terminal) click(x, y int) {
	s.Send(tea.MouseClickMsg{X: x, Y: y, Button: tea.MouseLeft})
}

// leave ends the program by its key, and returns whatever it has sent.
func (s *terminal) leave() string {
	s.Type("q")
	s.WaitFinished(s.t, teatest.WithFinalTimeout(time.Minute))
	if _, err := io.Copy(&s.all, s.Output()); err != nil {
		s.t.Fatal(err)
	}
	return s.all.String()
}

// coloured is that a foreground has one of the first colours.
var coloured = regexp.MustCompile(`\x1b\[[0-9;]*3[0-7]m`)

// The program by its messages, and what a terminal makes of the changes that it is sent: a
// model alone shows whole screens.
func TestProgram(t *testing.T) {
	s := newTerminal(t, 120, 14)
	s.has("1 running, 1 pending, 1 failed", "> 0a1b2c3d  running", "c cancel  / filter")
	s.has("| output of 0a1b2c3d", "| one", "| two")

	s.Type("/prio")
	s.has("filter: prio_")
	s.order("1b2c3d4e")
	s.press(tea.KeyEnter)
	s.has("filter: prio (1 of 3; esc shows all)", "> 1b2c3d4e")
	s.press(tea.KeyEscape)
	s.order("0a1b2c3d", "1b2c3d4e", "2c3d4e5f")

	s.Type("ssS") // by the state, downwards
	s.order("0a1b2c3d", "1b2c3d4e", "2c3d4e5f")
	s.Type("S")
	s.order("2c3d4e5f", "1b2c3d4e", "0a1b2c3d")

	s.click(5, rowsAt+1)
	s.has("> 1b2c3d4e")
	s.Type("d")
	s.has("| that is  it waits for other jobs")
	s.click(len("1 jobs 3")+len(gap)+1, tabsAt)
	s.has("no environments; berth exec makes one")
	s.Type("1d")
	s.has("> 1b2c3d4e")

	// Narrow, the output stands below, where it is asked for. No line is longer than the screen.
	s.shown.Resize(80, 20)
	s.Send(tea.WindowSizeMsg{Width: 80, Height: 20})
	s.until(func(text string) bool { return strings.Contains(text, "> 1b2c3d4e") && !strings.Contains(text, "|") })
	s.press(tea.KeyEnd)
	s.Type("l")
	s.has("-- output of 0a1b2c3d --", "\none", "\ntwo")

	if sent := s.leave(); !coloured.MatchString(sent) {
		t.Errorf("no colours: %q", sent)
	}
	if len(s.f.did) != 0 {
		t.Errorf("done: %q", s.f.did)
	}
}

// What ends something is done once, after a yes.
func TestProgramAsks(t *testing.T) {
	s := newTerminal(t, 80, 14, "NO_COLOR=1")
	s.has("> 0a1b2c3d")
	s.Type("c")
	s.has("cancel job 0a1b2c3d? y/n")
	s.Type("n")
	s.has("cancel: not done")
	s.Type("c")
	s.has("cancel job 0a1b2c3d? y/n")
	s.Type("yy")
	s.has("job 0a1b2c3d is asked to end")
	sent := s.leave()
	if got := strings.Join(s.f.did, ", "); got != "cancel 0a1b2c3d" {
		t.Errorf("done: %q", got)
	}
	if coloured.MatchString(sent) || !strings.Contains(sent, "\x1b[1m") {
		t.Errorf("colours, or not even bold: %q", sent)
	}
}
