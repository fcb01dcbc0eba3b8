package sweep

import (
	"slices"
	"time"

	"berth/internal/sweep/command"
	"berth/internal/sweep/journal"
	"berth/jobs"
)

// ClassOf says what kind of failure the state of a result is, in the words of jobs.
func ClassOf(s journal.State) jobs.Class {
	switch s {
	case journal.Failed, journal.Killed:
		return jobs.ClassTask
	case journal.OverMemory:
		return jobs.ClassMemory
	case journal.TimedOut:
		return jobs.ClassTime
	case journal.NoStart:
		return jobs.ClassPolicy
	case journal.SetAside:
		return jobs.ClassNode
	case journal.Waiting, journal.Running, journal.OK, journal.Withdrawn:
	}
	return jobs.ClassNone
}

// usualDeaths is how many workers may end under a task of a sweep that says nothing.
const usualDeaths = 3

// MostDeaths is how many workers may end under a task that was tried again so often
// before it is set aside.
func (s *Spec) MostDeaths(tried journal.Tries) int {
	if s.Retry == nil {
		return usualDeaths
	}
	return max(min(s.Retry.Node+1, s.Retry.Attempts-tried.Sum()), 1)
}

// Again tells whether a task is tried again that has ended like this, and returns how
// often it was tried then.
func (s *Spec) Again(t command.Task, r journal.Record) (journal.Tries, bool) {
	p, n := s.Retry, r.Tries
	if p == nil || n.Sum()+int(r.Deaths)+1 >= p.Attempts {
		return n, false
	}
	ok := false
	switch ClassOf(r.State) {
	case jobs.ClassTask:
		code := int(r.Code)
		if r.Signal != 0 {
			code = 128 + int(r.Signal)
		}
		ok = int(n.Task) < p.Task && (len(p.Codes) == 0 || slices.Contains(p.Codes, code))
		n.Task++
	case jobs.ClassMemory:
		had := s.ShareOf(t, n).Memory
		ok = int(n.Memory) < p.Memory
		n.Memory++
		ok = ok && s.ShareOf(t, n).Memory > had
	case jobs.ClassTime:
		had := s.LimitOf(n)
		ok = int(n.Time) < p.Time
		n.Time++
		ok = ok && s.LimitOf(n) > had
	case jobs.ClassNone, jobs.ClassNode, jobs.ClassPreempted, jobs.ClassInfra, jobs.ClassPolicy, jobs.ClassStop, jobs.ClassWaiting, jobs.ClassEnded:
	}
	if !ok {
		return r.Tries, false
	}
	return n, true
}

// MostTime is how many hours a task has at most in all the tries that its failures and the ends
// of workers may cost, where one try may take so long as [Spec.Limit] says, and how many tries
// these are. What is preempted is not counted, as it costs no try.
func (s *Spec) MostTime() (hours float64, tries int) {
	p := s.Retry
	if p == nil {
		p = &jobs.Retry{Attempts: usualDeaths, Node: usualDeaths - 1}
	}
	var n journal.Tries
	limit, left := s.Limit, p.Attempts-1
	hours, tries = limit.Hours(), 1
	more := func() { hours, tries, left = hours+limit.Hours(), tries+1, left-1 }
	// Those that take twice the time come first: the others are as long then.
	for int(n.Time) < p.Time && left > 0 {
		n.Time++
		longer := s.LimitOf(n)
		if longer <= limit {
			break
		}
		limit = longer
		more()
	}
	others := p.Task + p.Node
	if s.Request.Memory != "" {
		others += p.Memory
	}
	for ; others > 0 && left > 0; others-- {
		more()
	}
	return hours, tries
}

// ShareOf is what a task takes of its worker that was tried again so often: each time
// after too little memory half as much again, up to what the worker has.
func (s *Spec) ShareOf(t command.Task, tried journal.Tries) command.Share {
	share, err := s.Request.Of(t)
	if err != nil {
		return command.Share{} // the table was checked
	}
	most := s.Bounds().Memory
	if s.Retry != nil && s.Retry.MaxMemory > 0 && (most == 0 || s.Retry.MaxMemory < most) {
		most = s.Retry.MaxMemory
	}
	for range tried.Memory {
		more := share.Memory + share.Memory/2
		if most > 0 && more > most {
			more = most
		}
		share.Memory = max(more, share.Memory) // a number holds no more, or the bound is below the request
	}
	return share
}

// Margin is how long before the end of its job a worker that has so much time ends what
// still runs, so that its batches are given back by itself, and are not first missed for
// minutes: a minute, or a quarter of the time where that is less.
func Margin(left time.Duration) time.Duration { return min(time.Minute, max(left/4, 0)) }

// LimitOf is the longest that a task may run which was tried again so often: each time
// after its limit twice as long, up to what a worker that begins with it leaves it. With
// more it would be preempted each time, which costs no try, and never have a result.
func (s *Spec) LimitOf(tried journal.Tries) time.Duration {
	limit, most := s.Limit, time.Duration(0)
	if s.Worker != nil {
		most = s.Worker.Resources.Time
		most -= 2 * Margin(most)
	}
	if s.Retry != nil && s.Retry.MaxTime > 0 && (most == 0 || s.Retry.MaxTime < most) {
		most = s.Retry.MaxTime
	}
	for range tried.Time {
		more := 2 * limit
		if most > 0 && more > most {
			more = most
		}
		limit = max(more, limit)
	}
	return limit
}
