package jobs

// Unguarded tells whether nothing waits in the scheduler that would go on with a job
// when that ends its current attempt, though something should: whoever
// submitted the attempt has that done by a process of its own, which may have
// been ended before it came to that. Of what was tried in vain the record tells
// otherwise, see [Record.Stuck].
func (r *Record) Unguarded() bool {
	a := r.Current()
	if a == nil || a.Submitted == nil || a.Over() || !r.Spec.FollowedOnCluster() || r.Spec.Profile.NodesMute || a.Reaper != nil || a.Unfollowed != nil {
		return false
	}
	for i := range r.Attempts {
		// The scheduler has started the job anew, and what waits for its end still does,
		// or has seen to what comes after itself.
		if b := &r.Attempts[i]; b.Reaper != nil && b.Submitted != nil && b.Submitted.Handle.NativeID == a.Submitted.Handle.NativeID {
			return false
		}
	}
	return true
}

// FollowedOnCluster reports whether jobs of the cluster, submitted from here, can
// see to it that another attempt follows.
func (s *Spec) FollowedOnCluster() bool {
	return s.Retry != nil && s.Clustered() && s.Login == nil
}
