package engine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"berth/internal/sys/disk"
	"berth/jobs"
	"berth/jobs/store"
)

// What a reaper asks for, and how long it goes on looking.
const (
	// reaperTime is the least that a scheduler counts in: Slurm has minutes.
	reaperTime = time.Minute
	// reaperMemory holds berth and one of the scheduler's programs.
	reaperMemory = 256 * jobs.MiB
	// looking is how much of its minute may pass before it submits its successor,
	// which also takes time.
	looking = 35 * time.Second
	// mostLooks bounds a reaper that finds nothing to do each time: half a day,
	// as its pauses grow.
	mostLooks = 50
	// soonest and latest bound its pauses.
	soonest, latest = 15 * time.Second, 15 * time.Minute
	// guarding is how long after a submission other processes wait for the process
	// that submits the reaper.
	guarding = 30 * time.Second
	// guardAgain is how long this process waits after it tried to submit a job's
	// reaper: a submission takes minutes where the controller is busy, and a client
	// that waits for a job looks at it every few seconds.
	guardAgain = 5 * time.Minute
	// mostGuards bounds for how many jobs one process submits missing reapers.
	mostGuards = 500
)

// reaped tells whether the attempts of a job have reapers: small jobs that wait
// in Slurm for the end of an attempt and do then what must follow, should its
// runner have been unable to.
func reaped(s *jobs.Spec) bool { return s.FollowedOnCluster() && !s.Profile.NodesMute }

// guardAside is [Engine.Guard] of a job that was just submitted, by a process of
// its own: whoever submits many waits for one answer of the scheduler each, and
// is told the id as soon as it is recorded. When that process is lost before it
// has come so far, the runner, or whoever looks at the job, notices it by
// [jobs.Record.Unguarded].
func (e *Engine) guardAside(ctx context.Context, r *jobs.Record) {
	if r.Spec.FollowedOnCluster() && e.Aside != nil && e.guardApart([]*jobs.Record{r}) == nil {
		return
	}
	e.Guard(ctx, r)
}

// guardApart starts that process, for jobs that may have no reaper.
func (e *Engine) guardApart(recs []*jobs.Record) error {
	words := []string{jobs.VerbFollow, "--guard"}
	for _, r := range recs {
		words = append(words, r.Spec.ID)
	}
	return e.Aside(filepath.Join(recs[0].Current().Dir, store.FileReaperLog), words...)
}

// guards is for which attempts this process has begun that, and when.
type guards struct {
	mu    sync.Mutex
	begun map[string]time.Time // by the attempt's id
}

// due tells whether it is to be begun for an attempt, and notes that it is.
func (g *guards) due(attempt string, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if last, again := g.begun[attempt]; again && now.Sub(last) < guardAgain {
		return false
	}
	if g.begun == nil {
		g.begun = map[string]time.Time{}
	}
	g.begun[attempt] = now
	return true
}

// guardLeft has reapers submitted for those of the jobs that ought to have had
// one for a while. When that fails, the next who looks does it.
func (e *Engine) guardLeft(recs []*jobs.Record) {
	var left []*jobs.Record
	for _, r := range recs {
		if len(left) < mostGuards && r.Unguarded() && e.Now().Sub(r.Current().Submitted.Time) >= guarding &&
			e.guards.due(r.Current().Info.ID, e.Now()) {
			left = append(left, r)
		}
	}
	if len(left) > 0 && e.Aside != nil {
		_ = e.guardApart(left)
	}
}

// Guard submits the reaper of a job's current attempt, unless it has one. It
// may be submitted twice, which costs a moment on a node and no more. What
// fails is recorded and shown with the job, and is no failure of the job. Where
// nodes may not submit, it is standbys that are submitted.
func (e *Engine) Guard(ctx context.Context, r *jobs.Record) {
	if unguardedThere(r) {
		e.guardThere(ctx, r)
		return
	}
	a := r.Current()
	if r.Spec.Profile.NodesMute {
		e.replenish(ctx, r)
		return
	}
	if a == nil || a.Submitted == nil || a.Reaper != nil || a.Over() || !reaped(&r.Spec) {
		return
	}
	if err := e.reaper(ctx, r, 0, 0); err != nil {
		e.mark(a, "no job could be submitted that goes on with it when its runner is killed", err, "berth follow "+jobs.Short(r.Spec.ID)+" tries again")
		return
	}
	if a.Unfollowed != nil {
		store.DropUnfollowed(a.Dir)
		a.Unfollowed = nil
	}
}

// reaper submits one for the current attempt: after the end of the attempt's
// job, or where looks were in vain before, after a while.
func (e *Engine) reaper(ctx context.Context, r *jobs.Record, looks int, wait time.Duration) error {
	s, a := &r.Spec, r.Current()
	sc, _, err := e.schedulerOf(s)
	if err != nil {
		return err
	}
	node, err := e.Node()
	if err != nil {
		return err
	}
	l := jobs.Launch{
		Attempt:  a.Info.ID,
		Name:     jobs.ReaperName(a.Info.ID),
		Dir:      a.Dir,
		Log:      store.FileReaperLog,
		Profile:  s.Profile,
		Identity: identity(),
		Requeue:  true,
		Argv:     []string{node, jobs.VerbFollow, "--reap", "--attempt", strconv.Itoa(a.N), "--looks", strconv.Itoa(looks), s.ID},
		Env:      []string{"BERTH_HOME=" + e.Store.Home()},
		Comment: []string{
			"berth job " + jobs.Short(s.ID) + ": " + s.Name,
			"looks after attempt " + strconv.Itoa(a.N) + " when the scheduler has ended it: begins the next one, if there is to be one",
		},
		Resources: ReaperAsks(),
		Slurm:     s.Slurm,
		Aside:     true,
	}
	if wait == 0 && !slices.Contains(s.Profile.Forbid, "dependency") {
		l.Behind = []jobs.Handle{a.Submitted.Handle}
	} else if l.Wait = wait; wait == 0 {
		l.Wait = pause(looks)
	}
	script, err := sc.Render(l)
	if err != nil {
		return err
	}
	file, err := store.WriteReaper(a.Dir, script)
	if err != nil {
		// A reaper must go on also where the state directory is full. Slurm has read
		// the script when it has answered.
		tmp, terr := disk.WriteTemp(os.TempDir(), []byte(script), 0o600)
		if terr != nil {
			return err
		}
		defer func() { _ = os.Remove(tmp) }()
		file = tmp
	}
	h, err := sc.Submit(ctx, l, file)
	if unclear(err) {
		// A second one would do no harm, so it is looked for once.
		if found, ferr := sc.Find(ctx, []string{l.Name}); ferr == nil && found[l.Name].NativeID != "" {
			h, err = found[l.Name], nil
		}
	}
	if err != nil || a.Reaper != nil {
		return err
	}
	sub := jobs.Submitted{Version: 1, Handle: h, Time: e.Now().UTC()}
	if _, err := store.SetReaper(a.Dir, sub); err != nil {
		return err
	}
	a.Reaper = &sub
	// Who has ended the job meanwhile did not see it.
	if now, err := store.LoadDir(r.Dir); err == nil && now.Current().Decision != nil && jobs.StateOf(now).Final() {
		_ = sc.Cancel(ctx, []jobs.Handle{h}) // else it comes, finds nothing to do, and ends
	}
	return nil
}

// ReaperAsks is what a reaper asks the scheduler for.
func ReaperAsks() jobs.Resources { return jobs.Resources{Memory: reaperMemory, Time: reaperTime} }

// pause is how long after a look in vain the next one comes.
func pause(looks int) time.Duration { return min(soonest<<min(looks, 10), latest) }

// Reap is the work of a reaper: it does what must follow the attempt. If it is too
// early for that, it submits the next reaper and ends, so that it never waits on a
// node. attempt is the number of the attempt that it was submitted for, looks the
// number of earlier looks that found nothing to do.
func (e *Engine) Reap(ctx context.Context, r *jobs.Record, attempt, looks int) (View, error) {
	soon, cancel := context.WithTimeout(jobs.WithUrgency(ctx), looking)
	defer cancel()
	v := e.Reconcile(soon, []*jobs.Record{r})[0]
	a := v.Current()
	switch {
	case v.State.Final() && v.AskError == nil:
		if s := r.Spec.Submit; s != nil && s.EndWithParent {
			return v, e.CancelChildren(ctx, v.Record, nil, endedWithParent)
		}
		return v, nil
	case a.N != attempt && a.Reaper != nil:
		return v, nil // that one's turn comes
	case a.N != attempt && a.Submitted != nil && !a.Over():
		e.Guard(ctx, v.Record)
		return v, nil
	case looks >= mostLooks:
		err := &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("nothing came of %d looks", looks), Err: v.AskError}
		e.mark(a, "the job that looks after it has given up", err, "berth follow "+jobs.Short(r.Spec.ID))
		return v, err
	}
	err := e.reaper(ctx, v.Record, looks+1, e.lookAgain(&v, looks))
	if err != nil {
		e.mark(a, "the job that looks after it could not be submitted again", err, "berth follow "+jobs.Short(r.Spec.ID))
	}
	return v, err
}

// lookAgain is when a reaper that could not end its work is to look again; 0 is
// after the end of the attempt's job, which Slurm has requeued, or will.
func (e *Engine) lookAgain(v *View, looks int) time.Duration {
	a := v.Current()
	if h := v.Standby; h != nil && a.Submitted != nil && h.NativeID == a.Submitted.Handle.NativeID {
		return 0
	}
	if v.Asked && !v.Status.State.Final() && !a.Over() {
		return 0
	}
	least := pause(looks)
	if v.AskError == nil && a.Claim != nil && !a.Over() {
		// Its runner may live on where Slurm does not reach it; [Engine.judge]
		// takes its silence for its end.
		by := silent(&v.Spec)
		if v.Asked && !cutOff(v.Status) {
			by = quiet(&v.Spec)
		}
		return min(max(lastSign(a).Add(by).Sub(e.Now())+time.Second, least), latest)
	}
	return least
}

// mark records what could not be submitted, for everybody who looks at the job.
func (e *Engine) mark(a *jobs.Attempt, what string, err error, hint string) {
	u := jobs.Unfollowed{Version: 1, Reason: what + ": " + err.Error(), Hint: hint, Time: e.Now().UTC()}
	if h := jobs.HintOf(err); h != "" {
		u.Hint = h + "; then " + hint
	}
	a.Unfollowed = &u
	_ = store.SetUnfollowed(a.Dir, u) // what cannot be written is told all the same
}
