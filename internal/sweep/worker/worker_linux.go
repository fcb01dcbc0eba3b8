package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	nodejob "berth/internal/node/batch"
	"berth/internal/sweep"
	"berth/internal/sweep/claims"
	"berth/internal/sweep/command"
	"berth/internal/sweep/journal"
	"berth/internal/sweep/metric"
	"berth/internal/sys/disk"
	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
)

// Config says what a worker runs, and how.
type Config struct {
	Sweep *sweep.Sweep
	Slots int       // tasks at once; 0 is what the sweep says
	Env   []string  // of every task
	Ends  time.Time // when the scheduler ends its job; zero is not known
	Job   string    // the scheduler's name for that; "" is none
	// Scheduler begins the steps of tasks that have ranks; nil is that there are none.
	Scheduler jobs.NodeScheduler
	Keys      []string // variables of the program of a service, for that alone
	// Left tells whether the sandbox may run still whose keeper had its records in dir.
	Left func(dir string, now time.Time) bool
	Beat time.Duration
	Log  func(format string, args ...any) // what a person may want to know
}

// Times.
const (
	syncEvery = time.Second
	grace     = 5 * time.Second       // between TERM and KILL
	ahead     = time.Second           // for which a worker has tasks waiting
	fastest   = 20 * time.Millisecond // between two looks for a batch, when others have all
)

// rest pauses for so long, or up to a quarter more or less: workers that found nothing at
// one moment do not look at one moment again.
func rest(ctx context.Context, pause time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(pause*3/4 + rand.N(pause/2)):
	}
}

// slower is the next pause between two such looks: of five in a beat, as the silence of another
// worker is counted by them.
func (w *worker) slower(pause time.Duration) time.Duration {
	return min(2*pause, max(lease.BeatOf(w.Beat)/5, fastest))
}

// ErrFenced is that the worker could not say for so long that it lives that others may
// take what it has.
var ErrFenced = errors.New("the heartbeat could not be written")

type worker struct {
	Config
	me      uint32
	dir     string
	command *command.Template
	journal *journal.Writer
	boards  []*claims.Board // of each round
	from    []int           // where to look for a batch of each
	gone    func(uint32) bool
	tasks   chan *task
	ends    chan *batch  // of which all tasks have ended
	mean    atomic.Int64 // of what tasks took, ns; 0 is not known yet
	paths   sync.Map     // programs by their names
	env     []string
	passed  passed
	done    atomic.Int64
	claims  atomic.Int64 // how long it made claims, and looked for some, ns
	room    *room
	memory  run.Memory
	place   *place // where tasks are contained; nil is that they have the rights of the worker
	times   times
	busy    atomic.Int64 // tasks that were handed out and have not ended
	stops   time.Time    // when it ends what still runs; zero is never
	failed  chan error   // why it cannot go on
	stop    context.CancelCauseFunc

	// What [worker.held] has seen, and what is counted for it.
	paused       atomic.Bool
	allowed      atomic.Int64 // tasks at once; below 0 is any number
	running      atomic.Int64
	results, bad atomic.Int64
	throttle     int
	shared       time.Time
	isIdle       bool
	firsts       *claims.Board // of the canary or the pilot; nil is none

	liveMu    sync.Mutex
	live      map[*keeper]bool // of tasks that run
	mine      []*batch         // that have no end yet; liveMu
	files     atomic.Int64     // of metrics
	noMetrics sync.Once
}

// batch is one that is being run.
type batch struct {
	*claims.Held
	round   int
	first   bool         // of the canary or the pilot
	left    atomic.Int64 // tasks without an end, and one while they are handed out
	number  uint16       // the generation of its records
	share   share
	dropped atomic.Bool // some were not run
}

// generation is what its records have.
func (b *batch) generation() uint16 {
	if b.first {
		return 0
	}
	return b.number
}

type task struct {
	command.Task
	batch  *batch
	deaths uint8
	tries  journal.Tries
	open   bool // it has failed, is to be tried again, and has not begun since
	has    taken
	place  uint32 // in its batch's round
}

// Run works until every task of the sweep has a result, or ctx ends: then what runs
// is ended, and what it had is given back.
func Run(ctx context.Context, c Config) error {
	if c.Slots == 0 {
		c.Slots = max(c.Sweep.Spec.Slots, 1)
	}
	if c.Scheduler == nil {
		c.Scheduler = nodejob.Of("")
	}
	if c.Left == nil {
		c.Left = func(string, time.Time) bool { return false }
	}
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
	if c.Sweep.Cancelled() || c.Sweep.Paused() != nil {
		return nil
	}
	own := *c.Sweep // rounds that are made meanwhile are read
	own.Spec.Worker = timed(own.Spec.Worker, c.Ends, time.Now())
	c.Sweep = &own
	w := &worker{Config: c, tasks: make(chan *task, c.Sweep.Spec.Batch), ends: make(chan *batch, 64), live: map[*keeper]bool{}, failed: make(chan error, 1)}
	var err error
	if w.command, err = c.Sweep.Command(); err != nil {
		return err
	}
	if w.me, w.dir, err = c.Sweep.NewWorker(); err != nil {
		return fmt.Errorf("begin a worker: %w", err)
	}
	self := lease.Self()
	w.stops = stopAt(time.Now(), c.Ends)
	w.room = newRoom(&c.Sweep.Spec, append(c.Env[:len(c.Env):len(c.Env)], envOf(c.Sweep.Spec.Worker)...))
	if err := w.record(claims.WorkerFile, about{Process: self, Began: time.Now().UTC(), Job: c.Job,
		Ends: c.Ends, Place: placeOf(c.Sweep.Spec.Worker)}); err != nil {
		return err
	}
	if err := store.Beat(w.dir, 0, time.Now()); err != nil {
		return err
	}
	if w.journal, err = journal.Create(w.dir); err != nil {
		return err
	}
	watch := &claims.Watcher{Dir: c.Sweep.WorkerDir, Me: self, Patience: lease.PatienceFor(c.Beat)}
	w.gone = watch.Gone
	w.allowed.Store(-1)
	w.held(time.Now())
	useless := func(err error) error {
		return errors.Join(err, w.journal.Close(), w.record(claims.EndFile, map[string]any{"version": 1, "why": err.Error(), "time": time.Now().UTC()}))
	}
	if w.passed, err = takePassed(c.Sweep); err != nil {
		if !w.left() { // whoever had the last result has removed them
			return errors.Join(w.journal.Close(), w.record(claims.EndFile, map[string]any{"version": 1, "tasks": 0, "time": time.Now().UTC()}))
		}
		return useless(err)
	}
	if p := c.Sweep.Spec.Worker; contained(p) {
		if w.place, err = openPlace(ctx, w.dir, &c, w.room.cores, w.passed.keys); err == nil {
			err = w.record(sweep.OwnFile, w.place.own)
		}
		if err != nil {
			return useless(err)
		}
		defer w.place.close(w.Log)
		c.Env = nil // what is the container's own is its own
	} else if p != nil {
		c.Env = append(c.Env[:len(c.Env):len(c.Env)], p.Env...)
	}
	w.env = append(slices.Concat(c.Env, w.passed.env), "BERTH_SWEEP="+c.Sweep.Spec.Name)
	return errors.Join(w.work(ctx), w.forget())
}

func (w *worker) record(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = store.CreateOnce(filepath.Join(w.dir, name), append(b, '\n'))
	return err
}

// work runs the slots and what stands beside them.
func (w *worker) work(ctx context.Context) error {
	ctx, w.stop = context.WithCancelCause(ctx)
	defer w.stop(nil)
	beside, end := context.WithCancel(context.Background())
	var helpers, slots, closing sync.WaitGroup
	helpers.Go(func() { w.beat(beside) })
	helpers.Go(func() { w.sync(beside, ctx) })
	helpers.Go(func() { w.end(beside) })
	closing.Go(w.close)
	for range w.Slots {
		slots.Go(func() { w.slot(ctx) })
	}
	helpers.Go(func() { w.splits(beside, ctx) })
	err := w.claim(ctx)
	w.idle(false)
	close(w.tasks)
	slots.Wait()
	close(w.ends)
	closing.Wait()
	end()
	helpers.Wait()
	last := map[string]any{"version": 1, "tasks": w.done.Load()}
	select {
	case failed := <-w.failed:
		err = errors.Join(failed, err)
		last["why"] = failed.Error()
	default:
	}
	err = errors.Join(err, w.journal.Close())
	if errors.Is(context.Cause(ctx), ErrFenced) {
		return errors.Join(ErrFenced, err)
	}
	if errors.Is(context.Cause(ctx), errTime) {
		w.Log("the time of its job is nearly over: what had no result was given back")
	}
	last["time"], last["claims_ns"] = time.Now().UTC(), w.claims.Load()
	return errors.Join(err, w.record(claims.EndFile, last))
}

// fail ends the worker: nothing that it does can be recorded.
func (w *worker) fail(err error) {
	select {
	case w.failed <- err:
	default:
	}
	w.stop(err)
}

// leave ends the worker when what runs has ended: others may have what it needs.
func (w *worker) leave(err error) {
	select {
	case w.failed <- err:
	default:
	}
	w.paused.Store(true)
}

// beat says that it lives. Where that was not possible for 12 beats, others may soon
// take what it has: its tasks are ended.
func (w *worker) beat(ctx context.Context) {
	every := lease.BeatOf(w.Beat)
	last := time.Now()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
		if err := store.Beat(w.dir, n, time.Now()); err == nil {
			last = time.Now()
		} else if time.Since(last) > 12*every {
			w.Log("the heartbeat could not be written for %s: %v", time.Since(last).Round(time.Second), err)
			w.stop(ErrFenced)
			return
		}
	}
}

// sync makes results durable now and then, and sees that the sweep was cancelled.
func (w *worker) sync(ctx, run context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(syncEvery):
		}
		if err := w.journal.Sync(); err != nil {
			w.fail(err)
			return
		}
		if !errors.Is(context.Cause(run), ErrFenced) {
			if err := w.progress(time.Now()); err != nil {
				w.fail(err)
				return
			}
		}
		w.held(time.Now())
		if run.Err() == nil && w.Sweep.CancelledFor(w.me) {
			w.Log("the sweep was cancelled")
			w.stop(context.Canceled)
		}
	}
}

// claim takes batches and hands their tasks out, until there are no more.
func (w *worker) claim(ctx context.Context) error {
	if len(w.Sweep.First()) > 0 {
		if err := w.first(ctx); err != nil {
			return err
		}
	}
	pause := fastest
	for w.hungry(ctx) {
		h, round, open, err := w.next()
		if err != nil {
			return err
		}
		if h == nil && open == 0 {
			return nil
		}
		w.idle(h == nil)
		if h == nil {
			rest(ctx, pause)
			pause = w.slower(pause)
			continue
		}
		pause = fastest
		if err := w.hand(ctx, &batch{Held: h, round: round}, w.Sweep.Round(round).Part(h.Lo, h.Hi)); err != nil {
			return err
		}
	}
	return nil
}

// next claims a batch of the first round that has one. Without one it returns nil, and
// how many are held by others.
func (w *worker) next() (h *claims.Held, round, open int, err error) {
	defer w.claiming(time.Now())
	if _, err := w.Sweep.Reload(); err != nil {
		return nil, 0, 0, err
	}
	for i := range w.Sweep.Rounds() {
		if i == len(w.boards) {
			w.boards = append(w.boards, claims.New(w.Sweep.Claims(i+1), w.me, w.gone))
			w.from = append(w.from, int(w.me-1)*61) // workers begin apart from each other
		}
		h, n, err := w.boards[i].Next(w.from[i])
		if h != nil || err != nil {
			if h != nil {
				w.from[i] = (int(h.Lo)-1)/w.Sweep.Round(i+1).Batch + 1
			}
			return h, i + 1, 0, err
		}
		open += n
	}
	return nil, 0, open, nil
}

// claiming counts the time since then as that of claims.
func (w *worker) claiming(since time.Time) { w.claims.Add(int64(time.Since(since))) }

// hungry waits until what was claimed will be begun within a moment, and tells whether
// there is to be more. A claim takes some writes to a disk, which tasks do not wait for.
func (w *worker) hungry(ctx context.Context) bool {
	for ctx.Err() == nil && !w.paused.Load() && !w.late(time.Now()) {
		if w.allowed.Load() == 0 {
			w.idle(false) // what others would split for it, it could not run
		}
		queued := int64(len(w.tasks))
		// What waits here while all slots are taken, others could run: only short tasks do.
		mean := w.mean.Load()
		if w.allowed.Load() != 0 && (w.busy.Load() < int64(w.Slots) || mean > 0 && (queued+1)*mean/int64(w.Slots) < int64(ahead)) {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(ahead / 50):
		}
	}
	return ctx.Err() == nil && !w.paused.Load() && !w.late(time.Now())
}

// took notes how long a task took.
func (w *worker) took(d time.Duration) {
	mean := w.mean.Load()
	if mean == 0 {
		mean = int64(d)
	}
	w.mean.Store(max(mean+(int64(d)-mean)/16, 1))
	w.times.add(d)
}

// hand runs a batch: first what former holders have done is recorded again.
func (w *worker) hand(ctx context.Context, b *batch, numbers sweep.Numbers) error {
	b.left.Store(1)
	b.number = uint16(b.Generation)
	b.share.hi = b.Hi
	place := b.Lo - 1
	past, err := w.former(b.Held, b.round, numbers)
	if err != nil {
		return err
	}
	w.shares(b)
	defer w.ended(b)
	var suspects []*task // under which workers have ended
	err = w.Sweep.Pick(numbers, func(t command.Task) error {
		place++
		p := past[uint32(t.Number)]
		if p != nil && p.result != nil {
			r := *p.result
			r.Kind, r.Generation = journal.Adopted, b.generation()
			return w.journal.Add(r)
		}
		if w.Sweep.Superseded(b.round, t.Number) {
			return nil
		}
		n := &task{Task: t, batch: b, place: place}
		if p != nil {
			n.deaths, n.tries = p.deaths, p.tries
		}
		if n.deaths > 0 {
			suspects = append(suspects, n)
			return nil
		}
		return w.give(ctx, n)
	})
	for _, t := range suspects {
		if err != nil {
			break
		}
		if int(t.deaths) >= w.Sweep.Spec.MostDeaths(t.tries) {
			if !b.share.begin(t.place) {
				continue
			}
			w.Log("task %d is set aside: it killed its worker %d times", t.Number, t.deaths)
			r := journal.Record{Kind: journal.End, State: journal.SetAside, Round: uint16(b.round), Generation: b.generation(),
				Task: uint32(t.Number), Deaths: t.deaths, Tries: t.tries, Began: time.Now(), Worker: w.me}
			if err = w.journal.Add(r); err == nil {
				w.judge(t, r)
			}
			continue
		}
		err = w.give(ctx, t)
	}
	if err != nil {
		b.dropped.Store(true)
	}
	return err
}

// give waits for a slot.
func (w *worker) give(ctx context.Context, t *task) error {
	if ctx.Err() != nil || w.paused.Load() || t.batch.dropped.Load() {
		t.batch.dropped.Store(true)
		return nil
	}
	t.batch.left.Add(1)
	w.busy.Add(1)
	select {
	case w.tasks <- t:
	case <-ctx.Done():
		w.busy.Add(-1)
		t.batch.left.Add(-1)
		t.batch.dropped.Store(true)
	}
	return nil
}

// past is what former holders have recorded of a task.
type past struct {
	result     *journal.Record
	deaths     uint8
	tries      journal.Tries
	generation uint16
}

// former reads the results of those who had the batch before. What one of them has
// begun and not ended, it may have ended by.
func (w *worker) former(h *claims.Held, round int, numbers sweep.Numbers) (map[uint32]*past, error) {
	all := map[uint32]*past{}
	seen := map[uint32]bool{}
	holders := h.Former
	first := w.firsts != nil && round == 1
	if first && numbers.Meet(w.Sweep.First()) {
		more, err := w.firsts.Holders()
		if err != nil {
			return nil, err
		}
		holders = append(holders[:len(holders):len(holders)], more...)
	}
	for _, f := range holders {
		if seen[f] { // this worker is among them where it gave the batch back
			continue
		}
		seen[f] = true
		open := map[uint32]uint8{} // that it has begun: their deaths until then
		_, err := journal.Read(filepath.Join(w.Sweep.WorkerDir(f), journal.ResultsFile), 0, func(r journal.Record) {
			if int(r.Round) != round || int(r.Generation) >= h.Generation || !numbers.Has(int(r.Task)) {
				return
			}
			p := all[r.Task]
			if p == nil {
				p = &past{}
				all[r.Task] = p
			}
			if r.Tries.Sum() > p.tries.Sum() {
				p.tries = r.Tries
			}
			switch r.Kind {
			case journal.Start:
				open[r.Task] = r.Deaths
			case journal.Wrote:
			case journal.Tried:
				delete(open, r.Task)
				p.deaths = max(p.deaths, r.Deaths) // of sandboxes under it, without that of a worker
			case journal.End, journal.Adopted:
				delete(open, r.Task)
				if p.result == nil || r.Generation > p.generation {
					p.result, p.generation = &r, r.Generation
				}
			}
		})
		if errors.Is(err, journal.ErrDamaged) {
			w.Log("%v; tasks behind that run again", err)
		} else if err != nil {
			return nil, err
		}
		for t, deaths := range open {
			all[t].deaths = max(all[t].deaths, deaths+1)
		}
		// They are to be there when the batch is closed, too.
		if err := disk.SyncFile(filepath.Join(w.Sweep.WorkerDir(f), journal.ResultsFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return all, nil
}

// ended counts the end of a task.
func (w *worker) ended(b *batch) {
	if b.left.Add(-1) == 0 && !w.unshare(b) {
		w.ends <- b
	}
}

// close closes or gives back the batches whose tasks have ended, those that wait with
// one sync.
func (w *worker) close() {
	for b := range w.ends {
		all := []*batch{b}
		for more := true; more; {
			select {
			case b, ok := <-w.ends:
				if more = ok; ok {
					all = append(all, b)
				}
			default:
				more = false
			}
		}
		if err := w.journal.Sync(); err != nil {
			w.fail(err)
			continue
		}
		for _, b := range all {
			end := b.Close
			if b.dropped.Load() {
				end = b.Release
			}
			began := time.Now()
			lost, err := end()
			w.claiming(began)
			if err != nil {
				w.fail(err)
			} else if lost {
				w.Log("tasks %d to %d were taken over by another worker", b.Lo, b.Hi)
			}
		}
	}
}

// slot runs one task after the other.
func (w *worker) slot(ctx context.Context) {
	q, err := run.NewQuick()
	if err != nil {
		w.fail(err)
		return
	}
	defer q.Close()
	m := &metrics{w: w}
	defer m.close()
	for t := range w.tasks {
		for again := true; again; {
			var err error
			if again, err = w.try(ctx, q, m, t); err != nil {
				again = false
				t.batch.dropped.Store(true)
				w.fail(fmt.Errorf("record task %d: %w", t.Number, err))
			}
		}
		w.busy.Add(-1)
		w.ended(t.batch)
	}
}

// try runs a task when there is room for it, and tells whether it is to be tried again. An
// error is that it could not be recorded.
func (w *worker) try(ctx context.Context, q *run.Quick, m *metrics, t *task) (again bool, err error) {
	t.has = w.room.take(w.Sweep.Spec.ShareOf(t.Task, t.tries))
	defer func() { w.room.give(t.has) }()
	if !w.enter(ctx) {
		return false, w.drop(ctx, t)
	}
	defer w.running.Add(-1)
	return w.run(ctx, q, m, t)
}

// drop leaves a task to whoever has its batch next.
func (w *worker) drop(ctx context.Context, t *task) error {
	t.batch.dropped.Store(true)
	if !t.open || errors.Is(context.Cause(ctx), ErrFenced) {
		return nil
	}
	return w.journal.Add(journal.Record{Kind: journal.Tried, State: journal.Waiting, Round: uint16(t.batch.round), Generation: t.batch.generation(),
		Task: uint32(t.Number), Deaths: t.deaths, Tries: t.tries, Began: time.Now(), Worker: w.me})
}

// run runs a task once.
func (w *worker) run(ctx context.Context, q *run.Quick, m *metrics, t *task) (again bool, err error) {
	if ctx.Err() != nil || w.late(time.Now()) {
		return false, w.drop(ctx, t)
	}
	if !t.batch.share.begin(t.place) {
		return false, nil // another worker has it
	}
	r := journal.Record{Kind: journal.Start, State: journal.Running, Round: uint16(t.batch.round), Generation: t.batch.generation(),
		Task: uint32(t.Number), Deaths: t.deaths, Tries: t.tries, Began: time.Now(), Worker: w.me, MilliCPUs: w.cpus(t.has)}
	if err := w.journal.Add(r); err != nil {
		return false, err
	}
	t.open = false
	out := &keeper{w: w.journal, task: r.Task, generation: r.Generation, start: r, metrics: m, seen: r.Began.Add(time.Second - progressEvery)}
	w.beginsLive(out)
	end, err := w.start(ctx, q, t, out)
	w.endsLive(out)
	if errors.Is(err, errBox) {
		t.batch.dropped.Store(true)
		if !told(ctx) {
			w.fail(err)
			return false, nil // whoever has it next finds a start without an end
		}
		end.Stopped, err = true, nil
	}
	gone := errors.Is(err, errSandbox)
	if gone {
		err = nil
		t.deaths++
	}
	if errors.Is(err, errNoPlace) {
		if !end.Stopped {
			w.leave(err)
		}
		end.Stopped, err = true, nil
	}
	r.Kind, r.Took, r.Deaths = journal.End, time.Since(r.Began), t.deaths
	if gone {
		r.State = journal.SetAside
	} else if err != nil {
		r.State, r.Code = journal.NoStart, 126
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, exec.ErrNotFound) {
			r.Code = 127
		}
		if err := out.add(2, []byte("berth: "+err.Error()+"\n")); err != nil {
			return false, err
		}
	} else {
		r.Code, r.Signal, r.CPU, r.Memory = uint8(end.Exit.Code), uint8(end.Exit.Signal), end.CPU, end.Memory
		r.State = stateOf(end)
	}
	if err := errors.Join(end.Err, out.finish()); err != nil {
		return false, err
	}
	r.Output = out.last
	w.took(r.Took)
	if end.Stopped {
		r.Kind, r.State = journal.Tried, journal.Waiting // it is to run again, and is not to blame
		t.batch.dropped.Store(true)
		if errors.Is(context.Cause(ctx), ErrFenced) {
			return false, nil // it says nothing more
		}
		w.done.Add(1)
		return false, w.journal.Add(r)
	}
	if gone && int(t.deaths) < w.Sweep.Spec.MostDeaths(t.tries) {
		r.Kind, r.State, t.open = journal.Tried, journal.Waiting, true
		return true, w.journal.Add(r)
	}
	if t.tries, again = w.Sweep.Spec.Again(t.Task, r); again {
		r.Kind, r.Tries, t.open = journal.Tried, t.tries, true
		return true, w.journal.Add(r)
	}
	w.done.Add(1)
	if err := w.journal.Add(r); err != nil {
		return false, err
	}
	w.judge(t, r)
	return false, nil
}

// cpus is how many CPUs a task has, in thousandths: what it asks for, or its part of the
// worker's.
func (w *worker) cpus(has taken) uint32 {
	switch {
	case has.cpus > 0:
		return uint32(has.cpus) * 1000
	case w.Sweep.Spec.Sandboxes():
		return uint32(max(w.place.sized(has.share).Resources.CPUs, 1)) * 1000
	}
	return uint32(max(w.room.most.CPUs, 1)) * 1000 / uint32(max(w.Sweep.Spec.Slots, 1))
}

func stateOf(end run.QuickEnd) journal.State {
	switch {
	case end.Over:
		return journal.OverMemory
	case end.TimedOut:
		return journal.TimedOut
	case end.Exit.Signal != 0:
		return journal.Killed
	case end.Exit.Code != 0:
		return journal.Failed
	}
	return journal.OK
}

// start runs the task's command.
func (w *worker) start(ctx context.Context, q *run.Quick, t *task, out *keeper) (run.QuickEnd, error) {
	var peak int64 // of all its processes, where they are watched
	argv, err := w.command.Command(t.Task)
	if err != nil {
		return run.QuickEnd{}, err
	}
	c := run.QuickCmd{Argv: argv, Env: append(w.env[:len(w.env):len(w.env)], t.Env()...),
		Limit: w.Sweep.Spec.LimitOf(t.tries), Grace: grace, Output: out.add}
	if w.place != nil {
		c.Env = append(c.Env, w.room.visible(t.has)...)
		c.Dir = w.Sweep.Spec.Worker.Dir
		return w.place.run(ctx, c, t.has, w.Log)
	}
	c.Env = append(c.Env, w.room.visible(t.has)...)
	c.CPUs = t.has.on
	if t.has.share.Ranks > 0 {
		return w.step(ctx, q, t, c, out)
	}
	if most := t.has.share.Memory; most > 0 {
		c.Over = func(group int) bool {
			now := w.memory.Group(group)
			peak = max(peak, now)
			return now > int64(most)
		}
	}
	end, err := w.here(ctx, q, c, out)
	end.Memory = max(end.Memory, peak)
	return end, err
}

// here runs a command of a task beside the worker.
func (w *worker) here(ctx context.Context, q *run.Quick, c run.QuickCmd, out *keeper) (end run.QuickEnd, err error) {
	c.Dir = w.Sweep.Spec.Workdir
	if c.Path, err = w.program(c.Argv[0]); err != nil {
		return end, err
	}
	out.mu.Lock() // what runs may be asked for its progress already
	path := out.metrics.file()
	out.mu.Unlock()
	if path != "" {
		c.Env = append(c.Env, metric.Var+"="+path)
	}
	return q.Run(ctx, c)
}

// step runs the ranks of a task in a step of the worker's job. What the step takes is not
// that of the command which begins it, and is the scheduler's to tell.
func (w *worker) step(ctx context.Context, q *run.Quick, t *task, c run.QuickCmd, out *keeper) (run.QuickEnd, error) {
	share := t.has.share
	name := fmt.Sprintf("berth-%s-%d", jobs.Short(w.Sweep.Spec.ID), t.Number)
	r := jobs.Resources{Tasks: share.Ranks, CPUs: share.CPUs / share.Ranks, Memory: share.Memory, GPUs: w.Sweep.Spec.Worker.Resources.GPUs}
	c.Argv = w.Scheduler.Step(name, r, jobs.SlurmOptions{MPI: w.Sweep.Spec.Request.MPI}, c.Argv)
	if c.Argv == nil {
		return run.QuickEnd{}, errors.New("no scheduler here begins a step for the ranks of a task")
	}
	c.Env, c.CPUs = w.Scheduler.RankEnviron(c.Env), nil
	end, err := w.here(ctx, q, c, out)
	end.CPU, end.Memory = 0, 0
	if err == nil && !end.TimedOut && (end.Exit.Signal != 0 || end.Exit.Code > 128) && told(ctx) {
		end.Stopped = true // the scheduler ends the step with its job, and may do so first
	}
	if err == nil && (end.Stopped || end.TimedOut || end.Exit.Signal != 0) {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepEnds)
		defer cancel()
		if err := w.Scheduler.EndStep(ending, run.Local{}, w.Job, name); err != nil {
			w.Log("task %d: its step %s may still run: %v", t.Number, name, err)
		}
	}
	return end, err
}

// stepEnds is how long it is tried to end a step of the job.
const stepEnds = 15 * time.Second

// program finds a program by PATH, once.
func (w *worker) program(name string) (string, error) {
	if p, ok := w.paths.Load(name); ok {
		return p.(string), nil
	}
	path := name
	if !strings.Contains(name, "/") {
		var err error
		if path, err = exec.LookPath(name); err != nil {
			return "", err
		}
	}
	w.paths.Store(name, path)
	return path, nil
}
