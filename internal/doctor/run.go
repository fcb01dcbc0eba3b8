package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	boxes "berth/apptainer/examine"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/finding"
	"berth/slurm/examine"
)

// Times of a run. They are bounds, not what it takes.
const (
	checkTime = 12 * time.Second // of one check, when the table says nothing
	graceTime = 3 * time.Second  // for a check to clean up after its time
	wholeTime = 25 * time.Second // of all of them
)

// Check is a row of the table.
type Check struct {
	ID    string
	Scope Scope
	Name  string // the subject of its findings, where they have no own
	About string // what it looks at and what its failure means, for the documentation
	Limit time.Duration
	// Submit marks a check of the side that submits: it is left out on a node.
	Submit bool
	run    func(ctx context.Context, l *look) []Finding
}

// look is a run: what checks share.
type look struct {
	Where
	limit time.Duration // of one question
	ask   func(ctx context.Context, env []string, argv ...string) (string, error)
	slurm *examine.Site
	box   *boxes.Site // the container program
	mods  func() (modules, error)
}

// Run looks at this machine and returns within some 28 s, whatever hangs.
func Run(ctx context.Context, w Where) *Place {
	return runChecks(ctx, w, Checks())
}

func runChecks(parent context.Context, w Where, checks []Check) *Place {
	w = w.withDefaults()
	ctx, cancel := context.WithTimeout(parent, wholeTime)
	defer cancel()
	start := time.Now()
	l := newLook(ctx, w)
	found := make([][]Finding, len(checks))
	var mu sync.Mutex
	var all sync.WaitGroup
	for i, c := range checks {
		if c.Submit && w.OnNode() {
			continue
		}
		all.Go(func() {
			got := c.bounded(ctx, l)
			mu.Lock()
			defer mu.Unlock()
			found[i] = got
		})
	}
	all.Wait()
	host, _ := os.Hostname()
	p := &Place{Version: Version, Where: w.Where, Host: host, Time: start.UTC()}
	p.Findings = append(p.Findings, w.Broken...)
	for i, c := range checks {
		for _, f := range found[i] {
			f.ID, f.Scope = c.ID, c.Scope
			if f.Subject == "" {
				f.Subject = c.Name
			}
			f.Why, f.Do = oneLine(f.Why), oneLine(f.Do)
			p.Findings = append(p.Findings, f)
		}
	}
	conclude(p, w)
	p.TookMS = time.Since(start).Milliseconds()
	return p
}

// bounded runs a check for its time and returns what it found. One that does
// not return, because a system call hangs, is left behind: it holds nothing up.
func (c Check) bounded(ctx context.Context, l *look) []Finding {
	limit := c.Limit
	if limit == 0 {
		limit = checkTime
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errSlow{limit})
	defer cancel()
	done := make(chan []Finding, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil { // one wrong check must not take the others with it
				done <- []Finding{{Status: Fail, Why: fmt.Sprintf("berth itself failed here: %v at %s", r, panicPlace()),
					Do: "please report this"}}
			}
		}()
		done <- c.run(ctx, l)
	}()
	select {
	case got := <-done:
		return got
	case <-ctx.Done():
	}
	grace := time.NewTimer(graceTime)
	defer grace.Stop()
	select {
	case got := <-done:
		return got
	case <-grace.C:
		return []Finding{{Status: Fail, Why: "no answer: " + causeOf(ctx).Error(),
			Do: "something that it looks at hangs: a file server or a service that is gone"}}
	}
}

// panicPlace is the line of our own code that panicked.
func panicPlace() string {
	for line := range strings.Lines(string(debug.Stack())) {
		if s := strings.TrimSpace(line); strings.Contains(s, "/internal/doctor/") && !strings.Contains(s, "/run.go:") ||
			strings.Contains(s, "/examine/") {
			s, _, _ = strings.Cut(s, " +")
			return s[strings.LastIndex(s, "/")+1:]
		}
	}
	return "an unknown line"
}

// errSlow is that something took longer than it may.
type errSlow struct{ limit time.Duration }

func (e errSlow) Error() string { return "it took longer than " + e.limit.String() }

func causeOf(ctx context.Context) error {
	err := context.Cause(ctx)
	var slow errSlow
	if errors.As(err, &slow) {
		return slow
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("the time for all checks was over")
	}
	return err
}

// askTime bounds one question to a program: all checks ask at once, on a machine
// that may be busy.
const askTime = 10 * time.Second

// newLook prepares what checks share. What several need is asked once.
func newLook(ctx context.Context, w Where) *look {
	l := &look{Where: w, limit: askTime}
	l.ask = func(ctx context.Context, env []string, argv ...string) (string, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, l.limit, errSlow{l.limit})
		defer cancel()
		out, err := run.Output(ctx, w.On, jobs.Cmd{Argv: argv, Dir: "/", Env: env})
		return string(out), explain(ctx, argv[0], err)
	}
	l.slurm = examine.New(ctx, examine.Machine{Look: l.look, Ask: l.ask, User: l.user, Profile: w.Profile})
	l.mods = sync.OnceValues(func() (modules, error) { return l.findModules(ctx) })
	l.box = boxes.New(ctx, l.boxMachine())
	return l
}

// explain puts a program's failure into few words: its own, if it had any.
func explain(ctx context.Context, program string, err error) error {
	if err == nil {
		return nil
	}
	name := program[strings.LastIndexByte(program, '/')+1:]
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", name, causeOf(ctx))
	}
	var failed *run.Error
	if errors.As(err, &failed) && failed.Err == nil {
		said := finding.LastLine(failed.Stderr)
		if said == "" {
			said = failed.Exit.String()
		}
		return fmt.Errorf("%s: %s", name, strings.TrimPrefix(said, name+": "))
	}
	return err
}

// oneLine keeps a finding on its line.
func oneLine(s string) string {
	const most = 600
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > most {
		s = string(r[:most]) + "..."
	}
	return s
}

func one(s Status, why, do string) []Finding { return finding.One(s, why, do) }

func with(f Finding, data ...string) Finding { return finding.With(f, data...) }

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
