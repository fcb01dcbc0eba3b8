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
}

// mostCPUs is an upper bound that only a slip of the finger passes.
const mostCPUs = 1 << 20

// Of is the request of a task.
func (r Request) Of(t Task) (cpus int, memory jobs.Bytes, err error) {
	if r.CPUs != "" {
		text, err := fill(r.CPUs, t)
		if err != nil {
			return 0, 0, fmt.Errorf("cpus %w", err)
		}
		if cpus, err = strconv.Atoi(text); err != nil || cpus < 1 || cpus > mostCPUs {
			return 0, 0, fmt.Errorf("cpus is %q, and must be a number from 1 on", text)
		}
	}
	if r.Memory != "" {
		text, err := fill(r.Memory, t)
		if err != nil {
			return 0, 0, fmt.Errorf("mem %w", err)
		}
		if memory, err = jobs.ParseBytes(text); err != nil || memory <= 0 {
			return 0, 0, fmt.Errorf("mem is %q, and must be a size such as 4GiB", text)
		}
	}
	return cpus, memory, nil
}

// fill replaces {name} by the parameter of a task.
func fill(text string, t Task) (string, error) {
	argv, err := (&Template{words: [][]piece{pieces(text, false)}}).Command(t)
	if err != nil {
		return "", fmt.Errorf("%q names a parameter that there is not", text)
	}
	return argv[0], nil
}
