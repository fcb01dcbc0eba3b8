package replica

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"berth/internal/network/wayout"
	"berth/internal/node/conclude"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
)

// round answers what is new of the jobs that the other side asks about.
func (f *far) round(ctx context.Context) error {
	in := bufio.NewReaderSize(f.stdin, 64<<10)
	line, err := readLine(in, maxParcel)
	if err != nil {
		return fmt.Errorf("read the question: %w", err)
	}
	var ask roundAsk
	if err := json.Unmarshal(line, &ask); err != nil {
		return fmt.Errorf("read the question: %w", err)
	}
	st, err := at(ask.Home)
	if err != nil {
		return err
	}
	now := st.Clock()
	if now.IsZero() {
		now = time.Now()
	}
	// What was made on the other side is there before anything follows of it.
	refused := map[string]error{}
	for _, j := range ask.Jobs {
		refused[j.ID] = take(st, j)
	}
	var unfollowed *fault
	if len(ask.Follow) > 0 {
		if err := f.follow(ctx, ask.Home, ask.Follow); err != nil {
			unfollowed = faultOf(err)
		}
	}
	out := bufio.NewWriterSize(f.stdout, 64<<10)
	a := &answer{out: out, json: json.NewEncoder(out), budget: ask.Budget, now: now}
	for _, j := range ask.Jobs {
		if slices.Contains(ask.Follow, j.ID) {
			a.unfollowed = unfollowed
		}
		if err := a.job(st, j, refused[j.ID]); err != nil {
			return err
		}
		a.unfollowed = nil
	}
	if err := a.json.Encode(frame{Version: version, End: true}); err != nil {
		return err
	}
	return out.Flush()
}

// followTime bounds what is done for jobs: a submission waits while the queue is full.
const followTime = 8 * time.Minute

// followHere is `berth-node follow` of this program, which acts on jobs as a
// berth of this machine's user does.
func followHere(ctx context.Context, home string, ids []string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, followTime)
	defer cancel()
	_, err = run.Output(ctx, run.Local{}, jobs.Cmd{Argv: append([]string{self, jobs.VerbFollow}, ids...), Env: append(os.Environ(), "BERTH_HOME="+home)})
	return err
}

// take creates what was made on the other side.
func take(st *store.Store, j haveJob) error {
	if len(j.Give) == 0 {
		return nil
	}
	rec, err := st.Load(j.ID)
	if err != nil {
		return nil // which is said where the job is answered
	}
	a := attempt(rec, j.Attempt)
	for name, data := range j.Give {
		ofJob := name == store.FileCancel || store.IsAllowName(name) // whatever its attempts
		if !given[name] && !ofJob {
			return fmt.Errorf("%q is not taken here", name)
		}
		if a == nil && !ofJob {
			continue
		}
		dir := store.AttemptDir(rec.Dir, 1)
		if a != nil {
			dir = a.Dir
		}
		took, err := store.Import(dir, name, data)
		if err != nil {
			return err
		}
		if name == store.FileVerdict && took { // its giver has no work tree of it
			_ = conclude.PutAway(dir)
		}
		if name == store.FileVerdict && rec.Spec.Retry == nil {
			store.DropSecrets(rec.Dir)
		}
	}
	return nil
}

// attempt is one by its number, or nil.
func attempt(r *jobs.Record, n int) *jobs.Attempt {
	for i := range r.Attempts {
		if r.Attempts[i].N == n {
			return &r.Attempts[i]
		}
	}
	return nil
}

type answer struct {
	out    *bufio.Writer
	json   *json.Encoder
	budget int64
	now    time.Time

	unfollowed *fault // of the job that is answered
}

// job sends what is new of one job. An error is about the stream; what is wrong
// with the job is said in it.
func (a *answer) job(st *store.Store, j haveJob, refused error) error {
	say := func(err error) error { return a.json.Encode(frame{Job: j.ID, Fault: faultOf(err)}) }
	rec, err := st.Load(j.ID)
	switch {
	case jobs.KindOf(err) == jobs.KindNotFound:
		return a.json.Encode(frame{Job: j.ID, State: &jobState{Gone: true}})
	case err != nil:
		return say(err)
	case refused != nil:
		return say(refused)
	}
	cur := attempt(rec, j.Attempt)
	if cur == nil {
		return say(&jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("the record in %s has no attempt %d", rec.Dir, j.Attempt)})
	}
	// Looked at first: what follows was written before it, so it is whole.
	ended := cur.Over()
	accepted := ended && (rec.Spec.Retry == nil || cur.Decision != nil && cur.Decision.Verb == jobs.VerbAccept)
	state := &jobState{Unfollowed: a.unfollowed, Stuck: cur.Unfollowed}
	for _, f := range files {
		dir := cur.Dir
		if f.name == store.FileCancel {
			dir = rec.Dir
		}
		have, known := j.Have[f.name]
		switch {
		case f.kind == once && known,
			f.kind == final && !accepted,
			slices.Contains(last, f.name) && (!ended || state.More),
			f.name == store.FileDecision && cur.Decision == nil:
			continue
		}
		if err := a.file(filepath.Join(dir, f.name), j.ID, f, have, state); err != nil {
			return err
		}
	}
	if next := attempt(rec, j.Attempt+1); next != nil && !state.More {
		script, err := os.ReadFile(store.ScriptPath(next.Dir))
		if err != nil {
			return say(err)
		}
		if len(script) > maxScript {
			script = []byte("# it is long, and stands in " + store.ScriptPath(next.Dir) + " on the cluster\n")
		}
		state.Next = &nextAttempt{Info: next.Info, Script: script}
	}
	if at, ok := store.LastSign(cur.Dir); ok {
		ms := max(0, a.now.Sub(at).Milliseconds())
		state.Sign = &ms
	}
	if relay, err := wayout.Peek(cur.Dir); err == nil && relay != nil && relay.Relay == nil && !ended {
		ms := max(0, a.now.Sub(relay.Since).Milliseconds())
		state.NoRelay = &ms
	}
	return a.json.Encode(frame{Job: j.ID, State: state})
}

// file sends what is new of one file.
func (a *answer) file(path, job string, f file, have int64, state *jobState) error {
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return a.json.Encode(frame{Job: job, Name: f.name, Fault: faultOf(err)})
	}
	defer func() { _ = r.Close() }()
	fi, err := r.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return a.json.Encode(frame{Job: job, Name: f.name, Fault: faultOf(fmt.Errorf("%s is no file: %w", path, errors.Join(err)))})
	}
	size := fi.Size()
	if f.kind == final && size > f.max {
		state.Over += size
		return nil
	}
	if size > f.max {
		state.Over += size - f.max
		size = f.max
	}
	length := size - have
	if length < 0 || length == 0 && (have > 0 || f.kind == grows) {
		return nil
	}
	if f.kind != once && length > a.budget {
		length, state.More = a.budget, true
	}
	if length == 0 && size > 0 {
		return nil
	}
	a.budget -= length
	if a.budget < 0 {
		a.budget = 0
	}
	if _, err := r.Seek(have, io.SeekStart); err != nil {
		return err
	}
	if err := a.json.Encode(frame{Job: job, Name: f.name, Offset: have, Length: length, Size: size}); err != nil {
		return err
	}
	n, err := io.CopyN(a.out, r, length)
	if errors.Is(err, io.EOF) {
		// It became shorter, which no runner does to a file. The stream has to
		// stay in step.
		return fmt.Errorf("%s became shorter by %d bytes while it was read", path, length-n)
	}
	return err
}
