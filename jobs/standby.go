package jobs

import (
	"slices"
	"time"
)

// Standby is standby.json: jobs of the scheduler that were submitted before
// they were needed, one behind the other and the first behind the attempt's own, each with
// what the attempt has asked for. One that begins when the next attempt is due
// is that; each other one ends at once.
type Standby struct {
	Version int       `json:"version"`
	Handles []Handle  `json:"handles"`
	Time    time.Time `json:"time"`
}

// Waiting are the job's standbys that come after its current attempt, the next
// one first, as far as the record tells. Those behind whose attempt another job
// was submitted end by themselves.
func (r *Record) Waiting() []Handle {
	var out []Handle
	last := ""
	for i := range r.Attempts {
		a := &r.Attempts[i]
		if a.Submitted != nil {
			id := a.Submitted.Handle.NativeID
			at := slices.IndexFunc(out, func(h Handle) bool { return h.NativeID == id })
			switch {
			case at >= 0: // it began: neither it nor those before it in the queue wait any more
				out = out[at+1:]
			case id != last: // the same id means that the scheduler requeued the job
				out = nil
			}
			last = id
		}
		if a.Standby != nil {
			out = append(out, a.Standby.Handles...)
		}
	}
	return slices.Clone(out)
}

// StandbyHandles returns all standbys that have not become an attempt.
func (r *Record) StandbyHandles() (out []Handle) {
	for i := range r.Attempts {
		if s := r.Attempts[i].Standby; s != nil {
			out = append(out, s.Handles...)
		}
	}
	return slices.DeleteFunc(out, func(h Handle) bool {
		return slices.ContainsFunc(r.Attempts, func(a Attempt) bool { return a.Submitted != nil && a.Submitted.Handle.NativeID == h.NativeID })
	})
}

// RequeuedHandle returns the current attempt's own job if the scheduler requeued it and its
// runner decided to begin the next attempt in it: no other job is needed then. It
// returns nil for every other decision.
func (r *Record) RequeuedHandle(d Decision) *Handle {
	a := r.Current()
	if d.Word != WordRequeued || a.Submitted == nil || !a.Info.Change.SameRequest(d.Change) {
		return nil
	}
	return &a.Submitted.Handle
}

// StandbyFor returns the number of the attempt behind which a standby was
// submitted; 0 is none.
func (r *Record) StandbyFor(h Handle) int {
	for i := range r.Attempts {
		if s := r.Attempts[i].Standby; s != nil && slices.ContainsFunc(s.Handles, func(o Handle) bool { return o.NativeID == h.NativeID }) {
			return r.Attempts[i].Info.Number
		}
	}
	return 0
}

// SameRequest tells whether a job that was submitted with what an attempt with the
// change c has asked for can be one with the change next.
func (c Change) SameRequest(next Change) bool {
	return c.Memory == next.Memory && c.Time == next.Time && slices.Equal(c.Exclude, next.Exclude)
}

// AttemptsLeft is how many more attempts the job may have.
func (r *Record) AttemptsLeft() int {
	most := 0
	if r.Spec.Retry != nil {
		most = r.Spec.Retry.Attempts
	}
	if r.Spec.Resume != nil {
		most = max(most, r.Spec.Resume.Attempts)
	}
	return max(most-len(r.Attempts), 0)
}
