package jobs_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"berth/jobs"
)

// history is a job whose attempts end as a scheduler, nodes, its task and people
// please, and that is brought on by whoever looks at it: what the records of a
// ledger are like, made by the rules by which a ledger is written.
type history struct {
	t   *rapid.T
	r   *jobs.Record
	now time.Time
	// usual is the trouble that most of its attempts have; "" is none of them.
	usual string
	// word is the scheduler's last about the current attempt; nil before it ended.
	word *jobs.Status
	// see is told of each step that is due, before it is taken.
	see func(word *jobs.Status, s jobs.Step)
	// watch has each question compare the record before it and after it.
	watch bool
}

// Ways for an attempt to end.
const (
	endsWell      = "success"
	endsTask      = "the task fails"
	endsMemory    = "memory"
	endsTime      = "time"
	endsScheduler = "the scheduler ends it"
	endsPreempted = "preempted"
	endsNode      = "its node fails"
	endsSite      = "the site fails"
	endsPolicy    = "something is missing"
	endsLost      = "silence"
	endsVerdict   = "no record, and a word"
	endsRefused   = "refused"
	endsWaiting   = "too early"
	endsCancel    = "cancelled"
)

var (
	ways = []string{endsMemory, endsTime, endsSite, endsPreempted, endsNode, endsTask, endsVerdict, endsWell, endsLost, endsScheduler, endsWaiting, endsCancel, endsPolicy, endsRefused}
	// finals are a scheduler's final words and what they mean.
	finals = []jobs.Status{
		{State: jobs.StateError, Class: jobs.ClassPreempted, NativeState: "PREEMPTED"}, {State: jobs.StateError, Class: jobs.ClassNode, NativeState: "NODE_FAIL"}, {State: jobs.StateError, Class: jobs.ClassNode, NativeState: "BOOT_FAIL"},
		{State: jobs.StateTimeout, Class: jobs.ClassTime, NativeState: "TIMEOUT"}, {State: jobs.StateOutOfMemory, Class: jobs.ClassMemory, NativeState: "OUT_OF_MEMORY"}, {State: jobs.StateError, Class: jobs.ClassPolicy, NativeState: "DEADLINE"},
		{State: jobs.StateCancelled, NativeState: "CANCELLED", By: "1000"}, {State: jobs.StateFailed, NativeState: "FAILED"}, {State: jobs.StateCompleted, NativeState: "COMPLETED"},
	}
	// empty are answers that say nothing of an end: none, of a scheduler that
	// forgot the job or could not be asked, and those of a job that goes on or is
	// in a state that no one knows.
	empty = []*jobs.Status{nil, {}, {NativeState: "A_NEW_WORD"}, {State: jobs.StatePending, NativeState: "PENDING"}, {State: jobs.StateRunning, NativeState: "RUNNING"}, {State: jobs.StateRunning, NativeState: "COMPLETING"}, {NativeState: "UPDATE_DB"}}
)

// rarely is true once in eight times, which a number of rapid's is not: small
// ones come more often.
func rarely(t *rapid.T, what string) bool {
	for range 3 {
		if !rapid.Bool().Draw(t, what) {
			return false
		}
	}
	return true
}

// newHistory draws a job and what it may be tried again for.
func newHistory(t *rapid.T, id string) *history {
	few := rapid.IntRange(0, 4)
	maybe := func(what string) bool { return rapid.Bool().Draw(t, what) }
	p := &jobs.Retry{Attempts: rapid.IntRange(1, 8).Draw(t, "attempts"), Task: few.Draw(t, "task"), Memory: few.Draw(t, "memory"), Time: few.Draw(t, "time"), Node: few.Draw(t, "node"), Infra: few.Draw(t, "infra")}
	if maybe("much") { // as much as a task file can ask for
		*p = jobs.Retry{Attempts: jobs.MostAttempts, Task: jobs.MostAttempts, Memory: jobs.MostAttempts, Time: jobs.MostAttempts, Node: jobs.MostAttempts, Infra: jobs.MostAttempts}
	}
	if rarely(t, "codes") {
		p.Codes = []int{3, 4}
	}
	if rarely(t, "budget") {
		p.CoreHours = float64(rapid.IntRange(1, 500).Draw(t, "core hours"))
	}
	if rarely(t, "bounds") {
		p.MaxMemory, p.MaxTime = jobs.Bytes(rapid.IntRange(1, 64).Draw(t, "max memory"))*jobs.GiB, time.Duration(rapid.IntRange(1, 48).Draw(t, "max time"))*time.Hour
	}
	if rarely(t, "site") {
		p.Most = jobs.Most{Memory: jobs.Bytes(rapid.IntRange(100, 100_000).Draw(t, "node memory")) * jobs.MiB, MemoryWhy: "the largest node", Time: time.Duration(rapid.IntRange(1, 72).Draw(t, "partition time")) * time.Hour, TimeWhy: "MaxTime"}
	}
	s := jobs.Spec{
		ID: id, Retry: p,
		Place: jobs.Place{
			Resources: jobs.Resources{
				CPUs: rapid.IntRange(0, 8).Draw(t, "cpus"), Tasks: rapid.IntRange(0, 2).Draw(t, "tasks"),
				Memory: jobs.Bytes(rapid.IntRange(0, 8192).Draw(t, "asked memory")) * jobs.MiB, Time: time.Duration(rapid.IntRange(0, 600).Draw(t, "asked time")) * time.Minute,
			},
		},
	}
	if maybe("resume") {
		s.Resume = &jobs.Resume{Attempts: rapid.IntRange(1, 99).Draw(t, "resumed"), Min: time.Duration(rapid.IntRange(0, 10).Draw(t, "min")) * time.Minute, CoreHours: float64(rapid.IntRange(0, 50).Draw(t, "resumed hours"))}
		if maybe("resume alone") {
			s.Retry.Attempts = 0
		}
	}
	if maybe("after") {
		s.After = []jobs.After{{Job: "parent", Need: jobs.NeedAny}}
	}
	h := &history{t: t, r: &jobs.Record{Spec: s}, now: noon, usual: rapid.SampledFrom(append(slices.Clone(ways), "")).Draw(t, "usual")}
	h.begin(jobs.Change{})
	return h
}

// begin adds an attempt.
func (h *history) begin(c jobs.Change) {
	n := len(h.r.Attempts) + 1
	id := fmt.Sprintf("%s.%d", h.r.Spec.ID, n)
	h.r.Attempts = append(h.r.Attempts, jobs.Attempt{N: n, Info: jobs.AttemptInfo{ID: id, Number: n, Created: h.now, Change: c}, Submitted: &jobs.Submitted{Handle: jobs.Handle{NativeID: fmt.Sprint(n)}, Time: h.now}})
	h.word = nil
}

// end ends the current attempt in a way that is drawn.
func (h *history) end() {
	t, r, a := h.t, h.r, h.r.Current()
	way := rapid.SampledFrom(ways).Draw(t, "way")
	if h.usual != "" && !rarely(t, "unusual") {
		way = h.usual
	}
	had := a.Info.Change.Resources(r.Spec.Resources)
	ran := time.Duration(rapid.IntRange(0, 7200).Draw(t, "seconds")) * time.Second
	began := h.now.Add(time.Minute)
	h.now = began.Add(ran)
	word := rapid.SampledFrom(finals).Draw(t, "word")
	h.word = &word
	verdict := func(v jobs.Verdict) {
		v.Time = h.now
		a.Verdict = &v
	}
	if way == endsWaiting && len(r.Spec.After) == 0 {
		way = endsWell
	}
	switch way {
	case endsRefused:
		verdict(jobs.Verdict{State: jobs.StateError, Class: jobs.ClassPolicy, Reason: "refused"})
		return
	case endsCancel:
		r.Cancel = &jobs.Cancel{Time: h.now}
		if rapid.Bool().Draw(t, "before it began") {
			verdict(jobs.Verdict{State: jobs.StateCancelled, Reason: "cancelled before it started"})
			return
		}
	}
	a.Claim = &jobs.Claim{Attempt: a.Info.ID, Node: fmt.Sprintf("c%d", rapid.IntRange(1, 4).Draw(t, "node")), Time: began}
	a.Beat = h.now
	if way != endsWaiting && (r.Spec.Resume != nil || rarely(t, "unasked")) && rapid.Bool().Draw(t, "checkpoint") {
		a.Checkpoint = &jobs.Checkpoint{Number: 1, Ran: ran, Point: jobs.Point{Attempt: a.N, ID: a.Info.ID, Commit: "c"}}
	}
	e := jobs.ExitRecord{Attempt: a.Info.ID, Ended: h.now, Node: a.Claim.Node, Reason: way, MaxRSS: had.Memory / 100 * jobs.Bytes(rapid.IntRange(0, 200).Draw(t, "peak"))}
	switch way {
	case endsWell:
		e.State, e.Exit.Started = jobs.StateCompleted, true
	case endsTask:
		e.State, e.Exit = jobs.StateFailed, jobs.Exit{Started: true, Code: rapid.IntRange(1, 5).Draw(t, "code")}
	case endsMemory:
		e.State, e.OOMKills, e.Peak = jobs.StateOutOfMemory, rapid.IntRange(0, 2).Draw(t, "kills"), had.Memory
	case endsTime:
		e.State = jobs.StateTimeout
	case endsScheduler:
		e.State, e.Class = jobs.StateCancelled, jobs.ClassEnded
	case endsPreempted:
		e.State, e.Class = jobs.StateCancelled, jobs.ClassEnded
		h.word = &finals[0]
	case endsNode:
		e.State, e.Class = jobs.StateError, jobs.ClassNode
	case endsSite:
		e.State = jobs.StateError
	case endsPolicy:
		e.State, e.Class = jobs.StateError, jobs.ClassPolicy
	case endsWaiting:
		e.State, e.Class = jobs.StateError, jobs.ClassWaiting
	case endsCancel:
		e.State = rapid.SampledFrom([]jobs.State{jobs.StateCancelled, jobs.StateCompleted, jobs.StateFailed, jobs.StateOutOfMemory}).Draw(t, "meanwhile")
	case endsLost:
		verdict(jobs.Verdict{State: jobs.StateLost, Reason: "silent"})
		return
	case endsVerdict:
		state := word.State
		if state == jobs.StateCompleted || state == jobs.StateFailed {
			state = jobs.StateLost
		}
		class := jobs.ClassNone
		if state != jobs.StateCancelled {
			class = word.Class
		}
		verdict(jobs.Verdict{State: state, Class: class, Word: word.NativeState})
		return
	}
	a.Exit = &e
}

// look is what someone does who looks at the job at this moment, and has
// perhaps asked the scheduler, who has perhaps answered. It tells whether there
// was something to do.
func (h *history) look() bool {
	a := h.r.Current()
	word := rapid.SampledFrom(empty).Draw(h.t, "answer")
	if h.word != nil && rapid.Bool().Draw(h.t, "it knows") {
		word = h.word
	}
	before := ""
	if h.watch {
		before = text(h.r)
	}
	s := jobs.Next(h.r, word, h.now)
	if h.watch && text(h.r) != before {
		h.t.Fatalf("to ask changes the record:\n%s\n%s", before, text(h.r))
	}
	if h.see != nil {
		h.see(word, s)
	}
	switch s.Do {
	case jobs.DoDecide:
		a.Decision = &s.Decision
	case jobs.DoBegin:
		h.begin(s.Decision.Change)
	case jobs.DoAsk, jobs.DoNothing:
	}
	return s.Do != jobs.DoNothing
}

// advance lets one thing happen, and tells whether the job is not over.
func (h *history) advance() bool {
	if a := h.r.Current(); a.Exit == nil && a.Verdict == nil {
		h.end()
		return true
	}
	return h.look()
}

// play lets the job come to its end.
func (h *history) play() {
	for range 20 * (jobs.MostAttempts + jobs.MostWaits) {
		if !h.advance() {
			return
		}
	}
	h.t.Fatalf("it does not end: %d attempts", len(h.r.Attempts))
}

// histories plays many jobs, and tells see of each step that is due.
func histories(t *rapid.T, see func(h *history, word *jobs.Status, s jobs.Step)) *history {
	h := newHistory(t, "j")
	h.see = func(word *jobs.Status, s jobs.Step) { see(h, word, s) }
	h.play()
	return h
}

// text is a record in full, to see that it is what it was.
func text(r *jobs.Record) string {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// copyOf is a record that can be changed without changing r.
func copyOf(r *jobs.Record) *jobs.Record {
	c := *r
	c.Attempts = slices.Clone(r.Attempts)
	if p := r.Spec.Retry; p != nil {
		q := *p
		c.Spec.Retry = &q
	}
	if p := r.Spec.Resume; p != nil {
		q := *p
		c.Spec.Resume = &q
	}
	return &c
}
