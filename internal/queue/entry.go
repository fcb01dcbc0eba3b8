package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/jobs"
)

const entryVersion = 1

// entry is one job's file. Only the process that waited for its turn writes it.
type entry struct {
	Version int        `json:"version"`
	Name    string     `json:"name"`
	CPUs    int        `json:"cpus"`
	Memory  jobs.Bytes `json:"memory_bytes"`
	PID     int        `json:"pid"`
	Started uint64     `json:"started"` // of the process, in clock ticks since boot (proc(5), stat)
	Running bool       `json:"running"`
	// Waiting says for which jobs it waits, outside of the queue; "" is in it.
	Waiting string `json:"waiting,omitempty"`
	// Turn is its place in the queue when it has come into it later than it
	// was made; 0 is its number.
	Turn uint64 `json:"turn,omitempty"`

	number uint64 // from the file's name
}

// turn is its place in the queue: whoever has a lower one goes first.
func (e entry) turn() uint64 { return max(e.number, e.Turn) }

const entrySuffix = ".job"

// file is the entry's name in the directory: its number, which sorts, and the
// job's name.
func (e entry) file() string { return fmt.Sprintf("%012d-%s%s", e.number, e.Name, entrySuffix) }

// nativeID is what a handle calls the entry. Numbers start over with each boot,
// so the name is compared too.
func (e entry) nativeID() string { return strconv.Itoa(int(e.number)) }

func (e entry) alive() bool { return processAlive(e.PID, e.Started) }

// save writes the entry whole; readers see the old or the new one.
func (e entry) save(dir string) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, fmt.Sprintf(".%s.%d", e.file(), os.Getpid()))
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(dir, e.file())); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

// entries reads the queue in order. A file that vanishes meanwhile, or that is
// no entry of this version, is passed over.
func entries(dir string) ([]entry, error) {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []entry
	for _, f := range list {
		number, ok := numberOf(f.Name())
		if !ok {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if e, ok := parseEntry(data); ok {
			e.number = number
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b entry) int {
		switch {
		case a.number < b.number:
			return -1
		case a.number > b.number:
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return all, nil
}

func parseEntry(data []byte) (entry, bool) {
	var e entry
	if err := json.Unmarshal(data, &e); err != nil {
		return entry{}, false
	}
	return e, e.Version == entryVersion && e.PID > 0 && e.Name != "" && e.CPUs > 0 && e.Memory >= 0
}

// numberOf reads the number in an entry's file name.
func numberOf(file string) (uint64, bool) {
	if !strings.HasSuffix(file, entrySuffix) {
		return 0, false
	}
	digits, _, ok := strings.Cut(file, "-")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, err == nil
}

// living are the entries whose process still runs.
func living(all []entry) []entry {
	return slices.DeleteFunc(slices.Clone(all), func(e entry) bool { return !e.alive() })
}

// last is the highest place that was drawn.
func last(all []entry) (n uint64) {
	for _, e := range all {
		n = max(n, e.turn())
	}
	return n
}

// myTurn tells whether all living jobs up to this one fit together. One that
// waits for other jobs has no share of the machine.
func myTurn(alive []entry, turn uint64, cpus int, memory jobs.Bytes) bool {
	for _, e := range alive {
		if e.turn() > turn || e.Waiting != "" {
			continue
		}
		cpus -= e.CPUs
		memory -= e.Memory
	}
	return cpus >= 0 && memory >= 0
}
