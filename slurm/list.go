package slurm

import (
	"context"
	"strings"

	"berth/jobs"
)

// listFormat asks squeue for whose jobs are whose; the directory is last because
// it may hold anything.
const listFormat = "JobID:|,State:|,Name:|,WorkDir:|"

// List returns the user's jobs that have not ended and have a name of berth's.
func (s *Scheduler) List(ctx context.Context) ([]jobs.Listed, error) {
	out, err := s.query(ctx, "squeue", "--me", "-h", "-O", listFormat)
	if err != nil {
		return nil, err
	}
	var list []jobs.Listed
	for line := range strings.SplitSeq(out, "\n") {
		f := strings.SplitN(strings.TrimSuffix(strings.TrimRight(line, " \r"), "|"), "|", 4)
		if len(f) != 4 || !isID(f[0]) || !strings.HasPrefix(f[2], "berth-") {
			continue
		}
		if st := status(f[0], f[1], ""); st.State.Final() {
			continue
		}
		list = append(list, jobs.Listed{Handle: s.handle(f[2], f[0], "", s.cfg.Now().Add(-findWindow).Unix()), Dir: f[3]})
	}
	return list, nil
}
