package runner

import (
	"fmt"
	"os"
	"path/filepath"

	"berth/jobs"
)

// maxStream bounds what is kept of one of a command's streams: a task that
// prints without end must not fill the quota that its record needs.
const maxStream = 256 * jobs.MiB

// output is one of an attempt's logs. It is written by one goroutine.
type output struct {
	r    *attempt
	name string
	f    *os.File
	left int64
	lost int64
}

func (r *attempt) openLog(name string) (*output, error) {
	f, err := os.OpenFile(filepath.Join(r.dir, name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "open the attempt's " + name, Err: err}
	}
	return &output{r: r, name: name, f: f, left: int64(maxStream)}, nil
}

// openLogs opens the logs of what a command writes: its output, and its errors. done closes
// both.
func (r *attempt) openLogs(out, errs string) (stdout, stderr *output, done func(), err error) {
	if stdout, err = r.openLog(out); err != nil {
		return nil, nil, nil, err
	}
	if stderr, err = r.openLog(errs); err != nil {
		stdout.close()
		return nil, nil, nil, err
	}
	return stdout, stderr, func() { stderr.close(); stdout.close() }, nil
}

// Write keeps the first part and counts the rest, so that the command is not
// held up by what is thrown away.
func (o *output) Write(p []byte) (int, error) {
	keep := p
	if int64(len(keep)) > o.left {
		keep = keep[:o.left]
	}
	n, err := o.f.Write(keep)
	o.left -= int64(n)
	if err != nil {
		return n, err
	}
	o.lost += int64(len(p) - len(keep))
	return len(p), nil
}

func (o *output) close() {
	if o.lost > 0 {
		o.r.note(fmt.Sprintf("%s: only the first %s are kept, %d bytes more were thrown away", o.name, maxStream, o.lost))
	}
	_ = o.f.Close()
}
