package keeper

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/sys/lease"
	"berth/internal/sys/socket"
	"berth/jobs"
	"berth/jobs/store"
)

// Names in the directory of an environment, beside env.json and what
// [lease.Lease] writes.
const (
	fileInfo   = "keeper.json"
	fileLog    = "runtime.log"
	dirBG      = "bg"
	infoSchema = 1
)

// FileEnded is beside the reports of an allocation's keeper when the end of that
// allocation is recorded.
const FileEnded = "ended.json"

// Phases of a keeper, see [Info].
const (
	phaseOpening = "opening"
	phaseReady   = "ready"
	phaseEnded   = "ended"
)

// Info is keeper.json: who keeps an environment, or kept it last. Only the
// holder of the environment's lease writes it.
type Info struct {
	Version int    `json:"version"`
	ID      string `json:"id"` // of the environment
	Phase   string `json:"phase"`
	lease.Process
	Socket   string `json:"socket"`
	Protocol int    `json:"protocol"`
	// Secret is what a client says before anything else: to reach the socket is
	// not enough. [Peek] leaves it out; it is empty in records of before.
	Secret string    `json:"secret,omitempty"`
	Began  time.Time `json:"began"`
	Opened time.Time `json:"opened,omitzero"`
	// Allocation is the scheduler's id of the job whose batch process the
	// keeper is, and Ends when its time is up; empty and zero outside of one.
	Allocation string    `json:"allocation,omitempty"`
	Ends       time.Time `json:"ends,omitzero"`
	Notes      []string  `json:"notes,omitempty"`
	// Level is the containment that was reached, and Proof how that was found out
	// from inside, in words; empty where there is none.
	Level jobs.Level `json:"level,omitempty"`
	Proof []string   `json:"proof,omitempty"`
	// Inside are the processes which hold the container, as this machine
	// numbers them: before another keeper opens the environment, they must be
	// gone.
	Inside []Inside `json:"inside,omitempty"`
	// Scratch is its scratch directory, and Destroyed what was found when that and the rest
	// had been destroyed; nil is that nothing was, or that it was not looked for.
	Scratch   string          `json:"scratch,omitempty"`
	Destroyed *jobs.Destroyed `json:"destroyed,omitempty"`
	// Ended and Why are of an orderly end; a keeper that was killed has none.
	Ended time.Time `json:"ended,omitzero"`
	Why   string    `json:"why,omitempty"`
	// Running tells whether that keeper is alive, as far as this machine can
	// tell.
	Running bool `json:"-"`
}

// Inside is a process that holds a container.
type Inside struct {
	PID   int    `json:"pid"`
	Start string `json:"start"`
}

// alive tells whether it is there.
func (p Inside) alive() bool {
	at := lease.StartTime(p.PID)
	return at == p.Start || at == lease.UnknownStart
}

// Peek reads what stands on the disk of the environment's last keeper, without
// talking to it; nil when there was none.
func Peek(dir string) (*Info, error) {
	i, err := peek(dir)
	if i != nil {
		i.Secret = ""
	}
	return i, err
}

// peek is [Peek] for who connects.
func peek(dir string) (*Info, error) {
	path := filepath.Join(dir, fileInfo)
	b, err := disk.ReadRegular(path, 8<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "read " + path, Err: err}
	}
	return parse(b, path)
}

func parse(b []byte, path string) (*Info, error) {
	var i Info
	if err := json.Unmarshal(b, &i); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: path + " cannot be read", Err: err, Hint: "remove it; the environment's files are not in it"}
	}
	i.Running = i.Phase != phaseEnded && !i.Gone(lease.Self())
	return &i, nil
}

// PeekWith is [Peek] for a directory that read reads files of, such as one on another
// machine; its error for a file that is not there is [fs.ErrNotExist].
func PeekWith(read func(path string) ([]byte, error), dir string) (*Info, error) {
	path := filepath.Join(dir, fileInfo)
	b, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	i, err := parse(b, path)
	if i != nil {
		i.Secret = ""
	}
	return i, err
}

// RemoveSocket removes the socket in which a keeper of the environment in dir
// listened that was killed on this machine. The caller holds the environment.
func RemoveSocket(dir string) {
	i, err := Peek(dir)
	if err != nil || i == nil || i.Running || !i.Near(lease.Self()) {
		return
	}
	// A later one that could not open it has not listened anywhere.
	if at, err := socket.Dir(); err == nil {
		_ = os.Remove(filepath.Join(at, socket.Name("keep", i.ID, dir)))
	}
}

// Hold takes the environment in dir, of which id is meant, so that no keeper
// opens it while it is removed. One that is open is an error; so is another
// environment in its place. release gives it back, if it is still there.
func Hold(dir, id string) (release func(), err error) {
	self := lease.Self()
	name := filepath.Base(dir)
	me := self.Owner(dir)
	me.Environment = name
	l, err := lease.Acquire(dir, me, func(o lease.Owner) bool { return o.Process().Gone(self) })
	var held *lease.HeldError
	switch {
	case errors.As(err, &held):
		return nil, &jobs.Error{Kind: jobs.KindAgain, Msg: "the environment " + name + " is in use", Err: held, Hint: "berth env stop " + name}
	case errors.Is(err, fs.ErrNotExist):
		if _, err = store.LoadEnv(dir); err == nil { // there was none a moment ago
			err = anotherOne(dir)
		}
		return nil, err
	case err != nil:
		return nil, &jobs.Error{Kind: jobs.KindOf(err), Msg: "take the environment " + name, Err: err, Hint: jobs.HintOf(err)}
	}
	if is, err := store.LoadEnv(dir); jobs.KindOf(err) != jobs.KindNotFound && (err != nil || is.ID != id) {
		_ = l.Release()
		if err == nil {
			err = anotherOne(dir)
		}
		return nil, err
	}
	return func() { _ = l.Release() }, nil
}

func anotherOne(dir string) error {
	return &jobs.Error{Kind: jobs.KindAgain, Msg: "the environment " + filepath.Base(dir) + " was removed, and another one was made in its place",
		Hint: "look again: berth env ls"}
}

// Alive tells whether an environment may have a keeper: its lease has a holder
// that is not provably gone.
func Alive(dir string) bool {
	o, err := lease.Holder(dir)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	return o != nil && !o.Process().Gone(lease.Self())
}

// save writes keeper.json.
func (i *Info) save(dir string) error {
	b, err := json.MarshalIndent(i, "", "  ")
	if err != nil {
		return err
	}
	return disk.Replace(filepath.Join(dir, fileInfo), append(b, '\n'), 0o600)
}
