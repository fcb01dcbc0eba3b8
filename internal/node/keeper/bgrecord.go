package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// lostBG is why it is not known how one ended.
const lostBG = "the environment ended while it ran"

func bgID(n int) string { return "bg-" + strconv.Itoa(n) }

// bgIDs lists the numbers of all records, in order.
func bgIDs(dir string) (out []int, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if mid, ok := strings.CutPrefix(e.Name(), "bg-"); ok {
			if n, err := strconv.Atoi(mid); err == nil && n > 0 && bgID(n) == e.Name() {
				out = append(out, n)
			}
		}
	}
	slices.Sort(out)
	return out, err
}

// findBG reads the record of one among those in dir; a nil end is that none is
// recorded.
func findBG(dir, id string) (s bgStart, end *bgEnd, err error) {
	if n, nerr := strconv.Atoi(strings.TrimPrefix(id, "bg-")); nerr != nil || n <= 0 || bgID(n) != id {
		err = fs.ErrNotExist
	} else {
		s, end, err = loadBG(filepath.Join(dir, id))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("there is no background process %q", id), Hint: "berth bg list"}
	case err != nil:
		err = &jobs.Error{Kind: jobs.KindInfra, Msg: "read the record of " + id, Err: err}
	}
	return s, end, err
}

// Backgrounds lists the background processes of the environment in dir by their
// records, oldest first. No keeper runs: what has no end is lost.
func Backgrounds(dir string) (out []wire.BG, err error) {
	dir = filepath.Join(dir, dirBG)
	ids, err := bgIDs(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "list the background processes", Err: err}
	}
	for _, n := range ids {
		if s, end, err := findBG(dir, bgID(n)); err == nil {
			out = append(out, s.ended(filepath.Join(dir, bgID(n)), end))
		}
	}
	return out, nil
}

// BackgroundLog writes the log of one of [Backgrounds] to w, from an offset on, which
// counts from the end when it is negative.
func BackgroundLog(ctx context.Context, dir, id string, offset int64, w io.Writer) (wire.BG, error) {
	dir = filepath.Join(dir, dirBG)
	s, end, err := findBG(dir, id)
	if err != nil {
		return wire.BG{}, err
	}
	at := filepath.Join(dir, id)
	if err := writeLog(ctx, filepath.Join(at, bgLogFile), offset, w); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return wire.BG{}, err
	}
	return s.ended(at, end), nil
}

// ended is the view of one that does not run.
func (s bgStart) ended(dir string, end *bgEnd) wire.BG {
	if end == nil {
		end = &bgEnd{Lost: lostBG}
		if fi, err := os.Stat(filepath.Join(dir, bgLogFile)); err == nil {
			end.Log = fi.Size()
		}
	}
	return s.view(end)
}

// writeLog writes what stands in a log now, however fast it grows.
func writeLog(ctx context.Context, path string, offset int64, w io.Writer) error {
	f, left, err := openLog(path, offset)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, readable{ctx, io.LimitReader(f, left)})
	return err
}

// openLog opens a log at an offset, which counts from the end when it is negative,
// and tells how much follows.
func openLog(path string, offset int64) (f *os.File, left int64, err error) {
	if f, err = os.Open(path); err != nil {
		return nil, 0, err
	}
	fi, err := f.Stat()
	if err == nil {
		if offset < 0 {
			offset = max(0, fi.Size()+offset)
		}
		offset = min(offset, fi.Size())
		_, err = f.Seek(offset, io.SeekStart)
	}
	if err != nil {
		_ = f.Close()
		return nil, 0, err
	}
	return f, fi.Size() - offset, nil
}

// readable is a reader that stops with a context.
type readable struct {
	ctx context.Context
	r   io.Reader
}

func (r readable) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
