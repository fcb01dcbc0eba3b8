package jobstest_test

import (
	"errors"
	"testing"

	"berth/jobs"
	"berth/jobs/jobstest"
)

func TestFakeScheduler(t *testing.T) {
	for name, forgets := range map[string]bool{"remembers": false, "forgets": true} {
		t.Run(name, func(t *testing.T) {
			jobstest.TestScheduler(t, func(t *testing.T) jobstest.Env {
				f := jobstest.NewFake()
				f.Forgets = forgets
				f.Submits = func(l jobs.Launch) error {
					if l.Slurm.Partition == "nope" {
						return &jobs.Error{Kind: jobs.KindRejected, Msg: "no such partition", Hint: "name another"}
					}
					return nil
				}
				return jobstest.Env{
					Scheduler: f,
					Dir:       t.TempDir(),
					Identity:  jobs.Identity{User: "alice", Home: "/home/alice"},
					Hold:      func(*testing.T, *jobs.Launch) {},
					Bad:       func(l *jobs.Launch) { l.Slurm.Partition = "nope" },
					Start:     f.Start,
					End:       f.End,
					LoseReply: func(*testing.T) { f.Fault(func(f *jobstest.FakeScheduler) { f.LoseReplies = 1 }) },
					Break: func(*testing.T) {
						f.Fault(func(f *jobstest.FakeScheduler) {
							f.Queries = &jobs.Error{Kind: jobs.KindInfra, Err: errors.New("down")}
						})
					},
					Remembers: !forgets,
				}
			})
		})
	}
}
