package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/internal/sweep"
	"berth/internal/sweep/claims"
	"berth/internal/sweep/look"
	"berth/internal/sweep/metric"
	"berth/internal/sys/disk"
	"berth/internal/sys/ids"
	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) sweepCompareCmd() *cobra.Command {
	var metrics []string
	c := &cobra.Command{
		Use: "compare A B", Short: "compare two sweeps, task by task",
		Long: `Pair the tasks of two sweeps that have the same parameters, and say how B differs from A:
for each metric that both have (and for seconds) the means, the mean difference with its 95%
confidence interval, and in how many pairs B is higher or lower; and which tasks were ok in
one of them alone. The interval is by bootstrap of pairs, with the same random numbers each
time. Of more than 100,000 pairs a part is compared by metrics, spread over all.

Sweeps of different machines are compared here: of one behind a login host its parameters,
states and metrics are read there, and kept in a temporary file without a name.
` + sweepExit,
		Example: "  berth sweep compare lr lr2\n  berth sweep compare 4f1c 99ab --metric loss --json",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			var sides [2]comparedSide
			for i := range sides {
				side, err := a.compared(cmd.Context(), args[i])
				if err != nil {
					return err
				}
				defer side.close()
				sides[i] = side
			}
			res, err := look.Compare(sides[0].Side, sides[1].Side, metrics)
			if err != nil {
				return err
			}
			overlays := []*sweep.Overlay{sides[0].Overlay, sides[1].Overlay}
			if a.json {
				return a.printJSON(map[string]any{"a": sides[0].ID, "b": sides[1].ID,
					"overlays": overlays, "pairs": res.Pairs, "only_a": res.OnlyA, "only_b": res.OnlyB,
					"looked_at": res.Looked, "metrics": emptyNot(res.Metrics), "broke": res.BrokeN, "broke_first": emptyNot(res.Broke),
					"fixed": res.FixedN, "fixed_first": emptyNot(res.Fixed)})
			}
			if res.Pairs == 0 {
				return &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("no task of %s has the parameters of one of %s", args[0],
					args[1]), Hint: "berth sweep ls SWEEP shows parameters"}
			}
			a.say("%s; %d only in %s, %d only in %s", jobs.Plural(res.Pairs, "pair"), res.OnlyA, args[0], res.OnlyB, args[1])
			if of, with := overlays[0].String(), overlays[1].String(); of != with {
				a.say("not the same: tasks of A began with the overlay %s, those of B with %s", of, with)
			}
			var rows [][]string
			for _, m := range res.Metrics {
				rows = append(rows, []string{m.Name, fmt.Sprint(m.Pairs), figure(m.MeanA), figure(m.MeanB), figure(m.Diff),
					figure(m.Low) + " to " + figure(m.High), fmt.Sprint(m.Higher), fmt.Sprint(m.Lower), fmt.Sprint(m.Equal)})
			}
			if err := a.table([]string{"METRIC", "PAIRS", "MEAN A", "MEAN B", "B-A",
				"95% OF B-A", "B HIGHER", "B LOWER", "EQUAL"}, rows); err != nil {
				return err
			}
			for _, x := range []struct {
				told string
				n    int
				list []look.Flip
			}{{"ok in A alone", res.BrokeN, res.Broke}, {"ok in B alone", res.FixedN, res.Fixed}} {
				if x.n == 0 {
					continue
				}
				var some []string
				for _, f := range x.list[:min(len(x.list), 5)] {
					some = append(some, fmt.Sprintf("%d (%s) and %d (%s)", f.A, f.StateA, f.B, f.StateB))
				}
				a.say("%s: %s: tasks %s", x.told, jobs.Plural(x.n, "pair"), strings.Join(some, ", "))
			}
			return nil
		},
	}
	c.Flags().StringArrayVar(&metrics, "metric", nil, "compare this `NAME` alone (repeatable)")
	a.jsonFlag(c)
	return c
}

// comparedSide is one of two sweeps, on this machine or another one.
type comparedSide struct {
	look.Side
	look.Head
	close func()
}

func (a *app) compared(ctx context.Context, word string) (comparedSide, error) {
	root, err := sweepRoot()
	if err != nil {
		return comparedSide{}, err
	}
	_, far, err := sweep.Locate(root, word)
	if err != nil {
		return comparedSide{}, err
	}
	if far != nil {
		return a.comparedThere(ctx, far)
	}
	l, err := lookAt([]string{word})
	if err != nil {
		return comparedSide{}, err
	}
	return comparedSide{l, l.Head(), l.Close}, nil
}

// comparedThere reads a sweep behind its login host into a file without a name.
func (a *app) comparedThere(ctx context.Context, far *sweep.Far) (side comparedSide, err error) {
	id, err := ids.New()
	if err != nil {
		return side, err
	}
	keep, err := os.CreateTemp("", "berth-compare-*")
	if err != nil {
		return side, &jobs.Error{Kind: jobs.KindInfra, Msg: "keep what is compared", Err: err}
	}
	_ = os.Remove(keep.Name())
	defer func() {
		if err != nil {
			_ = keep.Close()
		}
	}()
	stderr := a.farText(a.stderr, a.errTTY, false)
	defer unpaint(stderr)
	code, err := a.callInto(ctx, &farCall{login: far.Login, farRequest: farRequest{ID: id, Words: []farWord{{Text: sideVerb}, {Text: far.ID}},
		ErrTTY: a.errTTY, Width: a.width()}}, keep, stderr)
	if err != nil {
		return side, err
	}
	if code != jobs.CodeOK {
		return side, a.endedThere(ctx, far, code)
	}
	there, err := look.ReadSide(keep, far.Login.Host, far.ID)
	if err != nil {
		return side, err
	}
	return comparedSide{there, there.Head, func() { _ = keep.Close() }}, nil
}

// sideVerb is what a berth on another machine is asked for.
const sideVerb = "side"

func (a *app) sweepSideCmd() *cobra.Command {
	return &cobra.Command{
		Use: sideVerb + " SWEEP", Short: "write what a sweep is compared by on another machine", Hidden: true, Args: cobra.ExactArgs(1),
		Long: `Write the parameters, states and metrics of a sweep for a berth that compares it with one of
another machine, and reaches this one with --login. berth itself starts it.
` + sweepExit,
		Example: "  berth sweep compare lr lr2",
		RunE: func(_ *cobra.Command, args []string) error {
			l, err := lookAt(args)
			if err != nil {
				return err
			}
			defer l.Close()
			return l.WriteSide(a.stdout)
		},
	}
}

func figure(v float64) string { return strconv.FormatFloat(v, 'g', 5, 64) }

// bare refuses a replay whose user has not said that the task runs without a container.
func (a *app) bare(cmd *cobra.Command, backend string) error {
	if backend == "" {
		cfg, err := a.config(cmd)
		if err != nil {
			return err
		}
		backend, _ = cfg.Get("terminal.backend").V.(string)
	}
	if can := jobs.CapabilitiesOf(backend); can.Bare && !can.OtherHost {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindConfig, Msg: "replay runs the task without a container in this version of berth, and the backend is " + backend,
		Hint: "--backend local, where it may have your own rights"}
}

func (a *app) sweepReplayCmd() *cobra.Command {
	var backend string
	c := &cobra.Command{
		Use: "replay SWEEP TASK", Short: "run one task of a sweep again, here and now",
		Long: `Run one task again from the record of its sweep, in the foreground, and say how its end
compares with the recorded one and what could not be the same: the machine, the environment,
files that were changed. Nothing of the sweep changes: sweep retry runs tasks for good.

The task runs with your own rights, without a container: --backend local says so, or
terminal.backend in the configuration.

` + exitHelp + `that of the task; 2 usage, 3 no such sweep or task, 78 not allowed here.`,
		Example: "  berth sweep replay --backend local lr 17",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, f, err := foldSweep(args[:1])
			if err != nil {
				return err
			}
			t, err := s.Task(args[1])
			if err != nil {
				return err
			}
			if err := a.bare(cmd, backend); err != nil {
				return err
			}
			l := look.New(s, f)
			defer l.Close()
			r, err := l.One(t.Number)
			if err != nil {
				return err
			}
			template, err := s.Command()
			if err != nil {
				return err
			}
			argv, err := template.Command(t)
			if err != nil {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: err.Error()}
			}
			if _, err := os.Stat(s.Spec.Workdir); err != nil {
				return &jobs.Error{Kind: jobs.KindNotFound, Msg: "the directory in which the sweep ran", Err: err}
			}
			a.say("task %d: %s", t.Number, paramText(t.Params))
			for _, x := range notTheSame(l, r) {
				a.say("not the same: %s", x)
			}
			tmp, err := os.MkdirTemp("", "berth-replay-")
			if err != nil {
				return err
			}
			defer func() { _ = disk.RemoveTree(tmp) }()
			metrics := filepath.Join(tmp, "metrics")
			if err := os.WriteFile(metrics, nil, 0o600); err != nil {
				return err
			}
			env := append(os.Environ(), "BERTH_SWEEP="+s.Spec.Name, metric.Var+"="+metrics)
			stdout, stderr := a.shown(false)
			p, err := run.Local{}.Start(cmd.Context(), jobs.Cmd{Argv: argv, Dir: s.Spec.Workdir,
				Env: append(env, t.Env()...), Stdout: stdout, Stderr: stderr})
			if err != nil {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "start the task", Err: err}
			}
			exit, err := p.Wait()
			if err != nil {
				return err
			}
			code := exit.Code
			if exit.Signal != 0 {
				code = 128 + exit.Signal
			}
			if b, err := disk.ReadRegular(metrics, 1<<20); err == nil && len(b) > 0 {
				a.say("metrics: %s", strings.Join(strings.Fields(string(b)), " "))
			}
			switch was := r.Record; {
			case was == nil || !r.State.Result():
				a.say("it has ended with %d; the sweep has no result of it", code)
			case look.Exit(*was) == code:
				a.say("it has ended with %d, as in the sweep", code)
			default:
				a.say("it has ended with %d; in the sweep it was %d (%s)", code, look.Exit(*was), r.State)
			}
			if code != 0 {
				return exitCode(code)
			}
			return nil
		},
	}
	c.Flags().StringVar(&backend, "backend", "", "`NAME` of what contains the task; only local, which does not: it has your own rights")
	return c
}

// notTheSame says what a task that is replayed does not find as it was.
func notTheSame(l *look.Look, r look.Row) []string {
	out := []string{"variables of the environment are those of this shell", "files that it reads may have been changed since, by other tasks too"}
	if p := l.Sweep.Spec.Worker; p != nil && (p.Level != jobs.LevelNone || p.External != nil) {
		out = append(out, "it ran in a container ("+p.Backend+": "+p.Containment()+"), and has none here: another image, other files")
	}
	if o := l.Sweep.Spec.Overlay; o != nil {
		out = append(out, "it began with the files of overlay "+o.String())
	}
	if l.Sweep.Spec.Request.Ranks != "" {
		out = append(out, "it had ranks in a step of its own, and runs once here")
	}
	if l.Sweep.Spec.Limit > 0 {
		out = append(out, fmt.Sprintf("it is not ended after %s", l.Sweep.Spec.Limit))
	}
	if r.Record == nil || !r.State.Result() {
		return out
	}
	out = append(out, fmt.Sprintf("it ran at %s, and took %s", r.Record.Began.Format("2006-01-02 15:04:05 UTC"), r.Record.Took))
	b, err := disk.ReadRegular(filepath.Join(l.Sweep.WorkerDir(r.Record.Worker), claims.WorkerFile), 1<<16)
	var was lease.Process
	if err = errors.Join(err, json.Unmarshal(b, &was)); err != nil {
		return append(out, "the machine on which it ran is not known")
	}
	if now := lease.Self(); was.Host != now.Host {
		out = append(out, fmt.Sprintf("it ran on %s, and this is %s", was.Host, now.Host))
	}
	return out
}
