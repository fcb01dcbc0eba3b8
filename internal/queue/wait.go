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
)

// waiter is what the command line of "queue-wait" says.
type waiter struct {
	dir    string
	entry  entry
	cpus   int // of the machine
	memory jobs.Bytes
	argv   []string
}

// args is the command line that [parseWaiter] reads.
func (w waiter) args() []string {
	return append([]string{"queue-wait", "--queue", w.dir, "--entry", w.entry.Name,
		fmt.Sprintf("--cpus=%d", w.entry.CPUs), fmt.Sprintf("--memory=%d", w.entry.Memory),
		fmt.Sprintf("--total-cpus=%d", w.cpus), fmt.Sprintf("--total-memory=%d", w.memory), "--"}, w.argv...)
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
	if err := f.Parse(args); err != nil {
		return w, err
	}
	w.argv, w.entry.Memory, w.memory = f.Args(), jobs.Bytes(memory), jobs.Bytes(total)
	if !filepath.IsAbs(w.dir) || !validEntry(w.entry.Name) || len(w.argv) == 0 || w.entry.CPUs < 1 || memory < 0 {
		return w, errors.New("usage: queue-wait --queue DIR --entry NAME --cpus N --memory BYTES --total-cpus N --total-memory BYTES -- COMMAND")
	}
	return w, nil
}

func validEntry(name string) bool {
	return name != "" && len(name) <= 128 && filepath.Base(name) == name && name[0] != '.' && jobs.CheckText("name", name) == nil
}

// WaitMain is the process of one queued job, "queue-wait" of berth-node: it
// enters the queue, waits for its turn and becomes the command behind "--". It
// returns only when that did not happen, with the exit code.
func WaitMain(args []string) int {
	w, err := parseWaiter(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "berth:", err)
		return waitUsage
	}
	err = w.run()
	fmt.Fprintln(os.Stderr, "berth: queue:", err)
	if errors.Is(err, errTwice) {
		return waitTwice
	}
	return waitFailed
}

var errTwice = errors.New("the job is in the queue already")

// run returns the reason why the command was not started.
func (w *waiter) run() error {
	if err := w.enter(); err != nil {
		return err
	}
	for pace := fastest; ; pace = min(pace*5/4, slowest) {
		all, err := entries(w.dir)
		if err == nil && myTurn(living(all), w.entry.number, w.cpus, w.memory) {
			break
		}
		// A directory that cannot be read now may be readable later; the
		// job keeps its place.
		time.Sleep(pace)
	}
	w.entry.Running = true
	if err := w.entry.save(w.dir); err != nil {
		return fmt.Errorf("record the start: %w", err)
	}
	return become(w.argv)
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
		w.entry.number = e.number
	}
	w.entry.number++
	return w.entry.save(w.dir)
}
