package jobs

import "slices"

// Unfinished tells whether the attempt's result was accepted by its runner, and
// that has not recorded the end yet: it is still at work on what counts outside
// of the attempt's directory, or was killed at it. A decision to accept is not
// taken back, so no verdict on the runner makes another end of the attempt; see
// [Attempt.Finish].
func (a *Attempt) Unfinished() bool {
	return a.Exit == nil && a.Decision != nil && a.Decision.Verb == VerbAccept && a.Decision.Exit != nil
}

// Over reports whether the end of the attempt is recorded: by its runner, or by
// a client that concluded that the runner is gone.
func (a *Attempt) Over() bool { return a.Exit != nil || a.Verdict != nil && !a.Unfinished() }

// Finish returns the exit record of an attempt that is [Attempt.Unfinished] and
// whose runner is gone: the one that the runner stored with its decision. gone is
// why the runner ended.
func (a *Attempt) Finish(gone string) ExitRecord {
	rec := *a.Decision.Exit
	rec.Notes = append(slices.Clone(rec.Notes), "its runner ended after the result had been accepted and before it could record that: "+gone)
	return rec
}
