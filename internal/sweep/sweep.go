package sweep

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
	"time"

	"berth/internal/sweep/claims"
	"berth/internal/sweep/command"
	"berth/internal/sweep/journal"
	"berth/internal/sys/disk"
	"berth/jobs"
	"berth/jobs/store"
)

// Spec is sweep.json.
type Spec struct {
	Version int      `json:"version"`
	ID      string   `json:"id"`
	Name    string   `json:"name"`
	Words   []string `json:"command"`
	Script  bool     `json:"script"` // a shell evaluates the only word
	Workdir string   `json:"workdir"`
	// TaskFile is the path of a task file, of which each row is a job; else there is a command.
	TaskFile string `json:"task_file,omitempty"`
	// Given are the flags that were given for these jobs, as words of a command line.
	Given   []string  `json:"given,omitempty"`
	Tasks   int       `json:"tasks"`
	Batch   int       `json:"batch"` // tasks that are claimed at once
	Slots   int       `json:"slots"` // tasks at once in a worker
	Created time.Time `json:"created"`
	// Limit is the longest a task may run; 0 is no limit.
	Limit time.Duration `json:"limit_ns,omitempty"`
	// Canary is that the first task has to succeed before the others begin.
	Canary bool `json:"canary,omitempty"`
	// Pilot is how many tasks, spread over the table, run before the others and are measured.
	Pilot int `json:"pilot,omitempty"`
	// StopRate is the part of the tasks that may fail before the sweep is paused; 0 is any.
	StopRate float64 `json:"stop_on_error_rate,omitempty"`
	// Collect is where tasks leave results, a pattern of files below Workdir.
	Collect string `json:"collect,omitempty"`
	// Worker is where each worker runs, and with what. Nil is the queue of the machine
	// that submitted it, as it was before this was recorded.
	Worker *jobs.Place `json:"worker,omitempty"`
	// Workers is how many jobs of a cluster are submitted, of which Together run at a
	// time; 0 of these is all.
	Workers  int `json:"workers,omitempty"`
	Together int `json:"together,omitempty"`
	// Fewer is that Workers was not said: where tasks are short there may be fewer.
	Fewer bool `json:"fewer,omitempty"`
	// EnvNames are variables of tasks whose values are in no record.
	EnvNames []string `json:"env_names,omitempty"`
	// Own is what each task has for itself where tasks are contained: [command.OwnAuto] and so on;
	// "" is nothing, as it was before there was a choice.
	Own string `json:"own,omitempty"`
	// Overlay is what each task begins with beside the image; nil is the image alone.
	Overlay *Overlay `json:"overlay,omitempty"`
	// Retry is how often a task is tried again, and for what, as for jobs. Nil is as it was
	// before there was a choice: only where its worker has ended.
	Retry *jobs.Retry `json:"retry,omitempty"`
	// Request is what each task takes of its worker.
	Request command.Request `json:"request,omitzero"`
}

// Overlay is a named overlay as it was when the sweep was submitted. The image of [Spec.Worker]
// has its files.
type Overlay struct {
	Name   string `json:"name"`
	Digest string `json:"sha256"`          // of its files
	Image  string `json:"image,omitempty"` // path of the one that it was over
}

func (o *Overlay) String() string {
	if o == nil {
		return "none"
	}
	return o.Name + " (sha256 " + o.Digest[:min(12, len(o.Digest))] + ")"
}

// Sandboxes reports whether each task has a sandbox of a service for itself. Then what is said of
// a worker's CPUs and memory is the size of a sandbox whose task says none.
func (s *Spec) Sandboxes() bool {
	return s.Worker != nil && s.Worker.External != nil && s.Own == command.OwnContainer
}

// Bounds are what no task may ask for more than; 0 of each is not known, or no bound.
func (s *Spec) Bounds() jobs.Resources {
	if s.Worker == nil || s.Sandboxes() {
		return jobs.Resources{}
	}
	return s.Worker.Resources
}

// Steps reports whether a worker can begin a step of its job for a task with several
// ranks: in a cluster's job whose tasks have no container.
func (s *Spec) Steps() bool {
	return s.Worker != nil && s.Worker.Clustered() && s.Worker.Level == jobs.LevelNone
}

// Sweep is a sweep's directory.
type Sweep struct {
	Spec  Spec
	Dir   string
	later []Round // the second, third, ...
}

// Home is the state directory that has the sweep: HOME/sweeps/NN/ID.
func (s *Sweep) Home() string { return filepath.Dir(filepath.Dir(filepath.Dir(s.Dir))) }

// SpecFile is the file without which a directory is no sweep.
func SpecFile(dir string) string { return filepath.Join(dir, fileSpec) }

// Files of a sweep.
const (
	fileSpec   = "sweep.json"
	fileText   = "definition"
	tasksName  = "tasks.1"
	tableEnd   = ".jsonl"
	offsetsEnd = ".offsets"
	fileIndex  = "index"
	fileCancel = "cancel"
	dirWorkers = "workers"
	dirClaims  = "claims"
)

// Files is how many files a sweep has when it is made.
const Files = 4

// MostFiles is how many files one has at most that is through, with so many submissions of workers, beside
// what is in containers and more than 256 MiB of output of a worker: its index; what is submitted; of each
// worker its log, record, heartbeat, end, results, output and [OwnFile]; that it is idle, where others are
// not; and its claims.
func (s *Spec) MostFiles(submissions, workers int) int {
	each := 6
	if w := s.Worker; w != nil && (w.External != nil || w.Level != jobs.LevelNone) {
		each++
	}
	if workers > 1 {
		each++
	}
	return Files + 1 + 3*submissions + each*workers + claims.Round{Tasks: s.Tasks, Batch: s.Batch}.MostFiles(workers)
}

// BatchOf is how many tasks are claimed at once: so few that each worker has some 50
// batches, and so many that there are 4,000 at most.
func BatchOf(tasks, workers int) int {
	b := tasks / (max(workers, 1) * 50)
	b = min(max(b, 1), 4096)
	return max(b, (tasks+3999)/4000)
}

// Create makes a sweep below root. tasks gives each task to add, in their order;
// when it fails, nothing is left. text is what the user has written.
func Create(root string, spec Spec, workers int, text []byte, tasks func(add func(command.Task) error) error) (s *Sweep, err error) {
	if len(spec.ID) < 8 {
		return nil, fmt.Errorf("a sweep without an id")
	}
	tmp, err := Scratch(root, spec.ID)
	if err != nil {
		return nil, err
	}
	parent := filepath.Dir(tmp)
	defer func() {
		if err != nil {
			_ = disk.RemoveTree(tmp)
		}
	}()
	if spec.Tasks, err = writeTable(tmp, tasksName, tasks); err != nil {
		return nil, err
	}
	spec.Version, spec.Batch = 1, BatchOf(spec.Tasks, workers)
	data, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{fileSpec, append(data, '\n')}, {fileText, text}} {
		if err := os.WriteFile(filepath.Join(tmp, f.name), f.data, 0o600); err != nil {
			return nil, err
		}
		if err := disk.SyncFile(filepath.Join(tmp, f.name)); err != nil {
			return nil, err
		}
	}
	for _, d := range []string{filepath.Join(dirWorkers, "000"), filepath.Join(dirClaims, "1")} {
		if err := os.MkdirAll(filepath.Join(tmp, d), 0o700); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(store.CheckLinks(filepath.Join(tmp, fileSpec)), disk.SyncDir(tmp)); err != nil {
		return nil, err
	}
	dir := filepath.Join(parent, spec.ID)
	if err := os.Rename(tmp, dir); err != nil {
		return nil, err
	}
	return &Sweep{Spec: spec, Dir: dir}, errors.Join(disk.SyncDir(parent), disk.SyncDir(root))
}

// Open opens a sweep's directory.
func Open(dir string) (*Sweep, error) {
	b, err := disk.ReadRegular(filepath.Join(dir, fileSpec), 8<<20)
	if err != nil {
		return nil, err
	}
	s := &Sweep{Dir: dir}
	if err := json.Unmarshal(b, &s.Spec); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "the record " + filepath.Join(dir, fileSpec) + " cannot be read", Err: err}
	}
	if s.Spec.Version != 1 {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("the sweep %s was made by a newer berth", dir), Hint: "use that one"}
	}
	if s.Spec.Tasks < 1 || s.Spec.Batch < 1 {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "the record " + filepath.Join(dir, fileSpec) + " has no tasks"}
	}
	if _, err := s.Reload(); err != nil {
		return nil, err
	}
	return s, nil
}

// List are the sweeps below root, the newest first. One that cannot be read is left out.
func List(root string) ([]*Sweep, error) {
	all, _, err := Scan(root)
	return all, err
}

// Unread is a sweep that cannot be read, and why.
type Unread struct {
	Dir string
	Err error
}

// Scan is List that tells of those which cannot be read, too.
func Scan(root string) (all []*Sweep, unread []Unread, err error) {
	dirs, err := filepath.Glob(filepath.Join(root, "[0-9a-f][0-9a-f]", "*-*"))
	if err != nil {
		return nil, nil, err
	}
	for _, d := range dirs {
		if strings.HasPrefix(filepath.Base(d), prefixNew) {
			continue // it is being made, or was not
		}
		s, err := Open(d)
		if err == nil && s.Spec.ID != filepath.Base(d) {
			err = &jobs.Error{Kind: jobs.KindInfra, Msg: "the record " + SpecFile(d) + " is of another sweep: " + s.Spec.ID}
		}
		switch {
		case err == nil:
			all = append(all, s)
		case !gone(d): // gc removes them
			unread = append(unread, Unread{d, err})
		}
	}
	slices.SortFunc(all, func(a, b *Sweep) int { return b.Spec.Created.Compare(a.Spec.Created) })
	return all, unread, nil
}

func gone(dir string) bool {
	_, err := os.Lstat(dir)
	return errors.Is(err, fs.ErrNotExist)
}

// Find is [Locate] for a sweep of this machine.
func Find(root, word string) (*Sweep, error) {
	s, far, err := Locate(root, word)
	if far != nil {
		err = &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("the records of sweep %s are on %s", far.Name, far.Login.Host),
			Hint: "run this there"}
	}
	return s, err
}

// Command is what its tasks run.
func (s *Sweep) Command() (*command.Template, error) { return command.New(s.Spec.Words, s.Spec.Script) }

// workersPerDir bounds the entries of a directory.
const workersPerDir = 500

// WorkerDir is where a worker writes.
func (s *Sweep) WorkerDir(n uint32) string {
	return filepath.Join(s.Dir, dirWorkers, fmt.Sprintf("%03d", n/workersPerDir), fmt.Sprintf("%06d", n))
}

// Workers are the numbers of all that there were.
func (s *Sweep) Workers() ([]uint32, error) {
	dirs, err := os.ReadDir(filepath.Join(s.Dir, dirWorkers))
	if err != nil {
		return nil, err
	}
	var all []uint32
	for _, d := range dirs {
		entries, err := os.ReadDir(filepath.Join(s.Dir, dirWorkers, d.Name()))
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if n, err := strconv.ParseUint(e.Name(), 10, 32); err == nil && n > 0 {
				all = append(all, uint32(n))
			}
		}
	}
	return all, nil
}

// NewWorker takes a number. A reply that is lost costs one.
func (s *Sweep) NewWorker() (n uint32, dir string, err error) {
	all, err := s.Workers()
	if err != nil {
		return 0, "", err
	}
	if len(all) > 0 {
		n = slices.Max(all)
	}
	for range 10_000 {
		n++
		dir = s.WorkerDir(n)
		if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
			return 0, "", err
		}
		if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
			return n, dir, err
		}
	}
	return 0, "", fmt.Errorf("no number for a worker in %s", s.Dir)
}

// Fold is how the tasks stand. It saves what it has read for the next look.
func (s *Sweep) Fold() (*journal.Fold, error) {
	path := filepath.Join(s.Dir, fileIndex)
	for {
		if _, err := s.Reload(); err != nil {
			return nil, err
		}
		f := journal.Load(path, s.Total())
		read, rounds := f.Read(), f.Rounds()
		s.applyRounds(f)
		all, err := s.Workers()
		if err != nil {
			return nil, err
		}
		if err := f.Update(all, s.WorkerDir); err != nil {
			return nil, err
		}
		// A worker may have recorded tasks of a round that was made after the look at
		// the rounds: their records were passed over.
		if more, err := s.Reload(); err != nil {
			return nil, err
		} else if more {
			continue
		}
		if f.Read() > read || f.Rounds() > rounds {
			_ = f.Save(path) // a cache, in a directory that may be full
		}
		return f, nil
	}
}

// Cancel has all workers end; what has a result keeps it.
func (s *Sweep) Cancel() error {
	_, err := store.CreateOnce(filepath.Join(s.Dir, fileCancel), []byte("{}\n"))
	return err
}

// Resume takes a cancellation and a pause back. Workers look for these once a second, so those that
// have not recorded their end have it said first in their own directories: they end, however soon
// others begin beside them.
func (s *Sweep) Resume() error {
	for _, name := range []string{fileCancel, filePause} {
		b, err := disk.ReadRegular(filepath.Join(s.Dir, name), 1<<16)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			b = []byte("{}\n") // what cannot be read holds all the same
		}
		all, err := s.Workers()
		if err != nil {
			return err
		}
		for _, w := range all {
			dir := s.WorkerDir(w)
			if _, err := os.Lstat(filepath.Join(dir, claims.EndFile)); err == nil {
				continue
			}
			if _, err := store.CreateOnce(filepath.Join(dir, name), b); err != nil {
				return err
			}
		}
		if err := os.Remove(filepath.Join(s.Dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Cancelled tells whether it was cancelled.
func (s *Sweep) Cancelled() bool { return cancelledIn(s.Dir) }

// CancelledFor tells that of one worker: a cancellation that was taken back holds for those that were there.
func (s *Sweep) CancelledFor(worker uint32) bool {
	return s.Cancelled() || cancelledIn(s.WorkerDir(worker))
}

// Ending tells whether a worker is about to end, or has, by a cancellation or a pause.
func (s *Sweep) Ending(worker uint32) bool {
	return s.CancelledFor(worker) || s.PausedFor(worker) != nil
}

// cancelledIn opens the file, as sshfs says for 20 s of a file that another machine has removed what
// it was, unless it is opened: a worker that begins after a resume would end at once.
func cancelledIn(dir string) bool {
	f, err := disk.OpenRegular(filepath.Join(dir, fileCancel))
	if err == nil {
		_ = f.Close()
	}
	return err == nil || errors.Is(err, disk.ErrNoRecord)
}
