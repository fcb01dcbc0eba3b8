package command

import (
	"fmt"
	"strconv"

	"berth/jobs"
)

// Request is what a task takes of its worker, as it is written: a number, a size such
// as 4GiB, or {name} for that of a row. "" takes nothing that is counted.
type Request struct {
	CPUs   string `json:"cpus,omitempty"`
	Memory string `json:"mem,omitempty"`
	GPUs   string `json:"gpus,omitempty"`
	Ranks  string `json:"ntasks,omitempty"` // of its command, in a step of the worker's job; cpus is of each then
	MPI    string `json:"mpi,omitempty"`    // how they find each other, as of [jobs.SlurmOptions]
}

// Share is what a task takes of its worker; 0 of each is not said.
type Share struct {
	CPUs, GPUs int // CPUs are those of all ranks
	Memory     jobs.Bytes
	Ranks      int // in a step of their own; 0 is a task without one
}

// mostCPUs is an upper bound that only a slip of the finger passes.
const mostCPUs = 1 << 20

// Of is the request of a task.
func (r Request) Of(t Task) (s Share, err error) {
	if s.CPUs, err = count("cpus", r.CPUs, t); err != nil {
		return s, err
	}
	if s.GPUs, err = count("gpus", r.GPUs, t); err != nil {
		return s, err
	}
	if s.Ranks, err = count("ntasks", r.Ranks, t); err != nil {
		return s, err
	}
	if s.Ranks > 0 {
		s.CPUs = s.Ranks * max(s.CPUs, 1)
	}
	if r.Memory != "" {
		text, err := fill(r.Memory, t)
		if err != nil {
			return s, fmt.Errorf("mem %w", err)
		}
		if s.Memory, err = jobs.ParseBytes(text); err != nil || s.Memory <= 0 {
			return s, fmt.Errorf("mem is %q, and must be a size such as 4GiB", text)
		}
	}
	return s, nil
}

// count is a number of a request; 0 is that it says none.
func count(key, said string, t Task) (int, error) {
	if said == "" {
		return 0, nil
	}
	text, err := fill(said, t)
	if err != nil {
		return 0, fmt.Errorf("%s %w", key, err)
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostCPUs {
		return 0, fmt.Errorf("%s is %q, and must be a number from 1 on", key, text)
	}
	return n, nil
}

// fill replaces {name} by the parameter of a task.
func fill(text string, t Task) (string, error) {
	argv, err := (&Template{words: [][]piece{pieces(text, false)}}).Command(t)
	if err != nil {
		return "", fmt.Errorf("%q names a parameter that there is not", text)
	}
	return argv[0], nil
}
