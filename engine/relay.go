package engine

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"berth/internal/network/wayout"
	"berth/internal/node/allocations"
	"berth/internal/node/join"
	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/jobs"
)

// RelayOptions say for whom a relay is.
type RelayOptions struct {
	// Job is the id of the one job that it is for; "" is all jobs and environments of the
	// state directory.
	Job string
	// Idle ends it when no job and no environment has needed it for so long; 0 is at once.
	Idle time.Duration
	// Say is told, for people, what comes and goes; it may be nil.
	Say func(text string)
	// Changed is told for whom it is at the moment; it may be nil.
	Changed func(serves []string)
}

// Times of a relay.
const (
	relayLook  = 2 * time.Second // between looks for who needs it
	relayAgain = 5 * time.Second // after a way that broke; each time twice as long
	relayMost  = time.Minute
)

// Relay has the connections of jobs and environments whose network goes by way of the
// login node (`via = "login"`) made from this process, until none needs it any more, or
// ctx ends. It comes to a supervisor on this machine by its socket, to one in an
// allocation by a step of the scheduler, and has the relay of a job behind a login host
// run there.
func (e *Engine) Relay(ctx context.Context, o RelayOptions) error {
	if o.Say == nil {
		o.Say = func(string) {}
	}
	if o.Changed == nil {
		o.Changed = func([]string) {}
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &relays{e: e, o: o, on: map[string]*relayed{}}
	defer r.working.Wait()
	defer cancel()
	needed := e.Now()
	for {
		wants, err := e.relayWants(o.Job)
		if len(wants) > 0 || err != nil {
			needed = e.Now()
		} else if e.Now().Sub(needed) >= o.Idle {
			return nil
		}
		if err != nil {
			r.say(err)
		}
		r.follow(ctx, wants)
		if err := e.Sleep(ctx, relayLook); err != nil {
			return err
		}
	}
}

// relayWant is a job or environment whose network goes by a relay.
type relayWant struct {
	name string // for people
	dir  string // where its supervisor says that it waits for one; "" is on another machine
	// reach connects to the supervisor; nil is that it does not run yet. What it returns
	// is a relay's stream, or, where serves is false, one of a relay elsewhere.
	reach func(ctx context.Context) (rw io.ReadWriteCloser, serves bool, err error)
}

// relayWants returns those that need a relay now or may soon.
func (e *Engine) relayWants(job string) (out []relayWant, err error) {
	var recs []*jobs.Record
	if job != "" {
		r, err := e.Store.Load(job)
		if err != nil {
			return nil, err
		}
		recs = []*jobs.Record{r}
	} else if recs, err = e.Store.ListOpen(); err != nil && recs == nil {
		return nil, err
	}
	for _, r := range recs {
		if r.Spec.Network.Via == jobs.ViaLogin && !jobs.StateOf(r).Final() {
			out = append(out, e.relayJob(r))
		}
	}
	if job != "" {
		return out, nil
	}
	all, err := e.Environments()
	for _, v := range all {
		if v.Spec.Network.Via != jobs.ViaLogin || v.Spec.Login != nil {
			continue
		}
		if st, err := wayout.Peek(v.dir); err == nil && st != nil && !st.Gone(lease.Self()) {
			out = append(out, relayWant{name: "environment " + v.Spec.Name, dir: v.dir, reach: v.relay})
		}
	}
	return out, err
}

func (e *Engine) relayJob(r *jobs.Record) relayWant {
	w := relayWant{name: "job " + jobs.Short(r.Spec.ID)}
	a := r.Current()
	if a == nil || a.Claim == nil || a.Over() {
		return w
	}
	if r.Spec.Login == nil {
		w.dir = a.Dir
	}
	w.reach = func(ctx context.Context) (io.ReadWriteCloser, bool, error) { return e.relayReach(ctx, r) }
	return w
}

// relayReach connects to the runner of a job.
func (e *Engine) relayReach(ctx context.Context, r *jobs.Record) (io.ReadWriteCloser, bool, error) {
	v, a := &View{Record: r}, r.Current()
	at, err := e.selectSite(ctx, &r.Spec)
	if err != nil {
		return nil, false, err
	}
	if r.Spec.Login != nil { // it is the login node's network
		on, c, err := e.starterOf(v, jobs.Cmd{Argv: []string{at.node, verbRelay, "--attached", "--home", r.Spec.LoginHome, "--job", r.Spec.ID}})
		if err != nil {
			return nil, false, err
		}
		rw, _, err := join.Dial(ctx, on, c, func(string) {})
		return rw, false, err
	}
	sc, err := e.scheduler(r.Spec.Scheduler)
	if err != nil {
		return nil, false, err
	}
	if c, ok := sc.(jobs.Cluster); ok && a.Submitted != nil && !near(a.Dir) {
		rw, err := relayStep(ctx, c, a.Submitted.Handle, a.Claim.Node, at.node, a.Dir)
		return rw, true, err
	}
	f, err := wayout.Join(ctx, a.Dir)
	return f, true, err
}

// relay connects to the keeper of an environment.
func (v *Environment) relay(ctx context.Context) (io.ReadWriteCloser, bool, error) {
	if h := allocations.Handle(v.dir); v.Spec.Scheduler != "" && h != nil && !near(v.dir) {
		sc, _, err := v.e.holder(&v.Spec)
		if err != nil {
			return nil, false, err
		}
		node, err := v.e.Node()
		if err != nil {
			return nil, false, err
		}
		rw, err := relayStep(ctx, sc, *h, "", node, v.dir)
		return rw, true, err
	}
	f, err := wayout.Join(ctx, v.dir)
	return f, true, err
}

// near tells whether the supervisor of the attempt or environment in dir is on this machine.
func near(dir string) bool {
	st, err := wayout.Peek(dir)
	return err == nil && st != nil && st.Near(lease.Self())
}

// relayStep comes to a supervisor in an allocation.
func relayStep(ctx context.Context, sc jobs.Cluster, h jobs.Handle, node, program, dir string) (io.ReadWriteCloser, error) {
	ctx, cancel := context.WithTimeout(ctx, joinWait)
	defer cancel()
	rw, _, err := join.Dial(ctx, run.Local{}, sc.Step(h, node, join.RelayCommand(program, dir)), func(string) {})
	if err != nil {
		err, _ = join.Refused(err, sc, h)
	}
	return rw, err
}

// relays are what a relay serves.
type relays struct {
	e *Engine
	o RelayOptions

	working sync.WaitGroup
	mu      sync.Mutex
	on      map[string]*relayed // by name
	said    string              // the last error
}

type relayed struct {
	ended bool // its goroutine
	open  bool // it is served
	pause time.Duration
	next  time.Time // not before this it is tried again
}

// follow begins what is due, and forgets those that need no relay any more.
func (r *relays) follow(ctx context.Context, wants []relayWant) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, named := r.e.Now(), map[string]bool{}
	for _, w := range wants {
		named[w.name] = true
		if w.reach == nil {
			continue
		}
		d := r.on[w.name]
		if d != nil && (!d.ended || now.Before(d.next)) {
			continue
		}
		if w.dir != "" {
			// Another relay may be there.
			if st, err := wayout.Peek(w.dir); err != nil || st == nil || st.Relay != nil {
				continue
			}
		}
		if d == nil {
			d = &relayed{}
			r.on[w.name] = d
		}
		d.ended = false
		r.working.Go(func() { r.serve(ctx, w, d) })
	}
	for name, d := range r.on {
		if !named[name] && d.ended {
			delete(r.on, name)
		}
	}
}

// serve is the relay of one supervisor, until the way to it ends.
func (r *relays) serve(ctx context.Context, w relayWant, d *relayed) {
	rw, serves, err := w.reach(ctx)
	if err == nil {
		r.change(func() { d.open, d.pause = true, 0 })
		r.o.Say("relay of " + w.name + ": connected")
		if serves {
			err = wayout.Serve(ctx, rw, wayout.Node())
		} else {
			err = held(ctx, rw)
		}
		if ctx.Err() == nil {
			r.o.Say("relay of " + w.name + ": the connection has ended")
		}
	}
	if err != nil && ctx.Err() == nil {
		r.say(&jobs.Error{Kind: jobs.KindOf(err), Msg: "relay of " + w.name, Err: err, Hint: jobs.HintOf(err)})
	}
	r.change(func() {
		d.pause = min(max(2*d.pause, relayAgain), relayMost)
		d.ended, d.open, d.next = true, false, r.e.Now().Add(d.pause)
	})
}

// held keeps the relay on a login host, which ends with this stream.
func held(ctx context.Context, rw io.ReadWriteCloser) error {
	stop := context.AfterFunc(ctx, func() { _ = rw.Close() })
	defer stop()
	_, err := io.Copy(io.Discard, rw)
	_ = rw.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return err
}

// change changes one of them, and tells whom it serves then.
func (r *relays) change(do func()) {
	r.mu.Lock()
	defer r.mu.Unlock() // what is told last is so
	do()
	var open []string
	for name, d := range r.on {
		if d.open {
			open = append(open, name)
		}
	}
	r.o.Changed(open)
}

// say tells an error once.
func (r *relays) say(err error) {
	text := err.Error()
	if h := jobs.HintOf(err); h != "" {
		text += "; " + h
	}
	r.mu.Lock()
	again := text == r.said
	r.said = text
	r.mu.Unlock()
	if !again {
		r.o.Say(text)
	}
}

// A RelayNeed is a job or environment whose network goes by a relay.
type RelayNeed struct {
	Name  string    `json:"name"` // "job 0a1b2c3d", "environment train"
	Host  string    `json:"host,omitempty"`
	PID   int       `json:"pid,omitempty"` // of the relay; 0 is none
	Since time.Time `json:"since,omitzero"`
	// Runs says that its supervisor is there, and waits where there is no relay.
	Runs bool `json:"runs"`
}

// RelayNeeds returns those that have not ended. Of jobs behind a login host it is not known
// here whether they have a relay.
func (e *Engine) RelayNeeds() ([]RelayNeed, error) {
	wants, err := e.relayWants("")
	var out []RelayNeed
	for _, w := range wants {
		n := RelayNeed{Name: w.name, Runs: w.reach != nil}
		if w.dir != "" {
			n.put(w.dir)
		}
		out = append(out, n)
	}
	return out, err
}

func (n *RelayNeed) put(dir string) {
	st, err := wayout.Peek(dir)
	if err != nil || st == nil {
		n.Runs = false
		return
	}
	n.Since = st.Since
	if st.Relay != nil {
		n.Host, n.PID = st.Relay.Host, st.Relay.PID
	}
}

// WaitsForRelay returns since when a running job has no relay; zero is that it has one, or needs none.
func WaitsForRelay(r *jobs.Record) time.Time {
	a := r.Current()
	if r.Spec.Network.Via != jobs.ViaLogin || a == nil || a.Claim == nil || a.Over() {
		return time.Time{}
	}
	if st, err := wayout.Peek(a.Dir); err == nil && st != nil && st.Relay == nil {
		return st.Since
	}
	return time.Time{}
}
