package overlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
type Lease struct {
	path string
	data []byte
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
	path := filepath.Join(dir, fileLease)
	for range 3 {
		won, err := store.CreateOnce(path, data)
		if err != nil {
			return nil, fmt.Errorf("lease overlay %s: %w", filepath.Base(dir), err)
		}
		if won {
			return &Lease{path: path, data: data}, nil
		}
		held, raw, err := readLease(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // given back in between
		}
		if err != nil {
			return nil, err
		}
		if !gone(held) {
			return nil, &jobs.Error{Kind: jobs.KindAgain,
				Msg:  fmt.Sprintf("overlay %s is in use by attempt %s on %s since %s", filepath.Base(dir), jobs.Short(held.Attempt), held.Host, held.Time.Format(time.RFC3339)),
				Hint: "wait for that job (berth ps), or give this task an overlay of its own"}
		}
		if err := remove(path, raw); err != nil {
			return nil, err
		}
	}
	return nil, &jobs.Error{Kind: jobs.KindAgain, Msg: "overlay " + filepath.Base(dir) + " changes hands too often", Hint: "try again"}
}

// Release gives the lease back. A lease that somebody else has taken over in
// the meantime is left alone.
func (l *Lease) Release() error { return remove(l.path, l.data) }

// remove takes away the lease with exactly this content. It is renamed to a
// name of its content's first, so that of two who saw the same dead owner
// only one goes on, and a fresh lease is put back if it was caught instead.
func remove(path string, content []byte) error {
	aside := fmt.Sprintf("%s.%d.%d", path, os.Getpid(), time.Now().UnixNano())
	if err := os.Rename(path, aside); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	got, err := os.ReadFile(aside)
	if err != nil {
		return err
	}
	if string(got) != string(content) {
		if err := os.Link(aside, path); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return os.Remove(aside)
}

func readLease(path string) (Owner, []byte, error) {
	var o Owner
	b, err := os.ReadFile(path)
	if err != nil {
		return o, nil, err
	}
	if err := json.Unmarshal(b, &o); err != nil {
		return o, nil, fmt.Errorf("read lease %s: %w", path, err)
	}
	return o, b, nil
}
