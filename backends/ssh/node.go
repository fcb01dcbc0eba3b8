package ssh

import (
	"context"
	"fmt"
	"io"
	"strings"

	"berth/internal/sys/run"
	"berth/jobs"
)

// runNode starts berth's program there with the words behind $1, its name. A
// program that is not there says so in a word that it does not have.
const runNode = `umask 077; p=$HOME/.local/state/berth/bin/$1; shift; [ -x "$p" ] || { echo "` + noNode + `" >&2; exit 127; }; exec "$p" "$@"`

const noNode = "berth-node is missing"

// Node runs berth's program on the host to its end, with words as its
// arguments. When it turns out to be missing there, or not to run, it is put in
// place, and started again with a fresh input. An [*run.Error] is that it ended
// with another code than 0; its standard error is then the program's.
func (h *Host) Node(ctx context.Context, words []string, stdin func() io.Reader, stdout io.Writer, progress func(string)) error {
	if progress == nil {
		progress = func(string) {}
	}
	for ask := false; ; ask = true {
		name, err := h.Install(ctx, ask, progress)
		if err != nil {
			return err
		}
		c := jobs.Cmd{Argv: append([]string{"/bin/sh", "-c", runNode, "sh", name}, words...), Stdout: stdout}
		if stdin != nil {
			c.Stdin = stdin()
		}
		said := &lastWords{}
		c.Stderr = said
		p, err := h.Start(ctx, c)
		if err != nil {
			return err
		}
		exit, err := p.Wait()
		if err != nil {
			return err
		}
		missing := exit.Code == 127 && strings.Contains(said.String(), noNode) || exit.Code == 126
		switch {
		case exit.OK():
			return nil
		case missing && !ask:
			continue
		case missing:
			return &jobs.Error{Kind: jobs.KindInfra,
				Msg:  fmt.Sprintf("berth's program was put on %s and cannot be started there", h),
				Err:  quoted(said.String()),
				Hint: byHand(h.spec) + " 'ls -l ~/" + binDir + "'"}
		}
		return &run.Error{Argv: append([]string{"berth-node on", h.String()}, words[:1]...), Exit: exit, Stderr: strings.TrimSpace(said.String())}
	}
}

// lastWords keeps the last bytes written to it.
type lastWords struct{ b []byte }

func (l *lastWords) Write(p []byte) (int, error) {
	l.b = append(l.b, p...)
	if over := len(l.b) - maxLine; over > 0 {
		l.b = append(l.b[:0], l.b[over:]...)
	}
	return len(p), nil
}

func (l *lastWords) String() string { return string(l.b) }
