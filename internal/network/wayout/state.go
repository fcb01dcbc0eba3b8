package wayout

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/sys/lease"
)

// fileRelay is in the directory of an attempt or environment whose network goes by a relay.
const fileRelay = "relay.json"

// A State is relay.json: where relays come to, and the one that is there. The supervisor
// alone writes it, and removes it when it ends.
type State struct {
	Version       int           `json:"version"`
	lease.Process               // the supervisor
	Socket        string        `json:"socket"`
	Secret        string        `json:"secret,omitempty"` // [Peek] leaves it out
	Relay         *RelayProcess `json:"relay,omitempty"`  // nil: connections wait for one
	Since         time.Time     `json:"since"`            // that is so
}

// A RelayProcess is a relay, as it says itself.
type RelayProcess struct {
	Host string `json:"host"`
	PID  int    `json:"pid"`
}

// Peek reads the state of the relay of an attempt or environment. Nil is that its network
// does not go by one, or is not open at the moment.
func Peek(dir string) (*State, error) {
	s, err := peek(dir)
	if s != nil {
		s.Secret = ""
	}
	return s, err
}

func peek(dir string) (*State, error) {
	b, err := disk.ReadRegular(filepath.Join(dir, fileRelay), 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	s := &State{}
	if err == nil {
		err = json.Unmarshal(b, s)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// copySlack is by how much a time that was told from afar may differ from one round to the next.
const copySlack = 10 * time.Second

// Copied records what is known here of the relay of an attempt on another machine: since
// when its connections wait for one; zero is not at all. There is no socket in the copy,
// and no secret.
func Copied(dir string, since time.Time) error {
	if since.IsZero() {
		if err := os.Remove(filepath.Join(dir, fileRelay)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	if now, err := peek(dir); err == nil && now != nil && now.Since.Sub(since).Abs() < copySlack {
		return nil
	}
	return (&State{Version: version, Since: since.UTC()}).write(dir)
}

func (s *State) write(dir string) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return disk.Replace(filepath.Join(dir, fileRelay), append(b, '\n'), 0o600)
}

// remove removes the file, unless another supervisor has written it by now.
func (s *State) remove(dir string) {
	if now, err := peek(dir); err == nil && now != nil && now.Secret == s.Secret {
		_ = os.Remove(filepath.Join(dir, fileRelay))
	}
}
