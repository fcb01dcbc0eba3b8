package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"berth/internal/link/session"
	"berth/internal/network"
	"berth/internal/node/supervise"
	"berth/internal/sys/disk"
	"berth/internal/sys/ids"
	"berth/internal/sys/run"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

// Times and bounds of the jobs that a task submits.
const (
	childTimeout = 4 * time.Minute // of a submission, which waits for a full queue
	childLook    = time.Second     // between two looks at their records
	childFollow  = time.Minute     // between two at which the scheduler is asked
	lookFor      = 10 * time.Millisecond
	maxDir       = 4 << 10   // bytes of the directory of its output, which stays in memory
	maxBack      = 256 << 20 // bytes of an output that comes back inside
	childEnd     = 2 * time.Minute
	childSettle  = time.Minute      // that the end of an attempt waits for a submission under way
	childLeave   = 10 * time.Second // that the end of a container waits for what comes back
)

// children are the jobs that the task has submitted. The count of them is in the job's
// record, and holds over its attempts.
type children struct {
	r    *attempt
	held atomic.Int32 // requests that wait for one

	making chan struct{} // has one while one is submitted: one at a time

	mu      sync.Mutex
	inside  *session.Session // nil is that there is no container, and nothing is submitted any more
	back    map[int]bool     // they have ended, and their results are inside, or cannot be
	changed chan struct{}    // closed when one has come back
	all     []jobs.Child     // those that were read until now
	ctx     context.Context  // of what is done for the container, which leave waits for
	stop    context.CancelFunc
	work    sync.WaitGroup
}

// errEnding is for a task that asks for a job while it ends.
var errEnding = &jobs.Error{Kind: jobs.KindRejected, Msg: "this task is ending"}

func (r *attempt) newChildren() *children {
	if !r.spec.Submit.Jobs() {
		return nil
	}
	return &children{r: r, making: make(chan struct{}, 1), back: map[int]bool{}, changed: make(chan struct{})}
}

// bringTo has the results of those that end brought into a container, until it is left.
func (k *children) bringTo(s *session.Session) {
	if k == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	k.mu.Lock()
	defer k.mu.Unlock()
	k.inside, k.ctx, k.stop = s, ctx, stop
	k.work.Go(func() { k.watch(ctx) })
}

// enter begins something that is done for the container, until ctx ends at the latest;
// nil is that there is none.
func (k *children) enter() (ctx context.Context, done func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.inside == nil {
		return nil, nil
	}
	k.work.Add(1)
	return k.ctx, k.work.Done
}

func (k *children) closed() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.inside == nil
}

// leave is the end of the container: nothing is submitted from now on but what is under
// way, and nothing reads the work tree or writes beside it.
func (k *children) leave() {
	if k == nil {
		return
	}
	k.mu.Lock()
	stop := k.stop
	k.inside, k.stop = nil, nil
	k.mu.Unlock()
	if stop == nil {
		return
	}
	stop()
	ended := make(chan struct{})
	go func() {
		k.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(k.r.hurried(childLeave)):
		k.r.log.Warn("what comes back of jobs that the task has submitted is still under way, and is not waited for")
	}
}

// settle waits, not for long, for a submission under way: a further attempt takes one
// that has no record for one that failed.
func (q *asks) settle() {
	if q == nil || q.children == nil {
		return
	}
	k := q.children
	select {
	case k.making <- struct{}{}:
		<-k.making
	case <-time.After(k.r.hurried(childSettle)):
		k.r.log.Warn("a job that the task has asked for is still being submitted, and is not waited for")
	}
}

// waiting is how many requests wait for a child.
func (q *asks) waiting() int {
	if q == nil || q.children == nil {
		return 0
	}
	return int(q.children.held.Load())
}

// submit records what was asked for, and has it submitted. With an error there may be a
// job all the same where that is unclear. notes are what the task should know. stubs are
// those by which it was asked for, or nil.
func (k *children) submit(ctx context.Context, stubs jobs.Stubs, w jobs.Wish, dir string) (c jobs.Child, notes []string, err error) {
	r := k.r
	if c, err = r.spec.Child(w); err == nil {
		err = narrower(&r.spec, &c)
	}
	if err == nil {
		err = imageThere(&r.spec, c.Image)
	}
	if err != nil {
		return c, nil, err
	}
	if c.Output != "" || c.Error != "" {
		if !path.IsAbs(dir) || len(dir) > maxDir || jobs.CheckText("", dir) != nil {
			return c, nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "the files for its output have no directory that can be named"}
		}
		c.Dir = dir
	}
	select {
	case k.making <- struct{}{}:
	case <-ctx.Done():
		return c, nil, errEnding
	}
	defer func() { <-k.making }()
	// What has begun is carried through: the task may end meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), childTimeout)
	defer cancel()
	if k.closed() || r.stop.Why() != nil || store.Cancelled(r.jobDir) {
		return c, nil, errEnding
	}
	if c.Job, err = ids.New(); err != nil {
		return c, nil, err
	}
	c.Attempt, c.Time = r.info.Number, time.Now().UTC()
	for won := false; !won; {
		have, err := k.load()
		if err != nil {
			return c, nil, err
		}
		c.After = nil
		for _, a := range w.After {
			on, err := find(have, a.Child)
			if err != nil {
				return c, nil, err
			}
			c.After = append(c.After, jobs.After{Job: on.Job, Need: a.Need})
		}
		if err := r.spec.Submit.Another(have, &c); err != nil {
			return c, nil, err
		}
		c.Number = len(have) + 1
		for file, pattern := range map[*string]string{&c.Output: w.Output, &c.Error: w.Error} {
			if pattern == "" {
				continue
			}
			if *file, err = stubs.Output(pattern, &c); err != nil {
				return c, nil, err
			}
		}
		if won, err = store.AddChild(r.jobDir, c); err != nil {
			return c, nil, err
		}
	}
	r.event("child", fmt.Sprintf("%d: job %s", c.Number, jobs.Short(c.Job)))
	words := []string{jobs.VerbChild, r.spec.ID, strconv.Itoa(c.Number)}
	if r.spec.Workspace != nil {
		var from string
		if from, notes, err = k.snapshot(c.Number); err == nil {
			words = append(words, from)
		}
	}
	call := func() error { return said(r.callClient(ctx, words...)) }
	switch {
	case err != nil:
	case r.spec.Clustered():
		err = call()
	default: // its process is one of this machine's
		err = supervise.Unshielded(call)
	}
	if err == nil {
		return c, notes, nil
	}
	if _, there := k.record(&c); there != nil {
		if serr := store.SetChildRefused(r.jobDir, c.Number, err.Error()); serr != nil {
			r.log.Warn("it could not be recorded that nothing was submitted", "child", c.Number, "err", serr)
		}
	}
	r.log.Warn("a job that the task has asked for was not submitted", "child", c.Number, "err", err)
	return c, notes, err
}

// narrower refuses a child that asks for more of the network or of the work tree than its
// parent has.
func narrower(of *jobs.Spec, c *jobs.Child) error {
	if _, err := network.Narrow(&of.Place, c.Network, c.Allow, jobs.NetworkOfJob(of.ID)); err != nil || len(c.Scope) == 0 {
		return err
	}
	scope, err := workspace.ParseScope(of.Workspace.Scope)
	if err != nil {
		return workspaceError(err)
	}
	for _, text := range c.Scope {
		within, err := scope.Contains(text)
		switch {
		case err != nil:
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "scope: " + err.Error()}
		case !within:
			return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("scope %.100q is not within that of this task", text),
				Hint: "a path within, or one of its patterns: " + strings.Join(of.Workspace.Scope, " ")}
		}
	}
	return nil
}

// imageThere refuses an image that was removed after the parent was submitted. Whether it is
// the same still, the child's own runner finds.
func imageThere(of *jobs.Spec, name string) error {
	for _, i := range of.Submit.Images {
		if i.Name != name || !filepath.IsAbs(i.Image) {
			continue
		}
		if _, err := os.Stat(i.Image); errors.Is(err, fs.ErrNotExist) {
			return &jobs.Error{Kind: jobs.KindNotFound, Msg: "the image " + name + " is gone: " + i.Image,
				Hint: "it was there when this task was submitted; leave --image out to have this task's own"}
		}
	}
	return nil
}

// said is the error of a program by what it has printed.
func said(err error) error {
	var e *run.Error
	if errors.As(err, &e) && strings.TrimSpace(e.Stderr) != "" && e.Exit.Signal == 0 {
		kind := jobs.KindInfra
		switch e.Exit.Code {
		case jobs.CodeUsage:
			kind = jobs.KindRejected
		case jobs.CodeConfig:
			kind = jobs.KindConfig
		case jobs.CodeAgain:
			kind = jobs.KindAgain
		}
		return &jobs.Error{Kind: kind, Msg: strings.TrimSpace(e.Stderr)}
	}
	return err
}

// snapshot commits the work tree as it is, for a child to start from.
func (k *children) snapshot(n int) (from string, notes []string, err error) {
	r, w := k.r, k.r.spec.Workspace
	ctx, done := k.enter()
	if ctx == nil {
		return "", nil, errEnding
	}
	defer done()
	ctx, cancel := context.WithTimeout(ctx, childTimeout)
	defer cancel()
	for try := 1; ; try++ {
		from, omitted, err := r.git().Lend(ctx, r.dir, store.ChildrenGit(r.jobDir), sourceOf(w), workspace.CollectOptions{
			Branch: fmt.Sprintf("berth-child/%d-%d-%d", r.info.Number, n, try),
			Ignore: w.Ignore, Artifacts: r.spec.Artifacts, Limits: workspace.ResultLimits(r.spec.Results),
			Message: fmt.Sprintf("%s: for job %d of it\n\nBerth-Job: %s\nBerth-Attempt: %s\n", r.spec.Name, n, r.spec.ID, r.info.ID)})
		if err == nil {
			for _, o := range omitted {
				notes = append(notes, "left out of what the job starts from: "+o.String())
			}
			return from, notes, nil
		}
		if k.closed() {
			return "", nil, errEnding
		}
		if !errors.Is(err, workspace.ErrChanging) || try == checkpointTries {
			return "", nil, workspaceError(err)
		}
	}
}

// find returns the child that a word names: its number, or the end of its id.
func find(have []jobs.Child, word string) (jobs.Child, error) {
	if n, err := strconv.Atoi(word); err == nil && n >= 1 && n <= len(have) && strconv.Itoa(n) == word {
		return have[n-1], nil
	}
	if len(word) >= 8 {
		for _, c := range have {
			if c.Job == word || jobs.Short(c.Job) == word {
				return c, nil
			}
		}
	}
	return jobs.Child{}, &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("this task has submitted no job %.40q", word)}
}

// load is all of them. Those that were read before are read no more.
func (k *children) load() ([]jobs.Child, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	all, err := store.LoadChildren(k.r.jobDir, k.all)
	if err == nil {
		k.all = all
	}
	return all, err
}

// named are those that words name, each once.
func (k *children) named(words []string) ([]jobs.Child, error) {
	have, err := k.load()
	if err != nil {
		return nil, err
	}
	var out []jobs.Child
	for _, w := range words {
		c, err := find(have, w)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(out, func(o jobs.Child) bool { return o.Number == c.Number }) {
			out = append(out, c)
		}
	}
	return out, nil
}

func (k *children) record(c *jobs.Child) (*jobs.Record, error) {
	st, err := store.At(k.r.stateDir())
	if err != nil {
		return nil, err
	}
	return st.Load(c.Job)
}

// state is how a child stands, and its record, which is nil where there is none.
func (k *children) state(c *jobs.Child) (jobs.State, *jobs.Record) {
	rec, err := k.record(c)
	switch {
	case err == nil:
		return jobs.StateOf(rec), rec
	case jobs.KindOf(err) != jobs.KindNotFound:
	case store.ChildRefused(k.r.jobDir, c.Number) != "":
		return jobs.StateError, nil
	case c.Attempt < k.r.info.Number: // no other runner submits it
		why := fmt.Sprintf("the runner of attempt %d ended before it was submitted", c.Attempt)
		if err := store.SetChildRefused(k.r.jobDir, c.Number, why); err != nil {
			k.r.log.Warn("it could not be recorded that nothing was submitted", "child", c.Number, "err", err)
			return jobs.StatePending, nil
		}
		return jobs.StateError, nil
	}
	return jobs.StatePending, nil
}

// watch brings back what has ended. It asks the scheduler about the others now and then:
// a job whose runner was killed says nothing itself.
func (k *children) watch(ctx context.Context) {
	asked := time.Now()
	for {
		have, err := k.load()
		if err != nil {
			k.r.log.Warn("the jobs of the task cannot be read", "err", err)
		}
		var open []string
		for _, c := range have {
			k.mu.Lock()
			done := k.back[c.Number]
			k.mu.Unlock()
			if done {
				continue
			}
			state, rec := k.state(&c)
			if !state.Final() {
				open = append(open, c.Job)
				continue
			}
			if err := k.bring(ctx, &c, rec); err != nil && ctx.Err() == nil {
				k.r.log.Warn("the result of a job that the task has submitted could not be brought in", "child", c.Number, "err", err)
			}
			if ctx.Err() != nil {
				return
			}
			k.mu.Lock()
			k.back[c.Number] = true
			close(k.changed)
			k.changed = make(chan struct{})
			k.mu.Unlock()
		}
		if len(open) > 0 && time.Since(asked) >= childFollow {
			asked = time.Now()
			if err := k.r.callClient(ctx, append([]string{jobs.VerbFollow}, open...)...); err != nil {
				k.r.log.Info("the scheduler could not be asked about jobs of the task", "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(childLook + time.Duration(len(open))*lookFor):
		}
	}
}

// childStatus is status.json of what comes back.
type childStatus struct {
	Version int        `json:"version"`
	Number  int        `json:"number"`
	Job     string     `json:"job"`
	State   jobs.State `json:"state"`
	Code    int        `json:"code"` // as of berth wait
	Exit    *jobs.Exit `json:"exit,omitempty"`
	Reason  string     `json:"reason,omitempty"`
	LeftOut []string   `json:"left_out,omitempty"`
}

func (k *children) status(c *jobs.Child) childStatus {
	state, rec := k.state(c)
	s := childStatus{Version: 1, Number: c.Number, Job: c.Job, State: state, Code: jobs.CodePending}
	switch {
	case rec == nil && state.Final():
		s.Code, s.Reason = jobs.CodeInfra, store.ChildRefused(k.r.jobDir, c.Number)
	case rec != nil:
		s.Code = jobs.CodeOfRecord(rec)
		if a := rec.Current(); a != nil && a.Exit != nil {
			s.Exit, s.Reason = &a.Exit.Exit, a.Exit.Reason
		} else if a != nil && a.Verdict != nil {
			s.Reason = a.Verdict.Reason
		}
	}
	return s
}

// bring copies the result of a child that has ended into the container, as the task's
// own user.
func (k *children) bring(ctx context.Context, c *jobs.Child, rec *jobs.Record) error {
	k.mu.Lock()
	in := k.inside
	k.mu.Unlock()
	if in == nil || in.Guest().AskDir == "" {
		return nil
	}
	stage, err := os.MkdirTemp(k.r.dir, workspace.ChildPrefix+"back-")
	if err != nil {
		return err
	}
	defer func() { _ = disk.RemoveTree(stage) }()
	status := k.status(c)
	var adir string
	if rec != nil && rec.Current() != nil {
		adir = rec.Current().Dir
	}
	for from, to := range map[string]string{store.FileStdout: "stdout", store.FileStderr: "stderr", workspace.DiffFile: "result.patch"} {
		f, err := os.OpenFile(filepath.Join(stage, to), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		if adir != "" {
			if err := appendFile(f, filepath.Join(adir, from)); err != nil {
				status.LeftOut = append(status.LeftOut, to+": "+err.Error())
			}
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(status, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(stage, "status.json"), append(text, '\n'), 0o600)
	}
	if err != nil {
		return err
	}
	dir := path.Join(in.Guest().AskDir, strconv.Itoa(c.Number))
	if _, err := in.CopyIn(ctx, "", stage, dir, nil); err != nil {
		return err
	}
	if arts := filepath.Join(adir, "artifacts"); adir != "" && isDir(arts) {
		if _, err := in.CopyIn(ctx, "", arts, path.Join(dir, "artifacts"), nil); err != nil {
			return err
		}
	}
	return k.outputs(ctx, in, c, stage)
}

// appendFile copies a file of a record; one that is not there is empty.
func appendFile(to io.Writer, name string) error {
	f, err := disk.OpenRegular(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if n, err := io.Copy(to, io.LimitReader(f, maxBack)); err != nil || n < maxBack {
		return err
	}
	return fmt.Errorf("only its first %d bytes came back", maxBack)
}

func isDir(name string) bool {
	fi, err := os.Lstat(name)
	return err == nil && fi.IsDir()
}

// outputs writes the files that the task has named for what a child prints.
func (k *children) outputs(ctx context.Context, in *session.Session, c *jobs.Child, stage string) error {
	out := filepath.Join(stage, "stdout")
	if c.Output != "" && c.Error == "" { // both
		f, err := os.OpenFile(out, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		err = appendFile(f, filepath.Join(stage, "stderr"))
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	var errs []error
	for to, from := range map[string]string{c.Output: out, c.Error: filepath.Join(stage, "stderr")} {
		if to == "" {
			continue
		}
		if _, err := in.CopyIn(ctx, "", from, path.Join(c.Dir, to), nil); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// endChildren cancels those that have not ended, where the task wants it, when the job
// has no further attempt.
func (r *attempt) endChildren(ctx context.Context) {
	if r.spec.Submit == nil || !r.spec.Submit.EndWithParent || r.spec.Retry != nil && r.verb != jobs.VerbAccept {
		return
	}
	if have, err := store.LoadChildren(r.jobDir, nil); err == nil && len(have) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, childEnd)
	defer cancel()
	if err := r.callClient(ctx, jobs.VerbChild, "--cancel", r.spec.ID); err != nil {
		r.log.Warn("the jobs that the task has submitted could not be cancelled; the next berth command that looks at them does it", "err", err)
		return
	}
	r.event("children_ended", "")
}
