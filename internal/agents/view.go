package agents

import (
	"fmt"
	"io"
	"strings"

	"berth/jobs"
)

// A View writes events as a person reads them: what is said, tools with the argument
// that says most, the beginning of results, and what was used so far.
type View struct {
	W      io.Writer
	Colour bool
	Wide   int // columns; 0 is 100
	// Results is how many lines of a result are shown; 0 is 3.
	Results int

	turns int
	used  jobs.Usage
}

// Styles, as parameters of SGR.
const (
	bold  = "1"
	faint = "2"
	red   = "31"
	blue  = "34"
)

// Event writes one.
func (v *View) Event(e Event) error {
	switch e.Kind {
	case KindStart:
		return v.line(faint, "-- "+join("session", e.Session, "model", e.Model, "version", e.Version))
	case KindTurn:
		v.turns++
		if v.used.Tokens() > 0 || v.used.USD > 0 {
			return v.line(faint, "-- turn "+fmt.Sprint(v.turns)+", "+spent(v.used)+" so far")
		}
	case KindUsage:
		v.add(e.Usage)
	case KindMessage, KindText:
		return v.block("", sub(e), e.Text, 0)
	case KindThinking:
		return v.block(faint, sub(e)+"  ", e.Text, 0)
	case KindTool:
		return v.tool(e)
	case KindResult:
		style, mark := faint, "  | "
		if e.Failed {
			style, mark = red, "  ! "
		}
		return v.block(style, sub(e)+mark, e.Text, v.results())
	case KindError:
		return v.block(red, "error: ", e.Text, v.results())
	case KindCut:
		return v.line(faint, fmt.Sprintf("-- %d events were left out: a transcript has %d at most", e.Turns, maxEvents))
	case KindEnd:
		return v.ended(e)
	}
	return nil
}

func (v *View) tool(e Event) error {
	arg := e.Arg
	if room := max(v.wide()-len(e.Tool)-4, 20); len(arg) > room {
		arg = text(arg, room)
	}
	if !v.Colour {
		return v.line("", sub(e)+strings.TrimSpace("> "+e.Tool+" "+arg))
	}
	_, err := fmt.Fprintf(v.W, "%s\x1b[%sm> %s\x1b[0m %s\n", sub(e), blue, e.Tool, arg)
	return err
}

func (v *View) ended(e Event) error {
	if e.Whole && e.Usage != nil {
		u := *e.Usage
		u.USD = max(u.USD, v.used.USD)
		v.used = u
	}
	words := "ended"
	if e.Failed {
		words = "failed"
	}
	if e.Reason != "" {
		words += " (" + e.Reason + ")"
	}
	if n := max(e.Turns, v.turns); n > 0 {
		words += fmt.Sprintf(", %d turns", n)
	}
	if v.used.Tokens() > 0 || v.used.USD > 0 {
		words += ", " + spent(v.used)
	}
	if len(e.Denied) > 0 {
		words += ", was denied " + strings.Join(e.Denied, ", ")
	}
	if e.Failed && e.Text != "" {
		if err := v.block(red, "error: ", e.Text, v.results()); err != nil {
			return err
		}
	}
	return v.line(bold, "-- "+words)
}

func (v *View) add(u *jobs.Usage) {
	if u == nil {
		return
	}
	v.used.Input += u.Input
	v.used.CacheRead += u.CacheRead
	v.used.CacheWrite += u.CacheWrite
	v.used.Output += u.Output
	v.used.USD += u.USD
}

// block writes text, line by line, and at most so many of them.
func (v *View) block(style, mark, s string, most int) error {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	left := 0
	if most > 0 && len(lines) > most {
		lines, left = lines[:most], len(lines)-most
	}
	for i, l := range lines {
		if most > 0 && len(l) > v.wide() {
			l = text(l, v.wide())
		}
		if left > 0 && i == len(lines)-1 {
			l += fmt.Sprintf("  (+%d lines)", left)
		}
		if strings.TrimSpace(l) == "" && (most > 0 || len(lines) == 1) {
			continue
		}
		if err := v.line(style, mark+l); err != nil {
			return err
		}
	}
	return nil
}

func (v *View) line(style, s string) error {
	if v.Colour && style != "" {
		s = "\x1b[" + style + "m" + s + "\x1b[0m"
	}
	_, err := io.WriteString(v.W, s+"\n")
	return err
}

func (v *View) wide() int {
	if v.Wide <= 0 {
		return 100
	}
	return max(v.Wide-4, 20)
}

func (v *View) results() int {
	if v.Results <= 0 {
		return 3
	}
	return v.Results
}

// sub sets off what an agent said that was started by the agent.
func sub(e Event) string {
	if e.Sub {
		return "    "
	}
	return ""
}

// spent is a usage without its requests: "120k tokens, 0.42 USD".
func spent(u jobs.Usage) string {
	_, rest, _ := strings.Cut(u.String(), ", ")
	return rest
}

// join writes names with their values, of those that have one.
func join(pairs ...string) string {
	var out []string
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			out = append(out, pairs[i]+" "+pairs[i+1])
		}
	}
	if len(out) == 0 {
		return "start"
	}
	return strings.Join(out, ", ")
}
