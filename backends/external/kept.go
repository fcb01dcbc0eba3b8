package external

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

	"berth/backends/external/protocol"
	"berth/internal/sys/disk"
	"berth/jobs"
)

// kept is the record of a snapshot: snapshots/BACKEND/NAME.json in the state
// directory. It is there before the snapshot is asked for, and unclear as long
// as the result is unknown.
type kept struct {
	Version int `json:"version"`
	jobs.Snapshot
	External jobs.ExternalSpec `json:"external"`
}

func snapshotsDir(home, backend string) string { return filepath.Join(home, "snapshots", backend) }

// begin records that a snapshot is about to be made; of an unclear one of that
// name, last is true.
func (k *kept) begin(home string) (last bool, err error) {
	dir := snapshotsDir(home, k.Backend)
	if err = os.MkdirAll(dir, 0o700); err == nil {
		var b []byte
		if b, err = k.text(); err == nil {
			err = disk.Create(filepath.Join(dir, k.Name+".json"), b, 0o600)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		was, rerr := readKept(home, k.Backend, k.Name)
		switch {
		case rerr != nil:
			return false, rerr
		case !was.Unclear:
			return false, &jobs.Error{Kind: jobs.KindUsage,
				Msg:  fmt.Sprintf("there is a snapshot %s of the environment %s already", k.Name, was.Environment),
				Hint: "choose another name; or remove it: berth env snapshots --rm " + k.Name}
		case time.Since(was.Created) < underWay:
			return false, &jobs.Error{Kind: jobs.KindAgain,
				Msg:  "the snapshot " + k.Name + " was begun a moment ago, and it is not known how that ended",
				Hint: "choose another name, or try again in a quarter of an hour"}
		}
		return true, k.again(home, was)
	}
	if err == nil {
		err = disk.SyncDir(dir)
	}
	return false, k.failed(err, dir)
}

// again takes the place of an old unclear record, for one of all that find it:
// of each such record there is one claim, which is made once.
func (k *kept) again(home string, was *kept) error {
	dir := snapshotsDir(home, k.Backend)
	claim := filepath.Join(dir, claimName(k.Name)+strconv.FormatInt(was.Created.UnixNano(), 10))
	f, err := os.OpenFile(claim, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return k.taken()
	case err != nil:
		return k.failed(err, dir)
	}
	_ = f.Close()
	// The process that read the old record may be late: the record may have been
	// made again since, and removed with its claims.
	now, err := readKept(home, k.Backend, k.Name)
	switch {
	case jobs.KindOf(err) == jobs.KindNotFound || err == nil && !now.Created.Equal(was.Created):
		err = k.taken()
	case err == nil:
		err = k.save(home)
	}
	if err != nil {
		_ = os.Remove(claim)
	}
	return err
}

// claimName is what the claims on the records of a name begin with.
func claimName(name string) string { return "." + name + ".again." }

func (k *kept) taken() error {
	return &jobs.Error{Kind: jobs.KindAgain, Msg: "another process is making the snapshot " + k.Name + " again",
		Hint: "choose another name; or, where none is: berth env snapshots --rm " + k.Name}
}

// underWay is for how long a process may be making a snapshot.
const underWay = protocol.SnapshotTime + 5*time.Minute

func (k *kept) text() ([]byte, error) {
	b, err := json.MarshalIndent(k, "", "  ")
	return append(b, '\n'), err
}

func (k *kept) save(home string) error {
	dir := snapshotsDir(home, k.Backend)
	b, err := k.text()
	if err == nil {
		err = disk.Replace(filepath.Join(dir, k.Name+".json"), b, 0o600)
	}
	return k.failed(err, dir)
}

func (k *kept) failed(err error, dir string) error {
	if err != nil {
		err = &jobs.Error{Kind: jobs.KindInfra, Msg: "record the snapshot " + k.Name, Err: err, Hint: "is there space left? df -h " + dir}
	}
	return err
}

func (k *kept) forget(home string) error {
	dir := snapshotsDir(home, k.Backend)
	if err := os.Remove(filepath.Join(dir, k.Name+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), claimName(k.Name)) {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
	return err
}

func readKept(home, backend, name string) (*kept, error) {
	path := filepath.Join(snapshotsDir(home, backend), name+".json")
	b, err := os.ReadFile(path)
	var k kept
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err == nil && (k.Name != name || k.Backend != backend) {
		err = errors.New("it is about something else")
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("there is no snapshot %s of the backend %s", name, backend),
			Hint: "berth env snapshots"}
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "read the record of the snapshot " + name, Err: err, Hint: "see " + path}
	}
	return &k, nil
}

// recorded refuses a snapshot of which no record says that it can be used.
func (b *Backend) recorded(home, name string) error {
	if err := jobs.CheckSnapshotName(name); err != nil {
		return err
	}
	k, err := readKept(home, b.Word, name)
	if err == nil && k.Unclear {
		err = &jobs.Error{Kind: jobs.KindUnclear, Msg: "it is not known whether the snapshot " + name + " was made",
			Hint: "remove it: berth env snapshots --rm " + name}
	}
	return err
}

// Snapshots are those that are recorded.
func (b *Backend) Snapshots(home string, s *jobs.EnvSpec) (out []jobs.Snapshot, err error) {
	entries, err := os.ReadDir(snapshotsDir(home, b.Word))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), ".json")
		if !is || jobs.CheckSnapshotName(name) != nil {
			continue
		}
		k, kerr := readKept(home, b.Word, name)
		switch {
		case jobs.KindOf(kerr) == jobs.KindNotFound: // just now
		case kerr != nil:
			err = errors.Join(err, kerr)
		case s == nil || s.ID == k.EnvID:
			out = append(out, k.Snapshot)
		}
	}
	return out, err
}
