package queue

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth/internal/sys/failpoint"
	"berth/jobs"
)

// Exit codes of a waiter that did not become its job.
const (
	waitUsage  = 2
	waitFailed = 5
	waitTwice  = 75
)

// Pace of looking at the queue: a job that just came may go at once; one that
// waits for hours costs the machine nothing.
const (
	fastest = 50 * time.Millisecond
	slowest = time.Second
	patient = 2 * time.Second // of one that waits for other jobs and reads their records
)

// waiter is what the command line of "queue-wait" says.
type waiter struct {
	dir    string
	entry  entry
	cpus   int // of the machine
	memory jobs.Bytes
	watch  string // the directory of an attempt that is continued after its command, or ""
	argv   []string
	// attempt is the directory of one whose job waits for others, else "";
	// client the program that looks after those.
	attempt, client string
}

// args is the command line that [parseWaiter] reads.
func (w waiter) args() []string {
	args := []string{"queue-wait", "--queue", w.dir, "--entry", w.entry.Name,
		fmt.Sprintf("--cpus=%d", w.entry.CPUs), fmt.Sprintf("--memory=%d", w.entry.Memory),
		fmt.Sprintf("--total-cpus=%d", w.cpus), fmt.Sprintf("--total-memory=%d", w.memory)}
	if w.attempt != "" {
		args = append(args, "--after", w.attempt, "--follow", w.client)
	}
	if w.watch != "" {
		args = append(args, "--watch", w.watch)
	}
	return append(append(args, "--"), w.argv...)
}

func parseWaiter(args []string) (waiter, error) {
	var w waiter
	var memory, total int64
	f := flag.NewFlagSet("queue-wait", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&w.dir, "queue", "", "")
	f.StringVar(&w.entry.Name, "entry", "", "")
	f.IntVar(&w.entry.CPUs, "cpus", 1, "")
	f.Int64Var(&memory, "memory", 0, "")
	f.IntVar(&w.cpus, "total-cpus", 0, "")
	f.Int64Var(&total, "total-memory", 0, "")
	f.StringVar(&w.attempt, "after", "", "")
	f.StringVar(&w.client, "follow", "", "")
	f.StringVar(&w.watch, "watch", "", "")
	if err := f.Parse(args); err != nil {
		return w, err
	}
	w.argv, w.entry.Memory, w.memory = f.Args(), jobs.Bytes(memory), jobs.Bytes(total)
	if !filepath.IsAbs(w.dir) || !validEntry(w.entry.Name) || len(w.argv) == 0 || w.entry.CPUs < 1 || memory < 0 ||
		w.attempt != "" && !filepath.IsAbs(w.attempt) || w.watch != "" && !filepath.IsAbs(w.watch) {
		return w, errors.New("usage: queue-wait --queue DIR --entry NAME --cpus N --memory BYTES --total-cpus N --total-memory BYTES " +
			"[--after ATTEMPT --follow CLIENT] [--watch ATTEMPT] -- COMMAND")
	}
	return w, nil
}

func validEntry(name string) bool {
	return name != "" && len(name) <= 128 && filepath.Base(name) == name && name[0] != '.' && jobs.CheckText("name", name) == nil
}

// Held says, each time it is called, for which jobs another one still waits; ""
// is for none any more. never is that it will never begin.
type Held func() (waits string, never bool)

// WaitMain is the process of one queued job, "queue-wait" of berth-node: it
// enters the queue, waits for its turn and becomes the command behind "--". When
// the job is to be continued whatever happens to that command, it starts the
// command and becomes "queue-watch" when that has ended. It returns only when that did not
// happen, with the exit code. held is asked of an attempt whose job waits for
// others, and for the program that looks after those.
func WaitMain(args []string, held func(attemptDir, client string) Held) int {
	w, err := parseWaiter(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "berth:", err)
		return waitUsage
	}
	var h Held
	if w.attempt != "" {
		h = held(w.attempt, w.client)
	}
	err = w.run(h)
	fmt.Fprintln(os.Stderr, "berth: queue:", err)
	if errors.Is(err, errTwice) {
		return waitTwice
	}
	return waitFailed
}

var errTwice = errors.New("the job is in the queue already")

// run returns the reason why the command was not started.
func (w *waiter) run(held Held) error {
	never := false
	if held != nil {
		w.entry.Waiting, never = held()
	}
	failpoint.Hit("queue.enter")
	if err := w.enter(); err != nil {
		return err
	}
	failpoint.Hit("queue.entered")
	if w.entry.Waiting != "" {
		var err error
		if never, err = w.outside(held); err != nil {
			return err
		}
	}
	// What never begins takes no share of the machine to say so.
	for pace := fastest; !never; pace = min(pace*5/4, slowest) {
		all, err := entries(w.dir)
		if err == nil && myTurn(living(all), w.entry.turn(), w.cpus, w.memory) {
			break
		}
		// A directory that cannot be read now may be readable later; the
		// job keeps its place.
		time.Sleep(pace)
	}
	if never {
		w.entry.Waiting = "nothing: it never begins"
	}
	w.entry.Running = true
	if w.watch != "" {
		return w.start()
	}
	if err := w.entry.save(w.dir); err != nil {
		return fmt.Errorf("record the start: %w", err)
	}
	failpoint.Hit("queue.become")
	return become(w.argv)
}

// outside waits for other jobs, and takes its place at the end of the queue
// then: what has come meanwhile may run already.
func (w *waiter) outside(held Held) (never bool, err error) {
	for pace := fastest; ; pace = min(pace*5/4, patient) {
		var waits string
		if waits, never = held(); waits == "" {
			break
		}
		if waits != w.entry.Waiting {
			w.entry.Waiting = waits
			if err := w.entry.save(w.dir); err != nil {
				return false, fmt.Errorf("record what it waits for: %w", err)
			}
		}
		time.Sleep(pace)
	}
	if never {
		return true, nil
	}
	unlock, err := lock(filepath.Join(w.dir, "lock"))
	if err != nil {
		return false, fmt.Errorf("lock the queue: %w", err)
	}
	defer unlock()
	all, err := entries(w.dir)
	if err != nil {
		return false, err
	}
	w.entry.Waiting, w.entry.Turn = "", last(all)+1
	return false, w.entry.save(w.dir)
}

// enter draws a number and writes the entry. Files of dead processes go here,
// under the same lock, and nowhere else.
func (w *waiter) enter() error {
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return err
	}
	var err error
	w.entry.Version, w.entry.PID = entryVersion, os.Getpid()
	if w.entry.Started, err = processStart(w.entry.PID); err != nil {
		return err
	}
	unlock, err := lock(filepath.Join(w.dir, "lock"))
	if err != nil {
		return fmt.Errorf("lock the queue: %w", err)
	}
	defer unlock()
	all, err := entries(w.dir)
	if err != nil {
		return err
	}
	for _, e := range all {
		switch {
		case !e.alive():
			if err := os.Remove(filepath.Join(w.dir, e.file())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		case e.Name == w.entry.Name:
			return errTwice
		}
	}
	w.entry.number = last(all) + 1
	return w.entry.save(w.dir)
}
