package run

import (
	"io"
	"os"
	"os/exec"
)

// outputs are the pipes from a command that is started here to the writers that
// receive its streams.
type outputs struct {
	childEnds []*os.File // closed here once the child has them
	ownEnds   []*os.File
	drains    []*Drain
	copies    []func()
}

// connect gives a command its streams: a file as it is, another writer behind a
// pipe. One writer for both gets one pipe, as with os/exec: two copies at a time
// would be a data race in most writers.
func (o *outputs) connect(cmd *exec.Cmd, stdout, stderr io.Writer) (err error) {
	if cmd.Stdout, err = o.pipe(stdout); err != nil {
		return err
	}
	if stderr != nil && sameWriter(stderr, stdout) {
		cmd.Stderr = cmd.Stdout
		return nil
	}
	cmd.Stderr, err = o.pipe(stderr)
	return err
}

func (o *outputs) pipe(w io.Writer) (io.Writer, error) {
	if w == nil {
		return nil, nil
	}
	if f, ok := w.(*os.File); ok {
		return f, nil
	}
	r, pw, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	o.childEnds, o.ownEnds = append(o.childEnds, pw), append(o.ownEnds, r)
	d := NewDrain(r)
	o.drains = append(o.drains, d)
	o.copies = append(o.copies, func() { _ = d.Copy(w) })
	return pw, nil
}

// sameWriter compares two writers whose types may not be comparable.
func sameWriter(a, b io.Writer) (same bool) {
	defer func() {
		if recover() != nil {
			same = false
		}
	}()
	return a == b
}
