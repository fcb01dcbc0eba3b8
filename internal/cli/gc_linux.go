package cli

import (
	"context"
	"os"
	"slices"
	"strconv"

	"berth/engine"
	"berth/internal/node/container"
	"berth/internal/sys/lease"
	"berth/jobs"
)

// gcScratch looks at the places on this machine where scratch directories stand:
// those of the profiles that jobs were submitted with, and the usual ones.
func (a *app) gcScratch(ctx context.Context, e *engine.Engine, dry bool, left *[]engine.Left) error {
	recs, err := e.Store.List()
	if len(recs) == 0 && err != nil {
		return err
	}
	bases := []string{"/tmp", "/var/tmp"}
	add := func(profile string) {
		// Of another machine's profile there may be no such place here.
		if b, err := container.ScratchBase(profile, os.Getenv); err == nil && !slices.Contains(bases, b) {
			bases = append(bases, b)
		}
	}
	add("")
	for _, r := range recs {
		if r.Spec.Profile.Scratch != "" {
			add(r.Spec.Profile.Scratch)
		}
	}
	for _, base := range bases {
		for _, dir := range container.AbandonedScratch(base, lease.Self()) {
			l := engine.Left{What: engine.LeftScratch, Name: dir, Why: "its owner is gone"}
			if !dry {
				if err := container.RemoveAbandoned(ctx, dir); err != nil {
					l.Err = &jobs.Error{Kind: jobs.KindInfra, Msg: "scratch directory " + dir + " could not be removed", Err: err,
						Hint: "ls -la " + dir}
				}
			}
			*left = append(*left, result(l, dry))
		}
	}
	return nil
}

// gcContainers finds containers on this machine that go on though their attempt
// has ended and their runner is gone: it was killed, and so was what looks after
// the container inside.
func (a *app) gcContainers(e *engine.Engine, dry, force bool, left *[]engine.Left) error {
	marks, err := e.EndedMarks()
	if err != nil {
		return err
	}
	for _, o := range container.Orphans(func(mark string) bool { return marks[mark].What != "" }) {
		l := marks[o.Mark]
		l.Name = strconv.Itoa(o.PID)
		switch {
		case dry:
		case !force:
			l.Result = engine.DoneNeeds
		case o.Kill():
			l.Result = engine.DoneRemoved
		default:
			l.Result, l.Err = engine.DoneFailed, &jobs.Error{Kind: jobs.KindInfra, Msg: "process " + l.Name + " could not be ended",
				Hint: "berth gc again, should it have ended by itself"}
		}
		*left = append(*left, l)
	}
	return nil
}
