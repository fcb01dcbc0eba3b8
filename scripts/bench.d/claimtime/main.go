// Command claimtime measures, for scripts/bench, what the claims of many workers cost: the real
// protocol on the directory that is named (which may be a mount of a shared file system), with
// simulated tasks and a simulated clock for each worker.
//
//	claimtime WORKERS TASKS SLOTS EACH DIR
//
// Each worker runs SLOTS tasks at once, which take EACH (such as 1s) and up to a tenth more or
// less. The worker whose clock is behind all others makes the next claim: that is real, on the
// directory, and takes its worker's clock on by what it took. So the order of claims and what
// each worker has to read is that of so many nodes, but no two claims are made at one moment. A
// real worker makes claims while its tasks run: here they come after each other.
// It prints lines "KEY VALUE": the part of claims in the time of all workers in percent, the
// longest of one claim and the real time of all of them in ms, how long the simulated sweep
// takes and would take without claims in s, and how many names of claims there are.
package main

import (
	"container/heap"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"berth/internal/sweep"
	"berth/internal/sweep/claims"
)

func main() {
	if err := measure(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "claimtime:", err)
		os.Exit(1)
	}
}

// worker is a simulated one.
type worker struct {
	now    time.Duration // its clock
	board  *claims.Board
	from   int // where it looks for a batch
	held   *claims.Held
	pause  time.Duration // until it looks again, where others have all
	claims time.Duration // what these took
}

// queue has the worker whose clock is behind all others first.
type queue []*worker

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, k int) bool { return q[i].now < q[k].now }
func (q queue) Swap(i, k int)      { q[i], q[k] = q[k], q[i] }
func (q *queue) Push(w any)        { *q = append(*q, w.(*worker)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	w := (*q)[last]
	*q = (*q)[:last]
	return w
}

// The pauses of a worker that finds nothing free, as of a real one.
const (
	fastest = 20 * time.Millisecond
	slowest = 2 * time.Second
)

func measure(args []string) error {
	if len(args) != 5 {
		return fmt.Errorf("usage: claimtime WORKERS TASKS SLOTS EACH DIR")
	}
	var n [3]int
	for i := range n {
		var err error
		if n[i], err = strconv.Atoi(args[i]); err != nil || n[i] < 1 {
			return fmt.Errorf("%q is no number above 0", args[i])
		}
	}
	workers, tasks, slots := n[0], n[1], n[2]
	each, err := time.ParseDuration(args[3])
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(args[4], "berth-claims.")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	round := claims.Round{Dir: dir, Tasks: tasks, Batch: sweep.BatchOf(tasks, workers)}
	var all queue
	for i := range workers {
		all = append(all, &worker{board: claims.New(round, uint32(i+1), func(uint32) bool { return false }), from: i * 61, pause: fastest})
	}
	random := rand.New(rand.NewPCG(1, 2))
	var life, claimed, longest, last time.Duration
	left := tasks
	heap.Init(&all)
	for len(all) > 0 {
		w := all[0]
		began := time.Now()
		if w.held != nil {
			left -= w.held.Size()
			lost, err := w.held.Close()
			if err == nil && lost {
				err = errors.New("it was taken by another worker")
			}
			if err != nil {
				return fmt.Errorf("close a batch: %w", err)
			}
		}
		open := 0
		if w.held, open, err = w.board.Next(w.from); err != nil {
			return err
		}
		took := time.Since(began)
		longest = max(longest, took)
		w.claims += took
		w.now += took
		switch {
		case w.held != nil:
			w.from = (int(w.held.Lo)-1)/round.Batch + 1
			w.pause = fastest
			w.now += time.Duration(float64(w.held.Size()) / float64(slots) * float64(each) * (0.9 + random.Float64()/5))
		case open > 0:
			w.now += w.pause
			w.pause = min(2*w.pause, slowest)
		default:
			life += w.now
			claimed += w.claims
			last = max(last, w.now)
			heap.Pop(&all)
			continue
		}
		heap.Fix(&all, 0)
	}
	if left != 0 {
		return fmt.Errorf("%d tasks of %d were not run", left, tasks)
	}
	names := 0
	if err := filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			names++
		}
		return err
	}); err != nil {
		return err
	}
	key := fmt.Sprintf("claims_%d_%d", workers, tasks)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	fmt.Printf("%s_percent %.4f\n%s_longest %.3f\n%s_all %.1f\n", key, 100*float64(claimed)/float64(life), key, ms(longest), key, ms(claimed))
	fmt.Printf("%s_takes %.3f\n%s_ideal %.3f\n", key, last.Seconds(), key, float64(tasks)/float64(workers*slots)*each.Seconds())
	fmt.Printf("%s_files %d\n", key, names)
	return nil
}
