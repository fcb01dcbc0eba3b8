package worker

import (
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"berth/internal/sweep"
	"berth/internal/sweep/command"
	"berth/jobs"
)

// room is what a worker has for the tasks that run at once. What is not known is not
// counted.
type room struct {
	turn    chan struct{} // of who waits for room: a large task is not passed by small ones
	mu      sync.Mutex
	freed   *sync.Cond
	most    jobs.Resources
	cpus    int // that are taken
	memory  jobs.Bytes
	each    jobs.Bytes          // of a task that says none; 0 is not known
	devices map[string][]string // GPUs, by the variables that name them
	gpus    []bool              // which of these are taken
	cores   []int               // CPUs of this process; nil where they are not as many as it has
	taken   []bool              // which of these are
}

// taken is what a task has.
type taken struct {
	cpus   int
	memory jobs.Bytes
	share  command.Share // what it asks for
	gpus   []int         // by their places
	on     []int         // CPUs; none is any
	cores  []int         // their places
}

func envOf(p *jobs.Place) []string {
	if p == nil {
		return nil
	}
	return p.Env
}

func newRoom(s *sweep.Spec, env []string) *room {
	p := s.Worker
	r := &room{turn: make(chan struct{}, 1), devices: sweep.DevicesOf(env), most: s.Bounds()}
	r.freed = sync.NewCond(&r.mu)
	n := sweep.GPUs(p)
	for _, d := range r.devices {
		if n == 0 || len(d) < n {
			n = len(d)
		}
	}
	r.gpus = make([]bool, n)
	// Of a whole machine others use some CPUs, and nothing says which.
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err == nil && r.most.CPUs > 0 && own.Count() == r.most.CPUs {
		for c := 0; len(r.cores) < own.Count(); c++ {
			if own.IsSet(c) {
				r.cores = append(r.cores, c)
			}
		}
		r.taken = make([]bool, len(r.cores))
	}
	return r
}

// usual says what tasks take that say nothing, where the memory of the worker is known.
func (r *room) usual(q command.Request, memory jobs.Bytes) {
	if q.Memory == "" {
		r.mu.Lock()
		r.each = memory
		r.mu.Unlock()
	}
}

// take waits until a task fits beside those that run, and returns what it has. One
// that asks for more than there is, which a submission refuses, runs alone.
func (r *room) take(share command.Share) (has taken) {
	has.share = share
	if has.memory = share.Memory; has.memory == 0 {
		r.mu.Lock()
		has.memory = r.each
		r.mu.Unlock()
	}
	has.cpus = min(share.CPUs, r.most.CPUs)
	has.memory = min(has.memory, r.most.Memory)
	gpus := min(share.GPUs, len(r.gpus))
	if has.cpus == 0 && has.memory == 0 && gpus == 0 {
		return has
	}
	r.turn <- struct{}{}
	defer func() { <-r.turn }()
	r.mu.Lock()
	defer r.mu.Unlock()
	for has.cpus > 0 && r.cpus+has.cpus > r.most.CPUs || has.memory > 0 && r.memory+has.memory > r.most.Memory || free(r.gpus) < gpus {
		r.freed.Wait()
	}
	r.cpus += has.cpus
	r.memory += has.memory
	has.gpus = pick(r.gpus, gpus)
	if r.cores != nil {
		has.cores = pick(r.taken, has.cpus)
		for _, i := range has.cores {
			has.on = append(has.on, r.cores[i])
		}
	}
	return has
}

// free counts those that are not taken.
func free(all []bool) (n int) {
	for _, is := range all {
		if !is {
			n++
		}
	}
	return n
}

// pick takes n of those that are free.
func pick(all []bool, n int) (got []int) {
	for i := 0; i < len(all) && len(got) < n; i++ {
		if !all[i] {
			all[i] = true
			got = append(got, i)
		}
	}
	return got
}

// visible are the variables by which a task sees the GPUs that it has alone. Where no
// variable names the worker's, they are counted from 0. One that asks for none sees what
// the worker does.
func (r *room) visible(has taken) (env []string) {
	if len(r.gpus) == 0 || len(has.gpus) == 0 {
		return nil
	}
	names := r.devices
	if len(names) == 0 {
		names = map[string][]string{jobs.Devices[0]: nil}
	}
	for name, all := range names {
		value := ""
		for k, i := range has.gpus {
			if k > 0 {
				value += ","
			}
			switch {
			case all == nil:
				value += strconv.Itoa(i)
			case name == "HIP_VISIBLE_DEVICES" && names["ROCR_VISIBLE_DEVICES"] != nil: // it counts those that ROCr shows
				value += strconv.Itoa(k)
			default:
				value += all[i]
			}
		}
		env = append(env, name+"="+value)
	}
	return env
}

// give returns what a task had.
func (r *room) give(has taken) {
	r.mu.Lock()
	r.cpus -= has.cpus
	r.memory -= has.memory
	for _, i := range has.gpus {
		r.gpus[i] = false
	}
	for _, i := range has.cores {
		r.taken[i] = false
	}
	r.mu.Unlock()
	r.freed.Signal() // one waits at most
}
