package cli

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"berth/engine"
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) reviewDiffCmd() *cobra.Command {
	var onto string
	c := &cobra.Command{
		Use: "diff JOB", Short: "print what a merge would change; what to look at comes first",
		Long: `Print what a merge would change in the target branch, as a patch. First come files that
agents, editors, git or CI obey, links, submodules and modes, each with the reason in a
line that begins with "!"; then all others. Tests are marked with "t". What would drive a
terminal is shown as text, also in a pipe. Colours are for a terminal; NO_COLOR switches
them off. With --json: the files, without the patch.
` + exitHelp + `0 ok, 2 the job has no result to review, 3 no such job or branch, 5 its branch is
not in the repository yet.`,
		Example: "  berth review diff 0a1b2c3d\n  berth review diff 0a1b2c3d --onto release | less",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, ids []string) error {
			e, rec, err := a.reviewJob(cmd, ids)
			if err != nil {
				return err
			}
			if a.json {
				rv, files, err := e.ReviewFiles(cmd.Context(), rec, onto)
				if err != nil {
					return err
				}
				j := reviewOf(rv)
				j.Files = files
				return a.printJSON(map[string]any{"review": j})
			}
			out := bufio.NewWriterSize(a.stdout, 64<<10)
			w := &patchWriter{to: out, colour: a.colours(), begin: true}
			err = e.ReviewDiff(cmd.Context(), rec, onto, func(rv *engine.Review, files []engine.ReviewFile) error {
				a.sayReview(rv)
				return printFiles(out, files)
			}, w)
			if err != nil {
				return err
			}
			if err := w.end(); err != nil {
				return err
			}
			return out.Flush()
		},
	}
	c.Flags().StringVar(&onto, "onto", "", ontoHelp)
	a.jsonFlag(c)
	return c
}

// sayReview says what is shown or decided.
func (a *app) sayReview(rv *engine.Review) {
	j := reviewOf(rv)
	for _, p := range rv.All() {
		of := ""
		if len(rv.Record.Spec.Further) > 0 {
			of = " of workspace " + p.Repository()
		}
		a.say("job %s: %s%s onto %s (%.12s), tree %.12s", j.Short, p.Branch(), of, p.Target(), p.Onto, dash(p.Tree))
	}
	if j.Problem != "" {
		a.say("problem: %s", j.Problem)
	}
}

// printFiles lists what is worth a line before the patch.
func printFiles(w io.Writer, files []engine.ReviewFile) error {
	some := false
	for _, f := range files {
		line := ""
		switch {
		case len(f.Why) > 0:
			line = "! " + f.Shown() + ": " + strings.Join(f.Why, ", ")
		case f.Test:
			line = "t " + f.Shown() + ": " + f.Status
		case f.OutOfScope:
			line = "! " + f.Shown()
		}
		if line == "" {
			continue
		}
		if f.OutOfScope {
			line += " (out of scope)"
		}
		some = true
		if _, err := fmt.Fprintln(w, plainText(line)); err != nil {
			return err
		}
	}
	if some {
		_, err := fmt.Fprintln(w)
		return err
	}
	return nil
}

func plainText(s string) string {
	var b strings.Builder
	w := &patchWriter{to: &b}
	_, _ = io.WriteString(w, s)
	_ = w.end()
	return b.String()
}

// patchWriter shows a patch: a line is coloured by how it begins, and whatever is not
// printable is written out as text, so that each line is what it looks like.
type patchWriter struct {
	to     io.Writer
	colour bool
	begin  bool   // of a line
	inked  bool   // a colour is on
	rest   []byte // of a character
	buf    []byte
}

// Write takes all of p, whole characters or not.
func (w *patchWriter) Write(p []byte) (int, error) {
	b := p
	if len(w.rest) > 0 {
		b = append(w.rest, p...)
	}
	w.buf = w.buf[:0]
	for len(b) > 0 && utf8.FullRune(b) {
		r, n := utf8.DecodeRune(b)
		w.put(r, b[:n])
		b = b[n:]
	}
	w.rest = append([]byte(nil), b...)
	_, err := w.to.Write(w.buf)
	return len(p), err
}

// end writes what is left of a character, and takes the colour off.
func (w *patchWriter) end() error {
	w.buf = w.buf[:0]
	for _, c := range w.rest {
		w.put(utf8.RuneError, []byte{c})
	}
	w.rest = nil
	if w.inked {
		w.buf = append(w.buf, inkOff...)
	}
	_, err := w.to.Write(w.buf)
	return err
}

func (w *patchWriter) put(r rune, raw []byte) {
	if w.begin && w.colour {
		if ink := inkOf(r); ink != "" {
			w.buf, w.inked = append(w.buf, ink...), true
		}
	}
	w.begin = r == '\n'
	switch {
	case r == '\n' && w.inked:
		w.buf, w.inked = append(w.buf, inkOff+"\n"...), false
	case r == '\n' || r == '\t':
		w.buf = append(w.buf, byte(r))
	case r == utf8.RuneError && len(raw) == 1:
		w.buf = fmt.Appendf(w.buf, `\x%02x`, raw[0])
	case jobs.Shows(r):
		w.buf = append(w.buf, raw...)
	case r < 0x80:
		w.buf = fmt.Appendf(w.buf, `\x%02x`, r)
	default:
		w.buf = fmt.Appendf(w.buf, `\u%04x`, r)
	}
}

// inkOf is the colour of a line of a patch that begins so.
func inkOf(r rune) string {
	switch {
	case r == '+':
		return "\x1b[32m"
	case r == '-':
		return "\x1b[31m"
	case r == '@':
		return "\x1b[36m"
	case r >= 'a' && r <= 'z' || r == 'B':
		return "\x1b[1m"
	}
	return ""
}
