package replica

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"berth/internal/network/wayout"
	"berth/internal/sys/disk"
	"berth/jobs"
	"berth/jobs/store"
)

// incoming is what an answer says of one job.
type incoming struct {
	rec    *jobs.Record
	have   map[string]int64
	hold   map[string][]byte // what tells of the end, until the rest is here
	moved  int64
	closed bool
	more   bool
	next   bool // another attempt has begun, which is here now
	err    error
}

// receiver reads an answer.
type receiver struct {
	s    *Site
	ctx  context.Context
	recs map[string]*incoming

	follow bool // it was asked for
}

// all reads to the end. An error is about the stream; what is wrong with one
// job is that job's.
func (in *receiver) all(r *bufio.Reader) error {
	const maxFrame = 64 << 10
	for {
		line, err := readLine(r, maxFrame)
		if err != nil {
			return fmt.Errorf("the answer of %s breaks off: %w", in.s, err)
		}
		var f frame
		if err := json.Unmarshal(line, &f); err != nil {
			return in.s.nonsense(err)
		}
		if f.End {
			return nil
		}
		job := in.recs[f.Job]
		if job == nil || job.closed || f.Length < 0 || f.Length > roundBudget+store.MaxOnce {
			return in.s.nonsense(fmt.Errorf("a line about %q", plain(f.Job)))
		}
		body := &exactly{r: r, left: f.Length}
		err = nil
		switch {
		case f.Fault != nil:
			err = f.Fault.err()
		case f.State != nil:
			job.closed = true
			if job.err == nil {
				err = in.close(job, f.State)
			}
		case job.err == nil:
			err = job.file(f, body)
		}
		if err != nil && job.err == nil {
			job.err = fmt.Errorf("%s: %w", in.s, err)
			if f.Fault != nil && f.Name == "" {
				job.closed = true
			}
		}
		if _, err := io.Copy(io.Discard, body); err != nil {
			return fmt.Errorf("the answer of %s breaks off: %w", in.s, err)
		}
	}
}

// file takes one file, or the continuation of one.
func (j *incoming) file(f frame, body io.Reader) error {
	want, ok := fileOf(f.Name)
	have, known := j.have[f.Name]
	bad := func(why string) error {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("what it sends as %q is refused: %s", plain(f.Name), why)}
	}
	switch {
	case !ok:
		return bad("no such file is copied")
	case f.Size < 0 || f.Size > want.max || f.Offset+f.Length > f.Size:
		return bad("its size is wrong")
	case f.Offset != have:
		return bad("it was not asked for from there on")
	case want.kind == once && (known || f.Length != f.Size):
		return bad("it was not asked for")
	}
	j.moved += f.Length
	path := pathOf(j.rec, want)
	switch want.kind {
	case once:
		data, err := io.ReadAll(body)
		if err != nil {
			return err
		}
		j.have[f.Name] = f.Size
		if slices.Contains(last, f.Name) {
			j.hold[f.Name] = data
			return nil
		}
		_, err = store.Import(j.rec.Current().Dir, f.Name, data)
		return err
	case grows:
		n, err := continueFile(path, f.Offset, body)
		j.have[f.Name] = f.Offset + n
		return err
	default:
		n, err := continueFile(partOf(path), f.Offset, body)
		j.have[f.Name] = f.Offset + n
		if err == nil && f.Offset+f.Length == f.Size {
			err = whole(path)
		}
		return err
	}
}

// continueFile writes at the end of a file. Of two processes that continue one
// file both write the same in the same place.
func continueFile(path string, offset int64, body io.Reader) (int64, error) {
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { _ = w.Close() }()
	fi, err := w.Stat()
	if err == nil && (!fi.Mode().IsRegular() || fi.Size() < offset) {
		err = fmt.Errorf("%s has changed meanwhile", path)
	}
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(io.NewOffsetWriter(w, offset), body)
	if cerr := w.Close(); err == nil {
		err = cerr
	}
	return n, err
}

// whole gives a file that has come in its name, once.
func whole(path string) error {
	part := partOf(path)
	if f, err := os.Open(part); err == nil {
		_ = f.Sync()
		_ = f.Close()
	}
	err := os.Link(part, path)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	_ = os.Remove(part)
	return disk.SyncDir(filepath.Dir(path))
}

// close takes the last line of a job. The word about its end becomes a file
// only when everything before it is here.
func (in *receiver) close(j *incoming, st *jobState) error {
	if st.Gone {
		switch {
		case j.rec.Current().Submitted == nil && in.follow:
			return &jobs.Error{Kind: jobs.KindNotFound, Msg: "it has no record of job " + jobs.Short(j.rec.Spec.ID)}
		case j.rec.Current().Submitted == nil:
			return nil // it has never arrived, or not yet
		}
		return &jobs.Error{Kind: jobs.KindNotFound, Msg: "it has no record of job " + jobs.Short(j.rec.Spec.ID) + " any more",
			Hint: "it was removed there; berth rm --force " + jobs.Short(j.rec.Spec.ID) + " removes this one"}
	}
	dir := j.rec.Current().Dir
	if st.Sign != nil && *st.Sign >= 0 && *st.Sign < int64(maxSilence/time.Millisecond) {
		if err := store.SetBeat(dir, time.Now().Add(-time.Duration(*st.Sign)*time.Millisecond)); err != nil {
			return err
		}
	}
	var waits time.Time
	if n := st.NoRelay; n != nil && *n >= 0 && *n < int64(maxSilence/time.Millisecond) {
		waits = time.Now().Add(-time.Duration(*n) * time.Millisecond)
	}
	if err := wayout.Copied(dir, waits); err != nil {
		return err
	}
	if err := j.stuck(st.Stuck); err != nil {
		return err
	}
	if j.more = st.More; j.more {
		return nil
	}
	if st.Over > 0 && j.hold[store.FileExit] != nil {
		in.s.c.Progress(fmt.Sprintf("%v of the files of job %s were not copied here: they are over the limit, and stay on %s",
			jobs.Bytes(st.Over), jobs.Short(j.rec.Spec.ID), in.s))
	}
	exit, err := j.artifacts()
	if err == nil && exit != nil {
		err = in.s.artifacts(in.ctx, j.rec, exit)
	}
	if err != nil {
		return err
	}
	for _, name := range last {
		if data := j.hold[name]; data != nil {
			if _, err := store.Import(dir, name, data); err != nil {
				return err
			}
		}
	}
	if st.Unfollowed != nil {
		err = st.Unfollowed.err()
	}
	if n := st.Next; n != nil && n.Info.Number == j.rec.Current().N+1 {
		if rerr := store.ReceiveAttempt(j.rec.Dir, n.Info, string(n.Script)); rerr != nil {
			return rerr
		}
		j.next = err == nil
	}
	return err
}

// stuck takes over what could not be submitted there, or that it could be.
func (j *incoming) stuck(now *jobs.Unfollowed) error {
	a := j.rec.Current()
	switch {
	case now == nil && a.Unfollowed != nil:
		store.DropUnfollowed(a.Dir)
	case now != nil && (a.Unfollowed == nil || *a.Unfollowed != *now):
		if now.Version > 1 {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: "it has a newer berth", Hint: "use that version of berth"}
		}
		return store.SetUnfollowed(a.Dir, jobs.Unfollowed{Version: 1, Reason: plain(now.Reason), Hint: plain(now.Hint), Time: now.Time})
	}
	return nil
}

// artifacts returns the record of the attempt's end if its artifacts are wanted
// here: its result is the job's, as far as is said now or is known here.
func (j *incoming) artifacts() (*jobs.ExitRecord, error) {
	a := *j.rec.Current()
	if data := j.hold[store.FileExit]; data != nil {
		a.Exit = &jobs.ExitRecord{}
		if err := json.Unmarshal(data, a.Exit); err != nil {
			return nil, err
		}
	}
	if data := j.hold[store.FileDecision]; data != nil {
		a.Decision = &jobs.Decision{}
		if err := json.Unmarshal(data, a.Decision); err != nil {
			return nil, err
		}
	}
	if a.Exit == nil || len(a.Exit.Artifacts) == 0 {
		return nil, nil
	}
	if j.rec.Spec.Retry != nil && (a.Decision == nil || a.Decision.Verb != jobs.VerbAccept) {
		return nil, nil
	}
	return a.Exit, nil
}

const maxSilence = 10 * 365 * 24 * time.Hour
