package lease

import (
	"bytes"
	"context"
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

// Owner is who holds a lease, as the owner described itself.
type Owner struct {
	Version     int       `json:"version"`
	Attempt     string    `json:"attempt,omitempty"`     // the attempt's id, of a job
	Environment string    `json:"environment,omitempty"` // its name, of a keeper
	Verb        string    `json:"verb,omitempty"`        // of the command line that works on an overlay
	Job         string    `json:"job,omitempty"`         // the id of the job that the attempt is of
	SlurmJob    string    `json:"slurm_job,omitempty"`   // the Slurm job that the process runs in
	Restart     int       `json:"restart,omitempty"`     // how often that was started again under its id
	Dir         string    `json:"dir"`                   // where its beat is written
	Host        string    `json:"host"`
	BootID      string    `json:"boot_id"`
	PID         int       `json:"pid"`
	Start       string    `json:"start,omitempty"`
	Time        time.Time `json:"time"`
	// Beat is how often the owner gives a sign of life; 0 is [BeatEvery].
	Beat time.Duration `json:"beat_ns,omitempty"`
}

// Owner is what this process, which gives its sign of life in dir, says of itself.
func (p Process) Owner(dir string) Owner {
	return Owner{Version: 1, Dir: dir, Host: p.Host, BootID: p.BootID, PID: p.PID, Start: p.Start, Time: time.Now().UTC()}
}

// Process is the process that holds it.
func (o Owner) Process() Process {
	return Process{Host: o.Host, BootID: o.BootID, PID: o.PID, Start: o.Start}
}

// Lease is the right to write one directory.
type Lease struct {
	dir  string
	n    int
	text []byte // of its file, by which it is told from one of the same number in a directory made again
}

// HeldError says that another process holds the lease.
type HeldError struct{ Owner Owner }

// Error names the process that holds it.
func (e *HeldError) Error() string {
	return fmt.Sprintf("held by process %d on %s since %s", e.Owner.PID, e.Owner.Host, e.Owner.Time.Format(time.RFC3339))
}

// Acquire takes the lease of dir. When another owner holds it, gone is asked
// whether that owner is provably gone; it may take its time to find out. A
// lease that stands is a [HeldError].
func Acquire(dir string, me Owner, gone func(Owner) bool) (*Lease, error) {
	data, err := json.MarshalIndent(me, "", "  ")
	if err != nil {
		return nil, err
	}
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
				return nil, &HeldError{*held}
			}
		}
		l := &Lease{dir: dir, n: last + 1, text: data}
		won, err := store.CreateOnce(l.file(), data)
		if err != nil {
			return nil, err
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
	return nil, &jobs.Error{Kind: jobs.KindAgain, Msg: "the lease of " + dir + " changes hands too often", Hint: "try again"}
}

// Beat gives a sign of life in the lease's directory this often, until the lease is
// another's or stop is called. One that is missed is made up by the next.
func (l *Lease) Beat(every time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 1; ctx.Err() == nil && l.Stands(); n++ {
			_ = store.Beat(l.dir, n, time.Now())
			select {
			case <-ctx.Done():
			case <-time.After(every):
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// Release gives the lease back. It does nothing to a lease that another process
// has taken over in the meantime, or taken in a new directory of this name.
func (l *Lease) Release() error {
	if b, err := os.ReadFile(l.file()); errors.Is(err, fs.ErrNotExist) || err == nil && !bytes.Equal(b, l.text) {
		return nil
	}
	_, err := store.CreateOnce(freeFile(l.dir, l.n), nil)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the directory itself is gone
	}
	return err
}

// Stands tells whether no other process has taken the lease over. A directory that
// cannot be read does not speak against it; one that is gone does.
func (l *Lease) Stands() bool {
	last, err := lastLease(l.dir)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	if last != l.n {
		return false
	}
	b, err := os.ReadFile(l.file())
	return err != nil && !errors.Is(err, fs.ErrNotExist) || bytes.Equal(b, l.text)
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

// Holder returns who holds the lease of dir, or nil when it is free.
func Holder(dir string) (*Owner, error) {
	last, err := lastLease(dir)
	if err != nil || last == 0 {
		return nil, err
	}
	return heldBy(dir, last)
}

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
	if _, err := os.Lstat(freeFile(dir, n)); err == nil {
		return nil, nil
	}
	path := leaseFile(dir, n)
	if fi, err := os.Lstat(path); err == nil && !fi.Mode().IsRegular() {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the lease " + path + " is no plain file, and berth makes no other",
			Hint: "look at it, and remove it by hand"}
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // cleared away: there is a later one
	}
	if err != nil {
		return nil, err
	}
	var o Owner
	if err := json.Unmarshal(b, &o); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "the lease " + path + " cannot be read", Err: err,
			Hint: "when nothing uses " + dir + ", remove that file"}
	}
	return &o, nil
}
