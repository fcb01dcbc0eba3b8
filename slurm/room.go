package slurm

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"berth/jobs"
	"berth/slurm/site"
)

// assocFile is the file of a share with the user's associations.
const assocFile = ".assoc"

// Room reads MaxArraySize, which is one more than the last number of an array
// (slurm.conf(5)), and, where there is accounting, MaxSubmitJobs of the association
// that a job with these options has. Those of a QOS are sbatch's to tell.
func (s *Scheduler) Room(ctx context.Context, o jobs.SlurmOptions, user string) (jobs.Room, error) {
	c, err := s.settings(ctx)
	if err != nil {
		return jobs.Room{}, err
	}
	var room jobs.Room
	if n, err := strconv.Atoi(c["MaxArraySize"]); err == nil {
		room.Elements = max(n-1, 1)
	}
	on, err := s.accounting(ctx)
	if err != nil || !on {
		return room, err
	}
	text, err := s.cachedQuery(ctx, assocFile, whole, "sacctmgr", "-nP", "show", "assoc", "user="+user, site.AssociationFormat)
	if err != nil {
		return room, err
	}
	most := 0
	for _, a := range site.Associations(text) {
		if n, err := strconv.Atoi(a.MaxSubmit); err == nil && (o.Account == "" || a.Account == o.Account) &&
			(a.Partition == "" || a.Partition == o.Partition) && (most == 0 || n < most) {
			most, room.Why = n, fmt.Sprintf("MaxSubmitJobs of account %s is %d", a.Account, n)
		}
	}
	if most == 0 {
		return room, nil
	}
	rows, _, err := s.queue(ctx, "", nil, recent)
	if err != nil {
		return room, err
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(r row) bool { return r.status.State.Final() })
	room.Jobs = max(most-len(rows), 0)
	return room, nil
}
