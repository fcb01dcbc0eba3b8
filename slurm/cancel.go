package slurm

import (
	"context"
	"slices"
	"strings"

	"berth/jobs"
)

// maxCancelled bounds one scancel, which signals job after job.
const maxCancelled = 1000

// Cancel ends those of the jobs that the queue still has under their id and
// name; asking first keeps a used-again id, and another job of the user, safe.
// Slurm then sends TERM, and KILL after KillWait (see [Scheduler.KillWait]).
func (s *Scheduler) Cancel(ctx context.Context, handles []jobs.Handle) error {
	for _, cluster := range clusters(handles) {
		rows, _, err := s.queue(ctx, cluster, nil, after)
		if err != nil {
			return err
		}
		alive := map[string]jobs.Status{}
		pick(alive, onCluster(handles, cluster), rows)
		var ids []string
		for _, h := range onCluster(handles, cluster) {
			if h.Elements > 0 {
				for _, r := range rows {
					if r.name == h.Name && !r.status.State.Final() {
						ids = append(ids, r.id)
					}
				}
				continue
			}
			// A state word that is not known may be a live job's.
			if st, ok := alive[h.Name]; ok && !st.State.Final() {
				ids = append(ids, h.NativeID)
			}
		}
		slices.Sort(ids)
		for part := range slices.Chunk(slices.Compact(ids), maxCancelled) {
			if err := s.scancel(ctx, cluster, part); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Scheduler) scancel(ctx context.Context, cluster string, ids []string) error {
	argv := []string{"scancel"}
	if cluster != "" {
		argv = append(argv, "-M", cluster)
	}
	out, err := s.command(ctx, s.cfg.QueryTimeout, nil, append(argv, ids...)...)
	s.share().changed()
	if err != nil {
		return s.infra("scancel", err)
	}
	if out.ok() || onlyEnded(out.stderr) {
		return nil
	}
	return s.withDownHint(out)
}

// onlyEnded tells whether scancel complains of nothing but jobs that ended
// between the question and the order.
func onlyEnded(stderr string) bool {
	complaints := 0
	for line := range strings.SplitSeq(stderr, "\n") {
		if !strings.HasPrefix(line, "scancel: error:") {
			continue
		}
		complaints++
		if !containsAny(line, []string{"Invalid job id", "already completing or completed", "Job/step already"}) {
			return false
		}
	}
	return complaints > 0
}
