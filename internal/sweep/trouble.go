package sweep

import (
	"encoding/json"
	"path/filepath"
	"slices"

	"berth/internal/sweep/claims"
	"berth/internal/sys/disk"
)

// LastTrouble is why the last worker has ended before it could run anything; "" is that
// it has not.
func (s *Sweep) LastTrouble() string {
	var end struct {
		Why string `json:"why"`
	}
	s.lastWorkers(claims.EndFile, &end)
	return end.Why
}

// OwnFile says what each task of a worker has for itself.
const OwnFile = "own.json"

// Own is [OwnFile].
type Own struct {
	Version int    `json:"version"`
	Own     string `json:"own"`
	Why     string `json:"why,omitempty"`  // it is no room, where that was asked for
	CPUs    []int  `json:"cpus,omitempty"` // the worker's, of which tasks that ask for some have these alone
}

// LastOwn is that of the last worker, or nil.
func (s *Sweep) LastOwn() *Own {
	var o Own
	if !s.lastWorkers(OwnFile, &o) {
		return nil
	}
	return &o
}

// lastWorkers reads a file of the last worker, and tells whether it could.
func (s *Sweep) lastWorkers(name string, v any) bool {
	all, err := s.Workers()
	if err != nil || len(all) == 0 {
		return false
	}
	b, err := disk.ReadRegular(filepath.Join(s.WorkerDir(slices.Max(all)), name), 1<<20)
	return err == nil && json.Unmarshal(b, v) == nil
}
