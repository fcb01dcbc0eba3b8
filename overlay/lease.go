package overlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/jobs"
	"berth/jobs/store"
)

// Owner is who holds an overlay's lease, as the owner described itself.
type Owner struct {
	Version int       `json:"version"`
	Attempt string    `json:"attempt"` // the attempt's id
	Dir     string    `json:"dir"`     // the attempt's directory
	Host    string    `json:"host"`
	BootID  string    `json:"boot_id"`
	PID     int       `json:"pid"`
	Time    time.Time `json:"time"`
}

// Lease is the right to write one overlay.
//
// Leases are numbered files, lease.1.json, lease.2.json and so on, each created
// once; the one with the highest number counts. Giving one back creates
// lease.N.free beside it, and taking the overlay creates number N+1. So no file
// that somebody else may rely on is ever renamed or removed, which on a network
// file system cannot be done without a moment in which two own it.
type Lease struct {
	dir string
	n   int
}

// Acquire takes the lease of the overlay in dir. When another owner holds it,
// gone is asked whether that owner is provably gone; it may take its time to
// find out. A lease that stands is an error of kind KindAgain that names its
// holder.
func Acquire(dir string, me Owner, gone func(Owner) bool) (*Lease, error) {
	data, err := json.MarshalIndent(me, "", "  ")
	if err != nil {
		return nil, err
	}
	name := filepath.Base(dir)
	for range 5 {
		last, err := lastLease(dir)
		if err != nil {
			return nil, err
		}
		if last > 0 {
			held, err := heldBy(dir, last)
			if err != nil {
				return nil, err
			}
			if held != nil && !gone(*held) {
				return nil, &jobs.Error{Kind: jobs.KindAgain,
					Msg:  fmt.Sprintf("overlay %s is in use by attempt %s on %s since %s", name, jobs.Short(held.Attempt), held.Host, held.Time.Format(time.RFC3339)),
					Hint: "wait for that job (berth ps), or give this task an overlay of its own"}
			}
		}
		l := &Lease{dir: dir, n: last + 1}
		won, err := store.CreateOnce(l.file(), data)
		if err != nil {
			return nil, fmt.Errorf("lease overlay %s: %w", name, err)
		}
		if !won {
			continue
		}
		// Whoever was slow may have made a number again that its owner's
		// successors have cleared away.
		if now, err := lastLease(dir); err != nil || now != l.n {
			_ = os.Remove(l.file())
			if err != nil {
				return nil, err
			}
			continue
		}
		l.clear()
		return l, nil
	}
	return nil, &jobs.Error{Kind: jobs.KindAgain, Msg: "overlay " + name + " changes hands too often", Hint: "try again"}
}

// Release gives the lease back. It does nothing to a lease that somebody else
// has taken over in the meantime.
func (l *Lease) Release() error {
	_, err := store.CreateOnce(freeFile(l.dir, l.n), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the overlay itself is gone
	}
	return err
}

func (l *Lease) file() string { return leaseFile(l.dir, l.n) }

// clear removes what earlier owners have left. What cannot be removed does not
// count anyway.
func (l *Lease) clear() {
	for n := l.n - 1; n > 0; n-- {
		if err := os.Remove(leaseFile(l.dir, n)); errors.Is(err, fs.ErrNotExist) {
			return
		}
		_ = os.Remove(freeFile(l.dir, n))
	}
}

func leaseFile(dir string, n int) string { return filepath.Join(dir, fmt.Sprintf("lease.%d.json", n)) }
func freeFile(dir string, n int) string  { return filepath.Join(dir, fmt.Sprintf("lease.%d.free", n)) }

// lastLease returns the highest number of a lease in dir, or 0.
func lastLease(dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	last := 0
	for _, e := range entries {
		mid, ok := strings.CutPrefix(e.Name(), "lease.")
		if !ok {
			continue
		}
		if mid, ok = strings.CutSuffix(mid, ".json"); !ok {
			continue
		}
		if n, err := strconv.Atoi(mid); err == nil {
			last = max(last, n)
		}
	}
	return last, nil
}

// heldBy returns who holds lease n, or nil when it was given back.
func heldBy(dir string, n int) (*Owner, error) {
	if _, err := os.Stat(freeFile(dir, n)); err == nil {
		return nil, nil
	}
	path := leaseFile(dir, n)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // cleared away: there is a later one
	}
	if err != nil {
		return nil, err
	}
	var o Owner
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "the lease " + path + " cannot be read", Err: err, Hint: "when no job uses the overlay, remove that file"}
	}
	return &o, nil
}
