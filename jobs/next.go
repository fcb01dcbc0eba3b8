package jobs

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Do is what a job needs done now.
type Do string

// What [Next] says.
const (
	DoNothing Do = ""       // it is over, or goes on by itself
	DoAsk     Do = "ask"    // the scheduler, why it ended the attempt
	DoDecide  Do = "decide" // record the decision
	DoBegin   Do = "begin"  // the next attempt
)

// Step is what to do about a job, by whoever looks at it first.
type Step struct {
	Do       Do
	Decision Decision // with DoDecide: to be recorded; with DoBegin: the one that stands
}

// Next says what a job needs done now. It is pure: of the same record at the
// same time it says the same, so that whoever acts on it does what every other
// would have done. word is what the scheduler says of the current attempt, if
// it was asked and knew it.
func Next(r *Record, word *Status, now time.Time) Step {
	a := r.Current()
	if a == nil || r.Spec.Retry == nil {
		return Step{}
	}
	if d := a.Decision; d != nil {
		if d.Verb == VerbRetry && a.Over() {
			return Step{Do: DoBegin, Decision: *d}
		}
		return Step{}
	}
	if !a.Over() {
		return Step{}
	}
	c := classOf(r, a)
	if c == ClassEnded {
		if word == nil || !word.State.Final() {
			return Step{Do: DoAsk}
		}
		if c = word.Class; c == ClassNone {
			c = ClassStop // a person ended it with the scheduler's own command
		}
		if c == ClassTime && endedEarly(r) {
			c = ClassInfra
		}
	}
	return Step{Do: DoDecide, Decision: Decide(r, c, word, now)}
}

// early is by how much an attempt must have missed its limit for that not to be
// what ended it: schedulers count in minutes, and give the signal ahead.
const early = 3 * time.Minute

// endedEarly reports whether the runner was told to end long before its time was
// up. A scheduler that calls its job timed out then has ended it for another
// reason, which it does not know any more: a requeue that it forgot when it was
// restarted. The job stays running until its limit.
func endedEarly(r *Record) bool {
	a := r.Current()
	limit := a.Info.Change.Resources(r.Spec.Resources).Time
	if a.Exit == nil || a.Claim == nil || limit == 0 || slices.Contains(r.Spec.Profile.Forbid, "time") {
		return false
	}
	return a.Exit.Ended.Before(a.Claim.Time.Add(limit - early))
}

// classOf is why the attempt ended.
func classOf(r *Record, a *Attempt) Class {
	state := StateOfAttempt(a)
	var class Class
	if a.Exit != nil {
		class = a.Exit.Class
	} else {
		class = a.Verdict.Class
	}
	switch {
	case state == StateCompleted:
		return ClassNone
	case r.Cancel != nil:
		return ClassStop
	case class != ClassNone:
		return class
	}
	switch state {
	case StateOutOfMemory:
		return ClassMemory
	case StateTimeout:
		return ClassTime
	case StateCancelled:
		return ClassStop
	case StateFailed:
		return ClassTask
	case StateError, StateLost, StateCompleted, StateSubmitting, StatePending, StateRunning:
	}
	return ClassInfra
}

// WordRequeued stands in the place of the scheduler's word about an attempt whose
// job was requeued: the runner that was started again has nothing else about it.
const WordRequeued = "REQUEUED"

// Decide is the decision about an attempt that ended for a reason of this
// class.
func Decide(r *Record, c Class, word *Status, now time.Time) Decision {
	a := r.Current()
	d := Decision{Version: 1, Attempt: a.Info.ID, Verb: VerbAccept, Class: c, State: StateOfAttempt(a), Time: now.UTC()}
	if a.Exit != nil {
		d.Code = a.Exit.Code
	} else {
		d.Code = a.Verdict.Code
	}
	d.Evidence = Evidence(a, word)
	if word != nil {
		d.Word, d.WordBy = word.NativeState, word.By
		if requeued(a, word) && !word.State.Final() {
			d.Word = WordRequeued // the job runs again, or waits to
		}
	}
	if c == ClassInfra && d.State == StateCancelled {
		d.State, d.Code = StateError, CodeInfra // it was not wished
	}
	if c == ClassNone {
		d.Reason = "it succeeded"
		return d
	}
	if why := refuse(r, c); why != "" {
		d.Reason = why
		return d
	}
	if c == ClassTask && len(r.Spec.Retry.Codes) > 0 && (a.Exit == nil || !slices.Contains(r.Spec.Retry.Codes, a.Exit.Exit.Code)) {
		d.Reason = "the task failed, and not with an exit code that retry.codes names"
		return d
	}
	change, why, ok := adjustForRetry(r, c, word, now)
	d.Reason = why
	if ok {
		d.Verb, d.Change, d.State, d.Code = VerbRetry, change, "", 0
	}
	return d
}

// Evidence is what is known of the end of an attempt, a sentence each. word is
// the scheduler's about it, if that was asked.
func Evidence(a *Attempt, word *Status) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if e := a.Exit; e != nil {
		add("its runner recorded: %s", strings.TrimSuffix(string(e.State)+": "+e.Reason, ": "))
		if e.Exit.Started {
			add("the command: %s", e.Exit)
		}
		if e.OOMKills > 0 {
			add("the kernel killed %d processes for memory", e.OOMKills)
		}
		if e.MaxRSS > 0 {
			add("peak memory: %d MiB, of its largest process", e.MaxRSS.MiB())
		}
		if e.Peak > 0 {
			add("peak memory of the job: %d MiB, with page cache", e.Peak.MiB())
		}
		if e.Node != "" {
			add("node: %s", e.Node)
		}
	} else if v := a.Verdict; v != nil {
		add("it left no record: %s", v.Reason)
		if v.Word != "" {
			add("the scheduler said: %s", v.Word)
		}
	}
	if word != nil && word.NativeState != "" {
		add("the scheduler says: %s", strings.TrimSuffix(word.NativeState+" ("+word.Reason, " (")+map[bool]string{true: ")"}[word.Reason != ""])
	}
	return out
}

// refuse says why there is no further attempt, or "".
func refuse(r *Record, c Class) string {
	p := r.Spec.Retry
	switch c {
	case ClassStop:
		return "its end was requested"
	case ClassPolicy:
		return "another try would meet the same refusal"
	case ClassNone, ClassTask, ClassMemory, ClassTime, ClassNode, ClassPreempted, ClassInfra, ClassWaiting, ClassEnded:
	}
	waits := countWaits(r)
	if c == ClassWaiting {
		if waits >= MostWaits {
			return fmt.Sprintf("it has begun %d times behind the jobs it waits for, and they have not ended", waits)
		}
		return ""
	}
	if !p.Again() && !r.resumes(c) && (c != ClassPreempted || r.Spec.Resume == nil) {
		return "it is not to be tried again"
	}
	counted, spent, hours, resumed := 1, 0, 0.0, 0
	for i := range r.Attempts {
		a := &r.Attempts[i]
		hours += coreHours(r, a)
		if a.Decision == nil || a.Decision.Verb != VerbRetry {
			continue
		}
		if a.Decision.Class == ClassTime && a.TakesUp() {
			resumed++
			continue
		}
		if a.Decision.Class != ClassPreempted && a.Decision.Class != ClassWaiting {
			counted++
		}
		if a.Decision.Class == c {
			spent++
		}
	}
	switch {
	case len(r.Attempts)-waits >= MostAttempts:
		return fmt.Sprintf("there were %d attempts", len(r.Attempts)-waits)
	case p.CoreHours > 0 && hours >= p.CoreHours:
		return fmt.Sprintf("it has used %.2f core hours, and retry.core_hours allows %g", hours, p.CoreHours)
	case r.resumes(c):
		return r.refuseResume(resumed, hours)
	case counted >= p.Attempts && c != ClassPreempted:
		return fmt.Sprintf("retry.attempts allows %d", p.Attempts)
	case p.credit(c) == 0:
		return fmt.Sprintf("trouble of the class %s is not tried again", c)
	case spent >= p.credit(c):
		return fmt.Sprintf("retry allows %d more after trouble of the class %s, and they are used up", p.credit(c), c)
	}
	return ""
}

// countWaits is how many attempts found out that they have to wait.
func countWaits(r *Record) (n int) {
	for i := range r.Attempts {
		if d := r.Attempts[i].Decision; d != nil && d.Class == ClassWaiting {
			n++
		}
	}
	return n
}

// coreHours is what an attempt has used, as far as it is known.
func coreHours(r *Record, a *Attempt) float64 {
	var end time.Time
	switch {
	case a.Exit != nil:
		end = a.Exit.Ended
	case a.Claim != nil && !a.Beat.IsZero():
		end = a.Beat
	}
	if a.Claim == nil || end.Before(a.Claim.Time) {
		return 0
	}
	cores := max(r.Spec.Resources.CPUs, 1) * max(r.Spec.Resources.Tasks, 1)
	return end.Sub(a.Claim.Time).Hours() * float64(cores)
}

// adjustForRetry returns how the next attempt differs from this one, and why that may help.
// The last value is false when no change is known that may help.
func adjustForRetry(r *Record, c Class, word *Status, now time.Time) (Change, string, bool) {
	a, p := r.Current(), r.Spec.Retry
	ch := a.Info.Change
	ch.NotBefore = time.Time{}
	ch.Resume = r.from(c)
	had := ch.Resources(r.Spec.Resources)
	switch c {
	case ClassMemory:
		want, bound := moreMemory(had.Memory, a), ""
		if p.MaxMemory > 0 && want > p.MaxMemory {
			want, bound = p.MaxMemory, "retry.max_memory allows no more"
		}
		if p.Most.Memory > 0 && want > p.Most.Memory {
			want, bound = p.Most.Memory, p.Most.MemoryWhy
		}
		switch {
		case want <= 0 && had.Memory == 0:
			return Change{}, "it asked for no memory, and its peak is not known", false
		case want <= had.Memory:
			return Change{}, fmt.Sprintf("it had %s of memory, and there is no more: %s",
				had.Memory, cmp.Or(bound, "a number holds no more")), false
		}
		ch.Memory = want
		return ch, strings.TrimSuffix(fmt.Sprintf("with %s of memory; %s", want, bound), "; "), true
	case ClassTime:
		if r.resumes(c) {
			return ch, "its time was up, and it goes on where it stopped", true
		}
		if had.Time == 0 {
			return Change{}, "it asked for no time limit, so there is none to raise: name one in [resources] time", false
		}
		want, bound := 2*had.Time, ""
		if p.MaxTime > 0 && want > p.MaxTime {
			want, bound = p.MaxTime, "retry.max_time allows no more"
		}
		if p.Most.Time > 0 && want > p.Most.Time {
			want, bound = p.Most.Time, p.Most.TimeWhy+" allows no more"
		}
		if want <= had.Time {
			return Change{}, fmt.Sprintf("it had %s, and %s", had.Time, cmp.Or(bound, "a number holds no more")), false
		}
		ch.Time = want
		return ch, strings.TrimSuffix(fmt.Sprintf("with %s; %s", want, bound), "; "), true
	case ClassNode:
		return elsewhere(ch, a), "on another node", true
	case ClassPreempted:
		why := "it had to make room for another job"
		if requeued(a, word) {
			why = "the scheduler has put it back into the queue (its node failed, it had to make room for another job, or a user asked for that)"
		}
		if ch.Resume != nil {
			return ch, why + ", and goes on where it was", true
		}
		return ch, why + ", and starts again", true
	case ClassInfra:
		tried := 0
		for i := range r.Attempts {
			if d := r.Attempts[i].Decision; d != nil && d.Class == ClassInfra && d.Verb == VerbRetry {
				tried++
			}
		}
		wait := min(30*time.Second<<min(tried, 8), 10*time.Minute)
		ch.NotBefore = now.Add(wait).UTC()
		var blame Blame
		if a.Exit != nil {
			blame = a.Exit.Blame
		}
		if blame == BlameNode || blame == "" && tried > 0 { // the same node twice is no accident
			ch = elsewhere(ch, a)
		}
		return ch, fmt.Sprintf("the site failed, and not the task: %s later", wait), true
	case ClassTask:
		return ch, "retry.task asks for it", true
	case ClassWaiting:
		// Where the scheduler itself can hold it back, whoever begins it drops
		// the time.
		ch.NotBefore = now.Add(min(30*time.Second<<min(countWaits(r), 6), 30*time.Minute)).UTC()
		return ch, "behind the jobs it waits for", true
	case ClassNone, ClassPolicy, ClassStop, ClassEnded:
	}
	return Change{}, "nothing is known that would help", false
}

// requeued reports whether all that is known of the end of an attempt is that the
// scheduler requeued its job. It does so after a lost node and after a preemption.
func requeued(a *Attempt, word *Status) bool {
	return word != nil && word.NativeState == WordRequeued || a.Exit == nil && a.Verdict != nil && a.Verdict.Word == WordRequeued
}

// moreMemory returns one and a half times the memory that the attempt had, or a
// quarter more than the measured peak if that is larger.
func moreMemory(had Bytes, a *Attempt) Bytes {
	var peak Bytes
	if a.Exit != nil {
		peak = a.Exit.MaxRSS
		if a.Exit.OOMKills > 0 { // then page cache was no part of it that could be given up
			peak = max(peak, a.Exit.Peak)
		}
	}
	want := max(had+had/2, peak+peak/4)
	const step = 64 * MiB
	return (want + step - 1) / step * step
}

// elsewhere excludes the attempt's node.
func elsewhere(ch Change, a *Attempt) Change {
	node := ""
	if a.Claim != nil {
		node = a.Claim.Node
	}
	if node != "" && !slices.Contains(ch.Exclude, node) {
		ch.Exclude = append(slices.Clone(ch.Exclude), node)
	}
	return ch
}
