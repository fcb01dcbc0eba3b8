package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"berth/jobs"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

const (
	watchEvery = 5 * time.Second // unless said
	leastWatch = time.Second
)

// watchFlag lets a verb that shows something show it again and again: a scheduler is not
// asked more often for that than its site allows.
func (a *app) watchFlag(c *cobra.Command) {
	var every time.Duration
	c.Flags().DurationVar(&every, "watch", 0, "show it again every `TIME` until ctrl-C, on a terminal (--watch alone: "+watchEvery.String()+")")
	c.Flags().Lookup("watch").NoOptDefVal = watchEvery.String()
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if !cmd.Flags().Changed("watch") {
			return run(cmd, args)
		}
		switch {
		case a.json:
			return usage("--json prints one object, and --watch shows it again: leave one out")
		case !a.tty:
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "--watch needs a terminal", Hint: "without it " + cmd.CommandPath() + " prints once"}
		case every < leastWatch:
			return usage("--watch %s is too often: %s is the least", every, leastWatch)
		}
		ctx := cmd.Context()
		cmd.SetContext(jobs.WithPatience(ctx))
		return a.again(ctx, every, func() error { return run(cmd, args) })
	}
}

// again shows what show prints, each time in the place of the last, until the context ends.
// Trouble of the first time is the error; later it is shown, and may pass.
func (a *app) again(ctx context.Context, every time.Duration, show func() error) error {
	stdout, stderr, errTTY := a.stdout, a.stderr, a.errTTY
	defer func() { a.stdout, a.stderr, a.errTTY = stdout, stderr, errTTY }()
	var out, notes bytes.Buffer
	a.stdout, a.stderr, a.errTTY = &out, &notes, false
	for first := true; ; first = false {
		out.Reset()
		notes.Reset()
		err := show()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			if first {
				_, _ = stderr.Write(notes.Bytes())
				return err
			}
			a.report(err)
		}
		foot := fmt.Sprintf("every %s, %s; ctrl-C ends", every, a.now().Format(time.TimeOnly))
		if _, err := io.WriteString(stdout, screen(&out, &notes, foot, height(stdout))); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// height is how many lines a terminal has; 0 is not known.
func height(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	_, lines, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return lines
}

// screen is what a terminal of that height shows: the output, as much as fits, the last of the
// notes, and the foot. Lines that are too long are cut by the terminal.
func screen(out, notes *bytes.Buffer, foot string, height int) string {
	const home, cutLines, wrapLines, toEnd, rest = "\x1b[H", "\x1b[?7l", "\x1b[?7h", "\x1b[K", "\x1b[J"
	lines, below := split(out), append(split(notes), foot)
	if height > 0 {
		below = below[max(0, len(below)-max(height/2, 1)):]
		if room := height - len(below); len(lines) > room {
			left := len(lines) - max(room-1, 0)
			lines = append(lines[:max(room-1, 0):max(room-1, 0)], "and "+jobs.Plural(left, "more line"))
		}
	}
	return home + cutLines + strings.Join(append(lines, below...), toEnd+"\n") + toEnd + rest + wrapLines
}

func split(b *bytes.Buffer) []string {
	text := strings.TrimSuffix(b.String(), "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}
