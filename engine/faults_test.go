package engine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/jobstest"
	"berth/jobs/store"
)

// TestFaults has many jobs on a site where one in twenty of all things goes
// wrong. All of them come to an end, and the counts add up. By hand, with more:
//
//	BERTH_FAULTS=2000 BERTH_SEED=1 TMPDIR=/dev/shm go test -count=1 -v -run 'TestFaults$' ./engine
func TestFaults(t *testing.T) {
	n, seed := 60, uint64(time.Now().UnixNano()%1e6)
	if s := os.Getenv("BERTH_FAULTS"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	if s := os.Getenv("BERTH_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	t.Logf("%d jobs, seed %d (BERTH_SEED)", n, seed)
	f := newFixture(t)
	const rate = 0.05
	faulty := jobstest.NewFaulty(f.slurm, seed, rate)
	faulty.Slow = func() { f.pass(45 * time.Second) }
	f.Schedulers = []jobs.Scheduler{faulty, f.queue}
	s := &simulated{fixture: f, rand: rand.New(rand.NewPCG(seed, 2)), rate: rate, runs: map[string]*simRun{}, fates: map[string]int{}, delivered: map[string]int{}}
	f.onSleep = s.beats

	acknowledged := map[string]bool{}
	refused, unclearly := 0, 0
	for i := range n {
		tk := task(gib)
		if i%4 != 0 {
			again(&tk)
		}
		r, err := f.Submit(t.Context(), f.plan(tk, Choice{}), tk)
		switch {
		case err == nil:
			acknowledged[r.Spec.ID] = true
		case r != nil && unclear(err):
			unclearly++
		default:
			refused++
		}
	}
	cancelled := 0
	var open []string
	for id := range acknowledged {
		open = append(open, id)
	}
	slices.Sort(open)
	all, err := f.Store.List()
	must(t, err)
	if len(all) != len(acknowledged)+unclearly {
		t.Fatalf("%d records of %d acknowledged and %d unclear submissions", len(all), len(acknowledged), unclearly)
	}
	open = open[:0]
	for _, r := range all {
		open = append(open, r.Spec.ID)
	}
	round := 0
	for ; len(open) > 0; round++ {
		if round == 2000 {
			t.Fatalf("after %d rounds %d jobs have not ended: %s", round, len(open), s.describe(open[0]))
		}
		f.pass(30 * time.Second)
		stale := s.records(open)
		s.step()
		views := f.Reconcile(t.Context(), s.records(open))
		if round%3 == 0 { // a client that has read everything before
			f.Reconcile(t.Context(), stale)
		}
		if round < 20 {
			v := views[s.rand.IntN(len(views))]
			if !v.State.Final() {
				cancelled++
				_ = f.Cancel(t.Context(), []View{v}, "alice")
			}
		}
		open = open[:0]
		for _, v := range views {
			if !v.State.Final() {
				open = append(open, v.Spec.ID)
			}
		}
	}

	// What was late comes to its end, too, and changes nothing.
	states := map[jobs.State]int{}
	all, err = f.Store.List()
	must(t, err)
	before := map[string]jobs.State{}
	for _, r := range all {
		before[r.Spec.ID] = jobs.StateOf(r)
	}
	for range 40 {
		f.pass(time.Minute)
		s.step()
	}
	all, err = f.Store.List()
	must(t, err)
	attempts, again := 0, 0
	names, reapers := map[string]bool{}, map[string]bool{}
	for _, r := range all {
		state := jobs.StateOf(r)
		states[state]++
		attempts += len(r.Attempts)
		if len(r.Attempts) > 1 {
			again++
		}
		if state != before[r.Spec.ID] {
			// Without retry a late exit record says what really happened.
			if r.Spec.Retry != nil {
				t.Errorf("job %s was %s and is %s", r.Spec.ID, before[r.Spec.ID], state)
			}
		}
		accepted := 0
		for i := range r.Attempts {
			a := &r.Attempts[i]
			names[a.Info.Name], reapers[jobs.ReaperName(a.Info.ID)] = true, true
			if a.Decision != nil && a.Decision.Verb == jobs.VerbAccept {
				accepted++
			}
			if last := i == len(r.Attempts)-1; r.Spec.Retry != nil && (a.Decision == nil || (a.Decision.Verb == jobs.VerbAccept) != last) {
				t.Errorf("job %s, attempt %d of %d: %+v", r.Spec.ID, a.N, len(r.Attempts), a.Decision)
			}
		}
		if r.Spec.Retry != nil && accepted != 1 {
			t.Errorf("job %s: %d results are accepted", r.Spec.ID, accepted)
		}
		if got := s.delivered[r.Spec.ID]; got > 1 || (got == 1) != (state == jobs.StateCompleted) {
			t.Errorf("job %s is %s, and was delivered %d times", r.Spec.ID, state, got)
		}
		delete(acknowledged, r.Spec.ID)
	}
	if len(acknowledged) > 0 {
		t.Errorf("acknowledged, and gone: %v", slices.Sorted(maps.Keys(acknowledged)))
	}
	asked := map[string]bool{}
	for _, l := range f.slurm.Launches() {
		if reapers[l.Name] {
			continue // one that is submitted twice does no harm
		}
		if asked[l.Name] {
			t.Errorf("%s was submitted twice", l.Name)
		}
		asked[l.Name] = true
		if !names[l.Name] {
			t.Errorf("the scheduler has %s, which no record knows", l.Name)
		}
	}
	sum := refused
	for _, n := range states {
		sum += n
	}
	if sum != n {
		t.Errorf("%d jobs, and %d are accounted for", n, sum)
	}
	t.Logf("%d submissions: %d refused, %d recorded (%d of them after an unclear answer that stayed so), %d cancelled; %d rounds, %d attempts, %d jobs with several", n, refused, len(all), unclearly, cancelled, round, attempts, again)
	t.Logf("ends: %v", states)
	t.Logf("what became of attempts: %v", s.fates)
	t.Logf("faults of the scheduler: %v", faulty.Faults())
}

// simulated are the nodes of the site: they start what waits, and end it.
type simulated struct {
	*fixture
	rand      *rand.Rand
	rate      float64
	runs      map[string]*simRun // by name
	order     []string
	fates     map[string]int
	delivered map[string]int // accepted results, by job
}

// simRun is an attempt that a node has begun.
type simRun struct {
	dir, fate string
	ends      time.Time
	over      bool
}

func (s *simulated) happens() bool { return s.rand.Float64() < s.rate }

func (s *simulated) records(ids []string) []*jobs.Record {
	s.t.Helper()
	recs := make([]*jobs.Record, 0, len(ids))
	for _, id := range ids {
		r, err := s.Store.Load(id)
		must(s.t, err)
		recs = append(recs, r)
	}
	return recs
}

func (s *simulated) describe(id string) string {
	r, err := s.Store.Load(id)
	must(s.t, err)
	return fmt.Sprintf("%s: %+v", jobs.StateOf(r), r.Current())
}

// step begins what was submitted since, and ends what has run long enough.
func (s *simulated) step() {
	s.t.Helper()
	for _, l := range s.slurm.Launches() {
		switch {
		case s.runs[l.Name] != nil || s.rand.IntN(2) != 0:
		case strings.HasPrefix(l.Name, jobs.ReaperName("")):
			s.reap(l)
		default:
			s.begin(l)
		}
	}
	s.beats()
	for _, name := range s.order {
		if r := s.runs[name]; !r.over && !s.now().Before(r.ends) {
			r.over = true
			s.end(name, r)
		}
	}
}

// reap is what a node does with the job that looks after an attempt, when the
// attempt's own is over.
func (s *simulated) reap(l jobs.Launch) {
	rec, err := s.Store.Load(filepath.Base(store.JobDirOf(l.Dir)))
	must(s.t, err)
	a, err := store.LoadAttempt(l.Dir)
	if jobs.KindOf(err) != jobs.KindNotFound { // taken back
		must(s.t, err)
		if r := s.runs[a.Info.Name]; r == nil || !r.over {
			return
		}
	}
	s.runs[l.Name] = &simRun{over: true}
	s.fates["is looked after"]++
	s.slurm.Start(l.Name)
	if err == nil {
		// What it could not do is tried again by others.
		_, _ = s.Reap(s.t.Context(), rec, a.N, 0)
	}
	s.slurm.End(l.Name, 0)
}

// begin is what a node does with a job, and its runner first.
func (s *simulated) begin(l jobs.Launch) {
	fates := []string{"node fails", "forgotten", "out of memory", "fails", "preempted", "cut off", "dies accepted"}
	r := &simRun{dir: l.Dir, fate: "succeeds", ends: s.now().Add(time.Duration(1+s.rand.IntN(20)) * time.Minute)}
	if s.happens() {
		r.fate = fates[s.rand.IntN(len(fates))]
	}
	s.runs[l.Name] = r
	s.order = append(s.order, l.Name)
	h, err := s.slurm.FakeScheduler.Find(s.t.Context(), []string{l.Name})
	must(s.t, err)
	st, err := s.slurm.FakeScheduler.Status(s.t.Context(), []jobs.Handle{h[l.Name]})
	must(s.t, err)
	a, err := store.LoadAttempt(l.Dir)
	late := jobs.KindOf(err) == jobs.KindNotFound || err == nil && (a.Verdict != nil || a.Decision != nil)
	if st[l.Name].State.Final() || late { // it was cancelled, or given up
		r.over = true
		s.fates["begins too late"]++
		s.slurm.End(l.Name, jobs.CodeAgain)
		return
	}
	must(s.t, err)
	s.fates[r.fate]++
	s.slurm.Start(l.Name)
	won, err := store.SetClaim(l.Dir, jobs.Claim{Version: 1, Attempt: a.Info.ID, Host: "n1", Node: "n" + strconv.Itoa(s.rand.IntN(9)), PID: 7, Time: s.now()})
	must(s.t, err)
	if !won {
		s.t.Errorf("%s was begun twice", l.Name)
	}
}

// beats are the signs of life of all that run.
func (s *simulated) beats() {
	for _, name := range s.order {
		r := s.runs[name]
		if r.over || r.fate == "cut off" && s.now().After(r.ends.Add(-10*time.Minute)) {
			continue
		}
		if err := store.Beat(r.dir, 1, s.now()); err != nil {
			s.t.Error(err)
		}
		_ = os.Chtimes(filepath.Join(r.dir, "beat"), s.now(), s.now())
	}
}

// end is how an attempt ends: its runner's last steps, if it has any.
func (s *simulated) end(name string, r *simRun) {
	rec, err := s.Store.Load(filepath.Base(store.JobDirOf(r.dir)))
	must(s.t, err)
	exit := jobs.ExitRecord{Version: 1, State: jobs.StateCompleted, Exit: jobs.Exit{Started: true}, Ended: s.now()}
	switch r.fate {
	case "node fails", "preempted":
		word := map[string]string{"node fails": "NODE_FAIL", "preempted": "PREEMPTED"}[r.fate]
		s.slurm.Set(name, jobs.Status{State: jobs.StateError, NativeState: word})
		return
	case "forgotten":
		s.slurm.Forget(name)
		return
	case "out of memory":
		exit.State, exit.Code, exit.MaxRSS = jobs.StateOutOfMemory, 1, jobs.GiB
	case "fails":
		exit.State, exit.Code, exit.Exit.Code = jobs.StateFailed, 1, 3
	}
	if rec.Cancel != nil {
		exit.State, exit.Code = jobs.StateCancelled, jobs.CodeInterrupted
	}
	s.conclude(rec, r, exit)
	s.slurm.End(name, exit.Code)
}

// conclude is what a runner does at its end: it decides, makes the result count
// if it was accepted, and records the exit.
func (s *simulated) conclude(rec *jobs.Record, r *simRun, exit jobs.ExitRecord) {
	a := rec.Current()
	mine := a.Dir == r.dir
	if rec.Spec.Retry != nil {
		won := false
		if mine && a.Decision == nil {
			with := exit
			a.Exit = &with
			if step := jobs.Next(rec, nil, s.now()); step.Do == jobs.DoDecide {
				if step.Decision.Verb == jobs.VerbAccept {
					step.Decision.Exit = &with
				}
				var err error
				won, err = store.SetDecision(r.dir, step.Decision)
				must(s.t, err)
				won = won && step.Decision.Verb == jobs.VerbAccept
			}
		} else {
			s.fates["ends too late"]++
			exit.State, exit.Code = jobs.StateError, jobs.CodeInfra
		}
		mine = won
	}
	if mine && exit.State == jobs.StateCompleted {
		s.delivered[rec.Spec.ID]++
	}
	if mine && rec.Spec.Retry != nil && r.fate == "dies accepted" {
		return
	}
	_, err := store.SetExit(r.dir, exit)
	must(s.t, err)
}
