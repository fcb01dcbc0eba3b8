package engine

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// LogKind says which of a job's two streams are meant.
type LogKind string

// A job's logs.
const (
	LogCommand LogKind = ""        // what its command has written
	LogDone    LogKind = "done"    // what its done commands have written
	LogRuntime LogKind = "runtime" // messages: on stdout the runner's and the container program's, on stderr the scheduler's
)

// files are those of an attempt that stdout and stderr come from.
func (k LogKind) files() (stdout, stderr string) {
	switch k {
	case LogDone:
		return store.FileDoneStdout, store.FileDoneStderr
	case LogRuntime:
		return store.FileRuntime, jobs.SchedulerLog
	case LogCommand:
	}
	return store.FileStdout, store.FileStderr
}

// LogOptions say what [Engine.Log] writes, and where.
type LogOptions struct {
	Kind           LogKind
	Stdout, Stderr io.Writer // never used at the same time; nil drops the stream
	// Follow goes on until the job has ended.
	Follow bool
	// See is told of the job as by [Engine.Wait]. Of another attempt it is told when all
	// of the one before is written, and before anything of this one. It may be nil.
	See func(View)
}

// Log writes the output of a job, from the beginning of the record's current attempt on,
// and then of each attempt that followed. With Follow it goes on with what comes, and with
// the attempts that come, until the job has ended, the context has, or a writer fails: then
// the job itself goes on. Without, a job that has not ended and has written nothing yet is
// an error of the kind [jobs.KindNotFound].
//
// The view is the job's last; how the job ended is no error of Log.
func (e *Engine) Log(ctx context.Context, rec *jobs.Record, o LogOptions) (View, error) {
	stdout, stderr := o.Kind.files()
	a := rec.Current()
	l := &logCopy{n: a.N, dir: a.Dir}
	l.add(stdout, o.Stdout)
	l.add(stderr, o.Stderr)
	see := func(v View) {
		l.turn(v.Record, func() {
			if o.See != nil {
				o.See(v)
			}
		})
	}
	if o.Follow {
		return e.followLog(ctx, rec.Spec.ID, l, see)
	}
	now, err := e.Store.Load(rec.Spec.ID)
	if err != nil {
		return View{}, err
	}
	v := View{Record: now, State: jobs.StateOf(now), AsOf: e.Now()}
	if now.Spec.Login != nil && !v.State.Final() {
		v = e.Reconcile(ctx, []*jobs.Record{now})[0]
	}
	see(v)
	l.copy()
	if err := l.failed(); err != nil || l.seen || v.State.Final() {
		return v, err
	}
	short := jobs.Short(v.Spec.ID)
	return v, &jobs.Error{Kind: jobs.KindNotFound, Msg: "job " + short + " has written nothing yet: it is " + string(v.State),
		Hint: "berth logs -f " + short}
}

func (e *Engine) followLog(ctx context.Context, id string, l *logCopy, see func(View)) (View, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quit, idle := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(idle)
		if l.loop(quit); l.failed() != nil {
			cancel()
		}
	}()
	v, err := e.Wait(ctx, id, see)
	close(quit)
	<-idle
	if err == nil {
		l.turn(v.Record, func() {})
		l.copy()
	}
	if werr := l.failed(); werr != nil {
		return v, werr
	}
	return v, err
}

// Tail shows the last output of one attempt, and what comes, to whoever watches: it looks at
// its files, asks no scheduler, and leaves out what is too much to be read. It is not safe for
// concurrent use.
type Tail struct{ l *logCopy }

// Tail begins with the last lines of what the record's current attempt has written, of at most
// most bytes of each stream. A writer may be nil, which drops the stream.
func (e *Engine) Tail(rec *jobs.Record, kind LogKind, most int64, stdout, stderr io.Writer) *Tail {
	a := rec.Current()
	t := &Tail{&logCopy{n: a.N, dir: a.Dir, most: most}}
	out, err := kind.files()
	t.l.add(out, stdout)
	t.l.add(err, stderr)
	return t
}

// Next passes on what is new, at most most bytes of each stream. Where there is more, it goes
// on with the last lines of them. The error is a writer's.
func (t *Tail) Next() error {
	t.l.copy()
	return t.l.failed()
}

// logCopy copies growing files by looking at them: nothing notifies of a change that
// another machine made on a shared file system.
type logCopy struct {
	mu    sync.Mutex
	n     int    // the attempt
	dir   string // and its directory
	files []*logFile
	seen  bool  // one of the files was there
	most  int64 // bytes of a file that are copied at once, its last ones; 0 is all
}

type logFile struct {
	name   string
	to     io.Writer
	offset int64
	err    error // the writer's
}

// Write is the writer's, whose error is kept: one of reading has another meaning.
func (f *logFile) Write(p []byte) (n int, err error) {
	n, f.err = f.to.Write(p)
	return n, f.err
}

func (l *logCopy) add(name string, to io.Writer) {
	if to != nil {
		l.files = append(l.files, &logFile{name: name, to: to})
	}
}

// loop copies what comes until it is told to end, or a writer fails.
func (l *logCopy) loop(quit <-chan struct{}) {
	const fast, slow = 100 * time.Millisecond, time.Second
	for pause := fast; ; {
		if l.copy() {
			pause = fast
		} else {
			pause = min(pause*3/2, slow)
		}
		if l.failed() != nil {
			return
		}
		select {
		case <-quit:
			return
		case <-time.After(pause):
		}
	}
}

// turn calls see, once all of the attempts before the record's current one is copied, and
// goes on with that one. It never goes back: one that could not be submitted is taken back.
func (l *logCopy) turn(r *jobs.Record, see func()) {
	l.mu.Lock()
	if r.Current().N <= l.n {
		l.mu.Unlock()
		see() // even while a writer does not take more
		return
	}
	defer l.mu.Unlock()
	for i := range r.Attempts {
		a := &r.Attempts[i]
		if a.N <= l.n {
			continue
		}
		l.copyNow()
		l.n, l.dir = a.N, a.Dir
		for _, f := range l.files {
			f.offset = 0
		}
	}
	see()
}

// copy passes on what is new, and reports whether anything was.
func (l *logCopy) copy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.copyNow()
}

func (l *logCopy) copyNow() (more bool) {
	for _, f := range l.files {
		n, err := f.copyFrom(filepath.Join(l.dir, f.name), l.most)
		f.offset += n
		l.seen = l.seen || err == nil
		more = more || n > 0
	}
	return more
}

func (f *logFile) copyFrom(path string, most int64) (int64, error) {
	file, err := os.Open(path)
	if err != nil || f.err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }()
	if most > 0 {
		f.leap(file, most)
	}
	if _, err := file.Seek(f.offset, io.SeekStart); err != nil {
		return 0, err
	}
	if most > 0 { // a task that writes fast would never be read to its end
		return io.Copy(f, io.LimitReader(file, most))
	}
	return io.Copy(f, file)
}

// leap goes on with the first whole line of the last bytes of a file, where more than these
// are left of it.
func (f *logFile) leap(file *os.File, most int64) {
	fi, err := file.Stat()
	if err != nil || fi.Size()-f.offset <= most {
		return
	}
	f.offset = fi.Size() - most
	head := make([]byte, min(most, 64<<10))
	n, _ := file.ReadAt(head, f.offset)
	if i := bytes.IndexByte(head[:n], '\n'); i >= 0 {
		f.offset += int64(i) + 1
	}
}

// failed is why the output cannot be written on.
func (l *logCopy) failed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.files {
		if f.err != nil {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "write the job's " + f.name, Hint: "the job goes on without it: berth ps", Err: f.err}
		}
	}
	return nil
}
