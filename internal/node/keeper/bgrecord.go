package keeper

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth/internal/link/wire"
	"berth/internal/sys/disk"
	"berth/jobs"
	"berth/jobs/store"
)

// Names in the directory of a background process.
const (
	bgStartFile = "bg.json"
	bgEndFile   = "exit.json"
	bgLogFile   = "log"
)

// bgStart is bg.json, written once before the process is started. Variables
// that it was given are not in it.
type bgStart struct {
	Version int          `json:"version"`
	ID      string       `json:"id"`
	Command jobs.Command `json:"command"`
	Session string       `json:"session,omitempty"`
	Started time.Time    `json:"started"`
}

// bgEnd is exit.json, written once at its end, or by the next keeper.
type bgEnd struct {
	Exit     *jobs.Exit `json:"exit,omitempty"`
	TimedOut bool       `json:"timed_out,omitempty"`
	Lost     string     `json:"lost,omitempty"`
	Ended    time.Time  `json:"ended"`
	Log      int64      `json:"log_bytes"`
	Cut      bool       `json:"log_cut,omitempty"`
}

func saveStart(dir string, s bgStart) error { return createJSON(filepath.Join(dir, bgStartFile), s) }

func saveEnd(dir string, e bgEnd) error {
	if e.Lost != "" && e.Log == 0 {
		if fi, err := os.Stat(filepath.Join(dir, bgLogFile)); err == nil {
			e.Log = fi.Size()
		}
	}
	return createJSON(filepath.Join(dir, bgEndFile), e)
}

func createJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = store.CreateOnce(path, append(b, '\n'))
	return err
}

// loadBG reads a record; end is nil when there is none.
func loadBG(dir string) (s bgStart, end *bgEnd, err error) {
	b, err := disk.ReadRegular(filepath.Join(dir, bgStartFile), 8<<20)
	if err != nil {
		return s, nil, err
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, nil, err
	}
	b, err = disk.ReadRegular(filepath.Join(dir, bgEndFile), 8<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil, nil
	}
	if err != nil {
		return s, nil, err
	}
	end = &bgEnd{}
	return s, end, json.Unmarshal(b, end)
}

// view is what is told of it; a nil end is that it runs.
func (s bgStart) view(end *bgEnd) wire.BG {
	v := wire.BG{ID: s.ID, Command: s.Command, Session: s.Session, Started: s.Started, Running: end == nil}
	if end != nil {
		v.Exit, v.Lost, v.Ended, v.Log, v.Cut = end.Exit, end.Lost, end.Ended, end.Log, end.Cut
	}
	return v
}
