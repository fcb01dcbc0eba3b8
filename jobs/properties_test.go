package jobs_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"berth/jobs"
)

// Every history ends with one accepted attempt, the last, after a bounded number
// of attempts: what each class may cost, what resume allows, and for what is free
// the bounds that no one can raise.
func TestHistoryEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := histories(t, func(*history, *jobs.Status, jobs.Step) {}).r
		counted, resumed, waited := 0, 0, 0
		spent := map[jobs.Class]int{}
		for i := range r.Attempts {
			a := &r.Attempts[i]
			switch d := a.Decision; {
			case d == nil:
				t.Fatalf("attempt %d is not decided", a.N)
			case (d.Verb == jobs.VerbAccept) != (i == len(r.Attempts)-1):
				t.Fatalf("attempt %d of %d: %+v", a.N, len(r.Attempts), d)
			case d.Verb == jobs.VerbAccept:
			case d.Class == jobs.ClassWaiting:
				waited++
			case d.Class == jobs.ClassTime && a.TakesUp():
				resumed++
			default:
				spent[d.Class]++
				if d.Class != jobs.ClassPreempted {
					counted++
				}
			}
		}
		p := r.Spec.Retry
		for c, most := range map[jobs.Class]int{jobs.ClassTask: p.Task, jobs.ClassMemory: p.Memory, jobs.ClassTime: p.Time, jobs.ClassNode: p.Node, jobs.ClassInfra: p.Infra, jobs.ClassPolicy: 0, jobs.ClassStop: 0, jobs.ClassNone: 0, jobs.ClassEnded: 0} {
			if spent[c] > most {
				t.Fatalf("class %q: %d of %d", c, spent[c], most)
			}
		}
		most := 1
		if r.Spec.Resume != nil {
			most = r.Spec.Resume.Attempts
		}
		if counted > max(p.Attempts-1, 0) || resumed > most-1 || waited > jobs.MostWaits || len(r.Attempts)-waited > jobs.MostAttempts {
			t.Fatalf("%d attempts: %d counted of %d, %d went on of %d, %d waited", len(r.Attempts), counted, p.Attempts, resumed, most, waited)
		}
	})
}

// Of the same record and word everybody says the same at the same time, the
// record is not touched by it, and the time changes nothing but how long the
// next attempt waits.
func TestHistoryIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, "j")
		h.watch = true
		h.see = func(word *jobs.Status, s jobs.Step) {
			if again := jobs.Next(h.r, word, h.now); !reflect.DeepEqual(s, again) {
				t.Fatalf("%+v, then %+v", s, again)
			}
			late := jobs.Next(copyOf(h.r), word, h.now.Add(1000*time.Hour))
			late.Decision.Time, late.Decision.Change.NotBefore = s.Decision.Time, s.Decision.Change.NotBefore
			if !reflect.DeepEqual(s, late) {
				t.Fatalf("%+v, and later %+v", s, late)
			}
		}
		h.play()
	})
}

// More of anything that bounds the attempts never turns a further attempt into
// an end.
func TestHistoryCreditsAreMonotone(t *testing.T) {
	more := map[string]func(s *jobs.Spec){
		"attempts":    func(s *jobs.Spec) { s.Retry.Attempts++ },
		"task":        func(s *jobs.Spec) { s.Retry.Task++ },
		"memory":      func(s *jobs.Spec) { s.Retry.Memory++ },
		"time":        func(s *jobs.Spec) { s.Retry.Time++ },
		"node":        func(s *jobs.Spec) { s.Retry.Node++ },
		"infra":       func(s *jobs.Spec) { s.Retry.Infra++ },
		"every code":  func(s *jobs.Spec) { s.Retry.Codes = nil },
		"core hours":  func(s *jobs.Spec) { s.Retry.CoreHours = 0 },
		"max memory":  func(s *jobs.Spec) { s.Retry.MaxMemory = 0 },
		"max time":    func(s *jobs.Spec) { s.Retry.MaxTime = 0 },
		"site":        func(s *jobs.Spec) { s.Retry.Most = jobs.Most{} },
		"resume":      func(s *jobs.Spec) { s.Resume.Attempts++ },
		"resume.min":  func(s *jobs.Spec) { s.Resume.Min = 0 },
		"its budget":  func(s *jobs.Spec) { s.Resume.CoreHours = 0 },
		"of the site": func(s *jobs.Spec) { s.Retry.Most.Memory *= 2; s.Retry.Most.Time *= 2 },
	}
	names := slices.Sorted(maps.Keys(more))
	rapid.Check(t, func(t *rapid.T) {
		histories(t, func(h *history, word *jobs.Status, s jobs.Step) {
			if s.Do != jobs.DoDecide || s.Decision.Verb != jobs.VerbRetry {
				return
			}
			for _, name := range names {
				rich := copyOf(h.r)
				if rich.Spec.Resume == nil {
					rich.Spec.Resume = &jobs.Resume{} // read by no one once it is taken away again
				}
				more[name](&rich.Spec)
				if h.r.Spec.Resume == nil {
					rich.Spec.Resume = nil
				}
				if d := jobs.Next(rich, word, h.now).Decision; d.Verb != jobs.VerbRetry || d.Class != s.Decision.Class {
					t.Fatalf("with more of %s: %+v, else %+v", name, d, s.Decision)
				}
			}
		})
	})
}

// What is decided stays: whatever becomes known later, nothing is decided again,
// an accepted attempt is followed by nothing, and another attempt is the one
// that was decided upon.
func TestHistoryDecisionStands(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		histories(t, func(h *history, _ *jobs.Status, _ jobs.Step) {
			a := h.r.Current()
			if a.Decision == nil {
				return
			}
			was := jobs.StateOf(h.r)
			late := copyOf(h.r)
			b := late.Current()
			switch rapid.IntRange(0, 4).Draw(t, "late") {
			case 0:
				if b.Exit == nil { // it is written once
					b.Exit = &jobs.ExitRecord{State: rapid.SampledFrom([]jobs.State{jobs.StateCompleted, jobs.StateError, jobs.StateFailed}).Draw(t, "exit"), Ended: h.now}
				}
			case 1:
				b.Verdict = &jobs.Verdict{State: jobs.StateLost}
			case 2:
				late.Cancel = &jobs.Cancel{}
			case 3:
				b.Beat = h.now.Add(time.Hour)
			}
			word := rapid.SampledFrom(finals).Draw(t, "late word")
			s := jobs.Next(late, &word, h.now.Add(time.Hour))
			switch {
			case a.Decision.Verb == jobs.VerbAccept && s.Do != jobs.DoNothing:
				t.Fatalf("after an accepted attempt: %+v", s)
			case a.Decision.Verb == jobs.VerbRetry && (s.Do != jobs.DoBegin || !reflect.DeepEqual(s.Decision, *a.Decision)):
				t.Fatalf("decided: %+v, and now %+v", a.Decision, s)
			case jobs.StateOf(late) != was:
				t.Fatalf("it was %s, and is %s", was, jobs.StateOf(late))
			}
		})
	})
}

// Nothing follows a success, a cancel, a stop by someone or a refusal, however
// much may be tried again.
func TestHistoryStopsAreFinal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		histories(t, func(h *history, word *jobs.Status, s jobs.Step) {
			a, d := h.r.Current(), s.Decision
			if s.Do != jobs.DoDecide || d.Verb != jobs.VerbRetry {
				return
			}
			stopped := word != nil && word.State == jobs.StateCancelled && a.Exit != nil && a.Exit.Class == jobs.ClassEnded
			switch {
			case jobs.StateOfAttempt(a) == jobs.StateCompleted, h.r.Cancel != nil, stopped, a.Verdict != nil && a.Exit == nil && a.Verdict.State == jobs.StateCancelled:
				t.Fatalf("tried again: %+v after %+v, %+v, %+v", d, a.Exit, a.Verdict, word)
			case a.Exit != nil && a.Exit.Class == jobs.ClassPolicy, a.Verdict != nil && a.Exit == nil && a.Verdict.Class == jobs.ClassPolicy:
				t.Fatalf("tried again after a refusal: %+v", d)
			}
		})
	})
}

// The task's own failure is tried again only where that was asked for, as often
// as that was, and after the exit codes that were named.
func TestHistoryTaskFailure(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		histories(t, func(h *history, _ *jobs.Status, s jobs.Step) {
			a, p := h.r.Current(), h.r.Spec.Retry
			if s.Do != jobs.DoDecide || s.Decision.Verb != jobs.VerbRetry || jobs.StateOfAttempt(a) != jobs.StateFailed {
				return
			}
			if s.Decision.Class != jobs.ClassTask || p.Task == 0 || len(p.Codes) > 0 && !slices.Contains(p.Codes, a.Exit.Exit.Code) {
				t.Fatalf("%+v after %+v, by %+v", s.Decision, a.Exit, p)
			}
		})
	})
}

// A preemption, and to have come too early, cost nothing: with some more of them
// before it everything is decided as without.
func TestHistoryPreemptionIsFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 30).Draw(t, "more")
		class := rapid.SampledFrom([]jobs.Class{jobs.ClassPreempted, jobs.ClassWaiting}).Draw(t, "class")
		histories(t, func(h *history, word *jobs.Status, s jobs.Step) {
			if s.Do != jobs.DoDecide || len(h.r.Attempts)+n >= jobs.MostAttempts || s.Decision.Class == class {
				return
			}
			r := copyOf(h.r)
			var free []jobs.Attempt
			for i := range n {
				free = append(free, jobs.Attempt{Info: jobs.AttemptInfo{ID: fmt.Sprintf("free%d", i)}, Verdict: &jobs.Verdict{State: jobs.StateError}, Decision: &jobs.Decision{Verb: jobs.VerbRetry, Class: class}})
			}
			r.Attempts = append(free, r.Attempts...)
			if got := jobs.Next(r, word, h.now); !reflect.DeepEqual(got, s) {
				t.Fatalf("%d more: %+v, else %+v", n, got, s)
			}
		})
	})
}

// What an attempt asks for never shrinks from one to the next: memory grows
// after too little of it and time after too little of that, each below every
// bound that is known, and nodes are only ever added to those that are left out.
func TestHistoryRaises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		histories(t, func(h *history, _ *jobs.Status, s jobs.Step) {
			d := s.Decision
			if s.Do != jobs.DoDecide || d.Verb != jobs.VerbRetry {
				if d.Verb == jobs.VerbAccept && !reflect.DeepEqual(d.Change, jobs.Change{}) {
					t.Fatalf("nothing follows, and it changes %+v", d.Change)
				}
				return
			}
			a, p := h.r.Current(), h.r.Spec.Retry
			was, is := a.Info.Change.Resources(h.r.Spec.Resources), d.Change.Resources(h.r.Spec.Resources)
			if (is.Memory > was.Memory) != (d.Class == jobs.ClassMemory) || is.Memory < was.Memory {
				t.Fatalf("class %s: from %s to %s of memory", d.Class, was.Memory, is.Memory)
			}
			if d.Class == jobs.ClassMemory && (p.MaxMemory > 0 && is.Memory > p.MaxMemory || p.Most.Memory > 0 && is.Memory > p.Most.Memory) {
				t.Fatalf("%s of memory, and the bounds are %+v", is.Memory, p)
			}
			longer := d.Class == jobs.ClassTime && (h.r.Spec.Resume == nil || a.Checkpoint == nil)
			if (is.Time > was.Time) != longer || is.Time < was.Time {
				t.Fatalf("class %s: from %s to %s", d.Class, was.Time, is.Time)
			}
			if longer && (p.MaxTime > 0 && is.Time > p.MaxTime || p.Most.Time > 0 && is.Time > p.Most.Time) {
				t.Fatalf("%s, and the bounds are %+v", is.Time, p)
			}
			left, out := a.Info.Change.Exclude, d.Change.Exclude
			if len(out) < len(left) || !slices.Equal(out[:len(left)], left) || len(out) > len(left)+1 {
				t.Fatalf("left out: %q, then %q", left, out)
			}
			for _, node := range out[len(left):] {
				if node != a.Claim.Node || slices.Contains(left, node) || d.Class != jobs.ClassNode && d.Class != jobs.ClassInfra {
					t.Fatalf("class %s on %s: left out: %q, then %q", d.Class, a.Claim.Node, left, out)
				}
			}
			if d.Class == jobs.ClassNode && !slices.Contains(out, a.Claim.Node) {
				t.Fatalf("its node %s failed, and is not left out: %q", a.Claim.Node, out)
			}
		})
	})
}

// Nothing but a wait follows once the core hours are used up, nothing goes on
// after its time more often than resume allows, and nothing goes on that was
// stopped before it had run for resume.min.
func TestHistoryBudgets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		histories(t, func(h *history, _ *jobs.Status, s jobs.Step) {
			d, a := s.Decision, h.r.Current()
			if s.Do != jobs.DoDecide || d.Verb != jobs.VerbRetry || d.Class == jobs.ClassWaiting {
				return
			}
			used, went := 0.0, 1
			res := h.r.Spec.Resources
			for i := range h.r.Attempts {
				b := &h.r.Attempts[i]
				if b.TakesUp() && b.Decision.Class == jobs.ClassTime {
					went++
				}
				if b.Claim != nil { // both ways to end write the beat last
					used += b.Beat.Sub(b.Claim.Time).Hours() * float64(max(res.CPUs, 1)*max(res.Tasks, 1))
				}
			}
			if most := h.r.Spec.Retry.CoreHours; most > 0 && used >= most {
				t.Fatalf("%.3f core hours of %g: %+v", used, most, d)
			}
			p := h.r.Spec.Resume
			if d.Class != jobs.ClassTime || p == nil || a.Checkpoint == nil {
				return
			}
			if went >= p.Attempts || p.CoreHours > 0 && used >= p.CoreHours || a.Checkpoint.Ran < p.Min {
				t.Fatalf("it goes on: %d attempts, %.3f core hours, %s, of %+v: %+v", went, used, a.Checkpoint.Ran, p, d)
			}
		})
	})
}

// An attempt goes on from a point that one of the attempts has come to, never
// from one before that from which it went on itself, and only where that was
// asked for.
func TestHistoryPoints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		histories(t, func(h *history, _ *jobs.Status, s jobs.Step) {
			if s.Do == jobs.DoDecide {
				checkPoint(t, h.r, s.Decision)
			}
		})
	})
}

// An answer of the scheduler that says nothing of an end, or none, changes
// nothing; and a final one says no more than why, where only it can tell.
func TestHistoryEmptyAnswers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		histories(t, func(h *history, _ *jobs.Status, _ jobs.Step) {
			without := jobs.Next(h.r, nil, h.now)
			for _, word := range empty {
				got := jobs.Next(h.r, word, h.now)
				got.Decision.Word, got.Decision.WordBy, got.Decision.Evidence = without.Decision.Word, without.Decision.WordBy, without.Decision.Evidence
				if !reflect.DeepEqual(got, without) {
					t.Fatalf("%+v: %+v, else %+v", word, got, without)
				}
			}
			if without.Do == jobs.DoAsk {
				return
			}
			word := rapid.SampledFrom(finals).Draw(t, "final")
			got := jobs.Next(h.r, &word, h.now)
			got.Decision.Word, got.Decision.WordBy, got.Decision.Evidence = without.Decision.Word, without.Decision.WordBy, without.Decision.Evidence
			if !reflect.DeepEqual(got, without) {
				t.Fatalf("%+v: %+v, else %+v", word, got, without)
			}
		})
	})
}

// Several actors with records from any earlier moment, who write as a ledger is
// written, each file once, never have two attempts open at a time, nor one after
// an accepted one, nor a gap; and a job that is at rest stays so for all of them.
func TestHistoryActors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := newHistory(t, "j")
		h.see = func(*jobs.Status, jobs.Step) {}
		stale := make([]*jobs.Record, 3)
		rest := false
		for range 20 * (jobs.MostAttempts + jobs.MostWaits) {
			i := rapid.IntRange(0, len(stale)-1).Draw(t, "actor")
			if stale[i] == nil || rapid.Bool().Draw(t, "looks") {
				stale[i] = copyOf(h.r)
			}
			a := h.r.Current()
			if a.Exit == nil && a.Verdict == nil {
				h.end()
				continue
			}
			seen := stale[i]
			s := jobs.Next(seen, h.word, h.now)
			switch at := len(seen.Attempts); s.Do {
			case jobs.DoDecide:
				if h.r.Attempts[at-1].Decision == nil {
					h.r.Attempts[at-1].Decision = &s.Decision
				}
			case jobs.DoBegin:
				if len(h.r.Attempts) == at { // else the directory is there
					h.begin(s.Decision.Change)
				}
			case jobs.DoAsk, jobs.DoNothing:
			}
			stale[i] = nil
			for j := range h.r.Attempts {
				b, last := &h.r.Attempts[j], j == len(h.r.Attempts)-1
				if !last && (b.Exit == nil && b.Verdict == nil || b.Decision == nil || b.Decision.Verb != jobs.VerbRetry) {
					t.Fatalf("attempt %d of %d is open, or was accepted: %+v", b.N, len(h.r.Attempts), b)
				}
			}
			now := jobs.AtRest(h.r)
			if rest && !now {
				t.Fatalf("it was at rest, and is not: %+v", h.r.Current())
			}
			if rest = now; rest && rapid.IntRange(0, 5).Draw(t, "enough") == 0 {
				return
			}
		}
		t.Fatal("it does not come to rest")
	})
}

// What was said to a job that waits for others stays: that it never can begin,
// that it may, and of each other job that it is not waited for any more; and when
// all have ended it is said one or the other.
func TestHistoryWaitFor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := map[string]*jobs.Record{}
		var all []*history
		var list []jobs.After
		for i := range rapid.IntRange(1, 4).Draw(t, "jobs") {
			h := newHistory(t, fmt.Sprint(i))
			if rapid.IntRange(0, 3).Draw(t, "one attempt") == 0 {
				h.r.Spec.Retry = nil
			}
			all, records[h.r.Spec.ID] = append(all, h), h.r
			list = append(list, jobs.After{Job: h.r.Spec.ID, Need: rapid.SampledFrom([]jobs.Need{jobs.NeedOK, jobs.NeedAny, jobs.NeedNotOK}).Draw(t, "need")})
		}
		before := jobs.WaitFor(list, records)
		for live := slices.Clone(all); len(live) > 0; {
			i := rapid.IntRange(0, len(live)-1).Draw(t, "which")
			if !live[i].advance() {
				live = slices.Delete(live, i, i+1)
			}
			w := jobs.WaitFor(list, records)
			switch {
			case before.Never != "" && w.Never == "", before.Over() && !w.Over():
				t.Fatalf("%+v, then %+v", before, w)
			case before.Over() && before.Never == "" && w.Never != "":
				t.Fatalf("it may begin, and then: %s", w.Never)
			}
			for _, a := range w.For {
				if !slices.Contains(before.For, a) {
					t.Fatalf("%s has ended, and is waited for again", a)
				}
			}
			before = w
		}
		if !before.Over() || len(before.For) > 0 {
			t.Fatalf("all have ended: %+v", before)
		}
	})
}
