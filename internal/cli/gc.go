package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/engine"
	"berth/internal/sys/lease"
	"berth/jobs"
	"berth/overlay"

	"github.com/spf13/cobra"
)

func (a *app) gcCmd() *cobra.Command {
	var dry, force bool
	c := &cobra.Command{
		Use: "gc",
		Long: `Clean up what crashed nodes and killed processes have left behind:

- attempts whose runner is silent and whose job the scheduler no longer knows are
  recorded as ended, and what is due then is done;
- half made or half removed records, overlays and environments are removed, and so are
  scratch directories on this machine whose owner is gone;
- branches of ended jobs that are not in their repository are brought there;
- jobs in Slurm's queue for an attempt whose job has ended, or continues in another
  attempt, are cancelled;
- jobs in Slurm's queue for a record that is gone, and runners and containers on this
  machine whose attempt has ended, are listed; --force ends them.

Nothing is removed that is in use, or that berth has not provably made. Overlays, snapshots,
images and the records of jobs stay: berth image gc removes images, berth overlay gc kept
layers.
` + exitHelp + `0 ok, 5 something could not be looked at or put right, 78 the state
directory is open to others.`,
		Example: `  berth gc --dry-run
  berth gc`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := a.engine()
			if err != nil {
				return err
			}
			left, err := e.Sweep(cmd.Context(), dry, force)
			errs := []error{err, a.gcLeases(cmd.Context(), e, dry, &left),
				a.gcOverlays(cmd.Context(), dry, &left), a.gcEnvs(cmd.Context(), e, dry, &left)}
			errs = append(errs, a.gcContainers(e, dry, force, &left), a.gcScratch(cmd.Context(), e, dry, &left))
			for _, l := range left {
				if l.Err != nil {
					errs = append(errs, l.Err)
				}
			}
			return errors.Join(append(errs, a.printLeft(left))...)
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "only list what there is")
	c.Flags().BoolVar(&force, "force", false, "also end queued jobs without a record, and runners and containers on this machine whose attempt has ended")
	a.jsonFlag(c)
	return c
}

// printLeft is the answer of gc.
func (a *app) printLeft(left []engine.Left) error {
	if a.json {
		if left == nil {
			left = []engine.Left{}
		}
		return a.printJSON(map[string]any{"left": left})
	}
	if len(left) == 0 {
		if a.errTTY {
			a.say("nothing was left behind")
		}
		return nil
	}
	rows := make([][]string, len(left))
	for i, l := range left {
		job := ""
		if l.Job != "" {
			job = jobs.Short(l.Job)
		}
		rows[i] = []string{l.What, l.Name, dash(job), l.Result, l.Why}
	}
	return a.table([]string{"WHAT", "NAME", "JOB", "RESULT", "WHY"}, rows)
}

// forGood is more than the age of any kept layer, so that these stay.
const forGood = 100 * 365 * 24 * time.Hour

// gcOverlays removes what berth overlay gc removes, except the layers that jobs have
// kept: a user may still want those.
func (a *app) gcOverlays(ctx context.Context, dry bool, left *[]engine.Left) error {
	set, _, err := a.overlays()
	if err != nil {
		return err
	}
	set.Older = forGood
	found, err := set.Collect(ctx, dry)
	for _, f := range found {
		*left = append(*left, result(engine.Left{What: engine.LeftOverlay, Name: f.Path, Why: f.What, Err: f.Err}, dry))
	}
	return err
}

// gcLeases releases the leases of overlays whose owners are gone, as the next user
// of the overlay would. Nothing else of the overlay is changed.
func (a *app) gcLeases(ctx context.Context, e *engine.Engine, dry bool, left *[]engine.Left) error {
	entries, err := os.ReadDir(e.Store.Overlays())
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	// An owner that takes longer to check is left to the next user of the overlay.
	const look = 500 * time.Millisecond
	me := lease.Self()
	for _, d := range entries {
		dir := filepath.Join(e.Store.Overlays(), d.Name())
		if m, err := overlay.ReadMark(dir); m == nil || err != nil || strings.HasPrefix(d.Name(), ".") {
			continue // not one of berth's, or half made
		}
		held, err := lease.Holder(dir)
		if held == nil || err != nil {
			continue
		}
		looking, stop := context.WithTimeout(ctx, look)
		gone := overlay.Watch(looking, dir, me, lease.PatienceFor(0))
		if gone(*held) {
			l := engine.Left{What: engine.LeftLease, Name: d.Name(), Job: held.Job, Why: overlay.Held(d.Name(), *held) + ", which is gone"}
			if !dry {
				var taken *lease.Lease
				taken, l.Err = lease.Acquire(dir, lease.Owner{
					Version: 1,
					Verb:    "gc",
					Dir:     dir,
					Host:    me.Host,
					BootID:  me.BootID,
					PID:     me.PID,
					Start:   me.Start,
					Time:    a.now().UTC(),
				}, gone)
				if l.Err == nil {
					l.Err = taken.Release()
				}
			}
			*left = append(*left, result(l, dry))
		}
		stop()
	}
	return nil
}

// gcEnvs is berth env gc.
func (a *app) gcEnvs(ctx context.Context, e *engine.Engine, dry bool, left *[]engine.Left) error {
	found, err := e.Collect(ctx, dry)
	for _, f := range found {
		*left = append(*left, result(engine.Left{What: engine.LeftEnv, Name: f.What + " " + f.Name, Why: f.Why, Err: f.Err}, dry))
	}
	return err
}

// result says what became of it.
func result(l engine.Left, dry bool) engine.Left {
	switch {
	case dry:
		l.Result = engine.DoneFound
	case l.Err != nil:
		l.Result = engine.DoneFailed
	default:
		l.Result = engine.DoneRemoved
	}
	return l
}
