package allocations

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/node/keeper"
	"berth/jobs"
	"berth/jobs/store"
)

// begin asks for allocation n. It returns nil when another process does so.
func (p *Place) begin(ctx context.Context, n int, o keeper.OpenOptions) (*Allocation, error) {
	g, err := p.Ground(ctx)
	if err != nil {
		return nil, err
	}
	if o.Input != nil { // what its keeper will need is looked for before the wait
		if _, err := o.Input(ctx); err != nil {
			return nil, err
		}
	}
	a, won, err := create(p.Record, n, p.Spec.Name, p.Now())
	if err != nil || !won {
		return nil, err
	}
	h, err := p.submit(ctx, a, g)
	switch {
	case err == nil:
	case jobs.KindOf(err) == jobs.KindUnclear:
		// It may be there: the next one to come looks for it by its name.
		return nil, err
	default:
		// The scheduler has nothing.
		a.end(jobs.Status{Reason: "it was not taken: " + err.Error()}, p.Now())
		return nil, err
	}
	a.submitted = &jobs.Submitted{Version: 1, Handle: h, Time: p.Now().UTC()}
	if _, err := a.once(fileSubmitted, a.submitted); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "record " + a.String(), Err: err, Hint: "the next command finds it by its name"}
	}
	o.Progress(fmt.Sprintf("asked %s for an allocation: job %s", p.Scheduler.Name(), a.Native()))
	return a, nil
}

func (p *Place) submit(ctx context.Context, a *Allocation, g Ground) (jobs.Handle, error) {
	l := p.launch(a, g)
	script, err := p.Scheduler.Render(l)
	if err != nil {
		return jobs.Handle{}, err
	}
	path := filepath.Join(a.dir, fileScript)
	if _, err := store.CreateOnce(path, []byte(script)); err != nil {
		return jobs.Handle{}, &jobs.Error{Kind: jobs.KindInfra, Msg: "write the job script", Err: err, Hint: "is there space left? df -h " + a.dir}
	}
	if p.Far != nil {
		spec := *p.Spec
		spec.Login, spec.Target = nil, "" // they mean something here
		if err := p.put(ctx, g.Dir, store.FileEnv, spec); err != nil {
			return jobs.Handle{}, err
		}
		if err := p.Far.PutFiles(ctx, l.Dir, map[string][]byte{fileScript: []byte(script)}); err != nil {
			return jobs.Handle{}, err
		}
	}
	return p.Submit(ctx, l, p.there(g, path))
}

// put writes a record there.
func (p *Place) put(ctx context.Context, dir, name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return p.Far.PutFiles(ctx, dir, map[string][]byte{name: append(b, '\n')})
}

// launch is the job of an allocation: its keeper.
func (p *Place) launch(a *Allocation, g Ground) jobs.Launch {
	s := p.Spec
	dir := p.there(g, a.dir)
	l := jobs.Launch{
		Attempt: a.ID, Name: a.Name, Dir: dir, Resources: s.Resources, Slurm: s.Slurm, Profile: s.Profile, Identity: g.Identity,
		Argv: []string{g.Node, "keep", "--env", g.Dir, "--reports", filepath.Join(dir, fileReports), "--id", s.ID},
		Comment: []string{
			"berth environment " + s.Name + ", " + a.String(),
			"backend " + s.Backend + " (containment: " + s.Containment() + ")",
			"it ends by itself " + idle(s.Lifetime) + "; to end it now: berth env stop " + s.Name,
		},
	}
	if s.Image != "" {
		l.Comment = append(l.Comment, "image "+s.Image)
	}
	l.Resources.Disk = 0 // of its layer, which is not on the node's disk
	return l
}

func idle(lifetime time.Duration) string {
	if lifetime <= 0 {
		return "with its time"
	}
	return "after " + lifetime.String() + " without use"
}

// settle finds an allocation whose submission is not recorded: its submitter is
// still at work, or was killed. Its end is recorded when it was never submitted.
func (p *Place) settle(ctx context.Context, a *Allocation, tell func(string)) (*Allocation, error) {
	began := p.Now()
	ask := began.Add(findFirst)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		now, err := load(p.Record, a.Number)
		if err != nil {
			return nil, err
		}
		if now.submitted != nil || now.ended != nil {
			return now, nil
		}
		over := p.late(now, began)
		if over && now.Name == "" {
			now.end(jobs.Status{Reason: "whoever began it was killed"}, p.Now())
			return now, nil
		}
		if at := p.Now(); over || now.Name != "" && !at.Before(ask) {
			if ask = at.Add(askMost); !over {
				tell("another command has asked for an allocation at " + now.Created.Local().Format(time.TimeOnly) +
					" and has not said yet what came of it; looking for it")
			}
			found, err := p.Scheduler.Find(ctx, []string{now.Name})
			if err != nil && over {
				return nil, err
			}
			h, ok := found[now.Name]
			switch {
			case ok:
				now.submitted = &jobs.Submitted{Version: 1, Handle: h, Time: p.Now().UTC()}
				_, _ = now.once(fileSubmitted, now.submitted)
				return now, nil
			case over:
				now.end(jobs.Status{Reason: "it was never submitted"}, p.Now())
				return now, nil
			}
		}
		if err := p.Sleep(ctx, pause); err != nil {
			return nil, &jobs.Error{Kind: jobs.KindAgain,
				Msg: fmt.Sprintf("whether the scheduler has the %s is not known yet: it was asked for at %s",
					now, now.Created.Local().Format(time.TimeOnly)),
				Err: context.Cause(ctx), Hint: "try again in " + submitting.String()}
		}
	}
}

// settleIn is settle, for no longer than --immediate has it.
func (p *Place) settleIn(ctx context.Context, a *Allocation, tell func(string)) (*Allocation, error) {
	if p.Immediate > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.Immediate)
		defer cancel()
	}
	return p.settle(ctx, a, tell)
}

// submitting is how long a submission may take, all its waits for a full queue
// included, before one that the scheduler does not know was never made.
const submitting = 4 * time.Minute

// skew is how far the clocks of two machines of one cluster may differ: munge
// refuses what is older than that (munge(1), --ttl).
const skew = 5 * time.Minute

// findFirst is when a submission is looked for that is not recorded: only that
// it is there can be known so early.
const findFirst = 5 * time.Second

// late tells whether an allocation's submission is over, recorded or not, for
// one who waits since then. When it began is the word of another clock.
func (p *Place) late(a *Allocation, began time.Time) bool {
	now := p.Now()
	if a.Name == "" && now.Sub(began) > unknownGrace {
		// Its record is written at once. A directory without one may be what
		// Slurm has made for the log of a job of a removed environment; and a
		// job that is submitted in it after all finds that it is over.
		return true
	}
	return now.Sub(began) > submitting || now.Sub(a.Created) > submitting+skew
}

// request asks for the allocation that an environment needs, or finds the one
// that it has, and returns it when it runs. With o.NoStart nothing is asked
// for.
func (p *Place) request(ctx context.Context, o keeper.OpenOptions) (*Allocation, string, error) {
	mine := 0
	for try := 1; ; try++ {
		a, err := last(p.Record)
		if err != nil {
			return nil, "", err
		}
		if a != nil && a.submitted == nil && a.ended == nil {
			if o.NoStart {
				return nil, "", keeper.ErrNotRunning
			}
			if a, err = p.settleIn(ctx, a, o.Progress); err != nil {
				return nil, "", err
			}
		}
		switch {
		case a != nil && a.ended == nil:
		case o.NoStart:
			return nil, "", keeper.ErrNotRunning
		case try > 5 || a != nil && a.Number == mine:
			return nil, "", p.over(ctx, a)
		default:
			if err := p.stands(); err != nil {
				return nil, "", err
			}
			if a != nil && a.ended.Word != "" && a.ended.State != jobs.StateCompleted {
				o.Progress(fmt.Sprintf("%s ended (%s); another one goes on with the same files", a, a.ended))
			}
			n := 1
			if a != nil {
				n = a.Number + 1
			}
			if a, err = p.begin(ctx, n, o); err != nil {
				return nil, "", err
			}
			if a == nil {
				continue
			}
			mine, a.fresh = a.Number, true
		}
		node, err := p.await(ctx, a, mine == a.Number, o)
		if err != nil || a.ended == nil {
			return a, node, err
		}
	}
}

// stands makes sure that the environment is still recorded: an allocation that
// is asked for without a record would have no owner.
func (p *Place) stands() error {
	spec, err := store.LoadEnv(p.Record)
	if err == nil && spec.ID == p.Spec.ID {
		return nil
	}
	if err == nil || jobs.KindOf(err) == jobs.KindNotFound {
		return &jobs.Error{Kind: jobs.KindAgain, Msg: "the environment " + p.Spec.Name + " was removed while this command waited",
			Hint: "repeat the command: it makes the environment again, or finds the one that has its name by now"}
	}
	return err
}

// over is the error of an allocation that ended before it was of use.
func (p *Place) over(ctx context.Context, a *Allocation) error {
	if err := p.failure(ctx, a); err != nil {
		return err
	}
	g, err := p.Ground(ctx)
	if err != nil {
		return err
	}
	log := filepath.Join(p.there(g, a.dir), jobs.SchedulerLog)
	e := &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("the %s ended before the environment was open", a), Hint: "see " + log}
	if a.ended != nil {
		e.Err = errors.New(a.ended.String())
		if a.ended.Code == jobs.CodeNotRunnable {
			e.Kind, e.Hint = jobs.KindConfig, store.HintNoExec
		}
	}
	read := os.ReadFile
	if p.Far != nil {
		read = func(path string) ([]byte, error) { return p.Far.ReadFile(ctx, path) }
	}
	b, err := read(log)
	if errors.Is(err, fs.ErrNotExist) {
		e.Hint = "it has left no log: do the nodes see " + g.Dir + "? BERTH_HOME must name a directory that they do"
	}
	if err == nil {
		if said := LastLine(string(b)); said != "" {
			e.Err = fmt.Errorf("%w: %s", e.Err, said)
		}
	}
	return e
}

// LastLine returns the last line of a log, without what a terminal would obey.
func LastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	line := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, lines[len(lines)-1])
	const most = 300
	if len(line) > most {
		line = line[:most] + " ..."
	}
	return line
}
