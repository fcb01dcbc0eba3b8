package jobs

// Unguarded reports whether the current attempt should have a reaper queued behind
// it but has none. The submitting client starts a separate process that submits the
// reaper; that process may have been killed before it did so. Unguarded is false after a
// failed submission of the reaper, see [Record.Stuck].
func (r *Record) Unguarded() bool {
	a := r.Current()
	if a == nil || a.Submitted == nil || a.Over() || !r.Spec.FollowedOnCluster() || r.Spec.Profile.NodesMute || a.Reaper != nil || a.Unfollowed != nil {
		return false
	}
	for i := range r.Attempts {
		// The scheduler has requeued the job: the reaper of an earlier attempt still
		// waits for its end, or has taken care of what follows.
		if b := &r.Attempts[i]; b.Reaper != nil && b.Submitted != nil && b.Submitted.Handle.NativeID == a.Submitted.Handle.NativeID {
			return false
		}
	}
	return true
}

// FollowedOnCluster reports whether jobs on the cluster, submitted from here, can
// begin the next attempt.
func (s *Spec) FollowedOnCluster() bool {
	return s.Retry != nil && s.Clustered() && s.Login == nil
}
