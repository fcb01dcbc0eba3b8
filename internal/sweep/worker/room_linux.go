package worker

import (
	"sync"

	"berth/internal/sweep/command"
	"berth/jobs"
)

// room is what a worker has for the tasks that run at once. What is not known is not
// counted.
type room struct {
	turn   chan struct{} // of who waits for room: a large task is not passed by small ones
	mu     sync.Mutex
	freed  *sync.Cond
	most   jobs.Resources
	cpus   int // that are taken
	memory jobs.Bytes
	each   jobs.Bytes // of a task that says none; 0 is not known
}

// usual says what tasks take that say nothing, where the memory of the worker is known.
func (r *room) usual(q command.Request, memory jobs.Bytes) {
	if q.Memory == "" {
		r.mu.Lock()
		r.each = memory
		r.mu.Unlock()
	}
}

func newRoom(p *jobs.Place) *room {
	r := &room{turn: make(chan struct{}, 1)}
	r.freed = sync.NewCond(&r.mu)
	if p != nil {
		r.most = p.Resources
	}
	return r
}

// take waits until a task fits beside those that run, and returns what it has. One
// that asks for more than there is, which a submission refuses, runs alone.
func (r *room) take(q command.Request, t command.Task) (cpus int, memory jobs.Bytes) {
	cpus, memory, err := q.Of(t)
	if err != nil { // the table was checked
		return 0, 0
	}
	if memory == 0 {
		r.mu.Lock()
		memory = r.each
		r.mu.Unlock()
	}
	if cpus = min(cpus, r.most.CPUs); r.most.Memory > 0 {
		memory = min(memory, r.most.Memory)
	} else {
		memory = 0
	}
	if cpus == 0 && memory == 0 {
		return 0, 0
	}
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.mu.Lock()
	defer r.mu.Unlock()
	for cpus > 0 && r.cpus+cpus > r.most.CPUs || memory > 0 && r.memory+memory > r.most.Memory {
		r.freed.Wait()
	}
	r.cpus += cpus
	r.memory += memory
	return cpus, memory
}

// give returns what a task had.
func (r *room) give(cpus int, memory jobs.Bytes) {
	r.mu.Lock()
	r.cpus -= cpus
	r.memory -= memory
	r.mu.Unlock()
	r.freed.Signal() // one waits at most
}
