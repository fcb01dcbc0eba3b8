package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"berth/jobs"

	"github.com/charmbracelet/x/ansi"
)

// say prints a line for people, on stderr. What other programs and files put
// into it does not drive the terminal.
func (a *app) say(format string, args ...any) {
	a.unpass()
	line := "berth: " + jobs.Printable(fmt.Sprintf(format, args...))
	if a.raw.Load() {
		line = "\r\n" + line + "\r"
	}
	_, _ = fmt.Fprintln(a.stderr, line)
}

// overwrite puts a passing line in the place of the last one, on a terminal.
func (a *app) overwrite(line string) {
	if a.passing.Store(line != ""); line != "" {
		line = "berth: " + line
	}
	_, _ = fmt.Fprint(a.stderr, "\r\x1b[K"+line)
}

// fitting cuts a text so that it is one line of the terminal behind "berth: ".
func (a *app) fitting(text string) string {
	return ansi.Truncate(text, max(a.width()-len("berth: ")-1, 20), "...")
}

// unpass takes a passing line away, before something else is written there.
func (a *app) unpass() {
	if a.passing.Load() {
		a.overwrite("")
	}
}

// overPassing is a writer to the terminal that takes a passing line away first.
type overPassing struct {
	io.Writer
	a *app
}

func (w overPassing) Write(p []byte) (int, error) {
	w.a.unpass()
	return w.Writer.Write(p)
}

// table prints rows: aligned under a header on a terminal, with states in colour,
// tab-separated without one in a pipe.
func (a *app) table(header []string, rows [][]string) error {
	if !a.tty {
		for _, r := range rows {
			if _, err := fmt.Fprintln(a.stdout, strings.Join(clean(r), "\t")); err != nil {
				return err
			}
		}
		return nil
	}
	lines := make([][]string, 0, len(rows)+1)
	if len(header) > 0 {
		lines = append(lines, header)
	}
	for _, r := range rows {
		lines = append(lines, clean(r))
	}
	var widths []int
	for _, l := range lines {
		for i, cell := range l {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for n, l := range lines {
		for i, cell := range l {
			ink := ""
			if a.colours() && n > 0 && i < len(header) {
				ink = stateInk(header[i], cell)
			}
			out.WriteString(ink + cell)
			if ink != "" {
				out.WriteString(inkOff)
			}
			if i < len(l)-1 {
				out.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
			}
		}
		out.WriteByte('\n')
	}
	_, err := fmt.Fprint(a.stdout, out.String())
	return err
}

// colours tells whether stdout takes them (no-color.org).
func (a *app) colours() bool {
	return a.tty && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

const inkOff = "\x1b[0m"

// stateInk is the colour of a cell below a header: green is done, red failed, yellow
// waits or is to be looked at, blue goes on. "" is none.
func stateInk(header, cell string) string {
	switch header {
	case "STATE", "RESULT", "REVIEW":
	default:
		return ""
	}
	word, rest, _ := strings.Cut(cell, " ")
	if word == string(jobs.StateCompleted) && rest != "" { // out of scope, and such
		return "\x1b[33m"
	}
	switch strings.TrimRight(word, ",:;") {
	case "completed", "finished", "approved", "merged", "ok", "passed":
		return "\x1b[32m"
	case "failed", "timeout", "out_of_memory", "error", "lost", "rejected", "damaged":
		return "\x1b[31m"
	case "submitting", "pending", "queued", "waiting", "paused", "unreviewed":
		return "\x1b[33m"
	case "running":
		return "\x1b[36m"
	}
	return ""
}

// rows prints labels and values: in columns on a terminal, tab-separated in a
// pipe.
func (a *app) rows(rows [][2]string) error {
	format := "%s\t%s\n"
	if a.tty {
		width := 13
		for _, row := range rows {
			width = max(width, len(row[0]))
		}
		format = fmt.Sprintf("%%-%ds %%s\n", width)
	}
	for _, row := range rows {
		value := jobs.Printable(row[1])
		if ink := stateInk("STATE", value); a.colours() && ink != "" && row[0] == "state" {
			value = ink + value + inkOff
		}
		if _, err := fmt.Fprintf(a.stdout, format, row[0], value); err != nil {
			return err
		}
	}
	return nil
}

// clean keeps a value from another program from breaking the lines of a table
// or driving the terminal.
func clean(row []string) []string {
	out := make([]string, len(row))
	for i, s := range row {
		out[i] = jobs.Printable(s)
	}
	return out
}

// printJSON makes these fields the one object that the verb prints when it ends,
// see [app.report].
func (a *app) printJSON(fields map[string]any) error {
	if a.object != nil {
		return errors.New("a verb prints one object, and this would be another")
	}
	a.object = fields
	return nil
}

// encode prints one object with the schema version.
func (a *app) encode(fields map[string]any) error {
	fields["schema_version"] = schemaVersion
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	if !a.lines {
		enc.SetIndent("", "  ")
	}
	return enc.Encode(fields)
}

// when writes a time: relative on a terminal, absolute in a pipe.
func (a *app) when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	if !a.tty {
		return t.UTC().Format(time.RFC3339)
	}
	if t.Sub(a.now()) >= time.Second { // less is what clocks differ
		return a.until(t)
	}
	return ago(a.now().Sub(t)) + " ago"
}

func ago(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func commandText(c jobs.Command) string {
	if c.Shell != "" {
		return c.Shell
	}
	return strings.Join(c.Argv, " ")
}
