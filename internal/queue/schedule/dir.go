package schedule

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

	"berth/internal/sys/disk"
	"berth/internal/sys/pattern"
	"berth/jobs"
	"berth/jobs/store"
)

// Files of a schedule, in a directory that has its name.
const (
	fileSchedule = "schedule.json"
	fileTask     = "task.md" // of one that was imported
	dirStates    = "states"  // N.json: each pause and resumption
	dirRuns      = "runs"    // DUE.json is what was decided, DUE.done.json what came of it
	suffix       = ".json"
	suffixDone   = ".done.json"
	prefixNew    = ".new-"
	prefixGone   = ".gone-"
)

const (
	// mostRuns are kept of each schedule.
	mostRuns = 100
	// mostMissed is how far due times that passed are counted.
	mostMissed = 1000
	maxFile    = 1 << 20
)

// Dir has the schedules of a state directory.
type Dir struct{ path string }

// At returns those of the state directory home.
func At(home string) Dir { return Dir{filepath.Join(home, "schedules")} }

// Chain is where the jobs that start what is due are recorded.
func (d Dir) Chain() string { return filepath.Join(d.path, ".chain") }

// Entry is a schedule as it stands on the disk.
type Entry struct {
	jobs.Schedule
	Path   string
	Paused bool
	// Since is when it was made or last resumed: due times up to it do not count.
	Since time.Time
	Runs  []jobs.ScheduleRun // the oldest first
	// Bad is why it cannot be used: its record or one of its files cannot be read.
	Bad error

	states int
	times  Times
}

var nameForm = pattern.Lazy(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// CheckName refuses a name that cannot be a directory's.
func CheckName(name string) error {
	if nameForm().MatchString(name) {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q cannot be the name of a schedule", name),
		Hint: "a name has letters, digits and . _ -, begins with one of the first two and has at most 63 characters"}
}

// Create records a schedule, with the text of its task file if berth keeps that. words
// gets the path at which the text stands then.
func (d Dir) Create(s jobs.Schedule, task []byte) (err error) {
	if err := CheckName(s.Name); err != nil {
		return err
	}
	if err := os.MkdirAll(d.path, 0o700); err != nil {
		return infra("make the directory of schedules", err)
	}
	tmp, err := os.MkdirTemp(d.path, prefixNew)
	if err != nil {
		return infra("record the schedule", err)
	}
	defer func() {
		if err != nil {
			_ = disk.RemoveTree(tmp)
		}
	}()
	if task != nil {
		s.Words = append(slices.Clone(s.Words), filepath.Join(d.path, s.Name, fileTask))
		if err := disk.Create(filepath.Join(tmp, fileTask), task, 0o600); err != nil {
			return infra("record the schedule", err)
		}
	}
	s.Version = 1
	if err := create(filepath.Join(tmp, fileSchedule), s); err != nil {
		return err
	}
	for _, sub := range []string{dirStates, dirRuns} {
		if err := os.Mkdir(filepath.Join(tmp, sub), 0o700); err != nil {
			return infra("record the schedule", err)
		}
	}
	if err := disk.SyncDir(tmp); err != nil {
		return infra("record the schedule", err)
	}
	// A directory takes no other's place but an empty one's.
	if err := os.Rename(tmp, filepath.Join(d.path, s.Name)); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "there is a schedule " + s.Name + " already",
				Hint: "--name gives this one another name; berth schedule rm " + s.Name + " removes that one"}
		}
		return infra("record the schedule", err)
	}
	return disk.SyncDir(d.path)
}

func infra(what string, err error) error {
	return &jobs.Error{Kind: jobs.KindInfra, Msg: what, Err: err}
}

func create(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		err = disk.Create(path, append(b, '\n'), 0o600)
	}
	if err != nil {
		return infra("write "+path, err)
	}
	return nil
}

// createOnce reports whether this call has made the file.
func createOnce(path string, v any) (bool, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return false, infra("write "+path, err)
	}
	return store.CreateOnce(path, append(b, '\n'))
}

func read(path string, v any) error {
	b, err := disk.ReadRegular(path, maxFile)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "the record " + path + " cannot be read", Err: err}
	}
	return nil
}

// List returns all schedules, by name. One that cannot be read is among them, see
// [Entry.Bad].
func (d Dir) List() ([]*Entry, error) {
	dirs, err := os.ReadDir(d.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, infra("list the schedules", err)
	}
	var all []*Entry
	for _, f := range dirs {
		if nameForm().MatchString(f.Name()) {
			if e := d.load(f.Name()); !errors.Is(e.Bad, fs.ErrNotExist) { // removed meanwhile
				all = append(all, e)
			}
		}
	}
	return all, nil
}

// Find returns the schedule of this name.
func (d Dir) Find(name string) (*Entry, error) {
	missing := &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("there is no schedule %q", name), Hint: "berth schedule ls lists them"}
	if !nameForm().MatchString(name) {
		return nil, missing
	}
	e := d.load(name)
	if errors.Is(e.Bad, fs.ErrNotExist) {
		return nil, missing
	}
	return e, nil
}

// Task is the text of the task file that berth keeps with it; nil is that there is none.
func (e *Entry) Task() ([]byte, error) {
	b, err := disk.ReadRegular(filepath.Join(e.Path, fileTask), maxFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, infra("read the task file of the schedule "+e.Name, err)
	}
	return b, nil
}

func (d Dir) load(name string) *Entry {
	e := &Entry{Path: filepath.Join(d.path, name)}
	e.Bad = e.read()
	e.Name = name
	return e
}

func (e *Entry) read() (err error) {
	if err := read(filepath.Join(e.Path, fileSchedule), &e.Schedule); err != nil {
		return err
	}
	if e.Version != 1 {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the schedule " + e.Name + " was made by a newer berth", Hint: "use that one"}
	}
	if e.times, err = TimesOf(&e.Schedule); err != nil {
		return err
	}
	e.Since = e.Created
	n, _, err := lastNumber(filepath.Join(e.Path, dirStates))
	if err != nil {
		return err
	}
	if e.states = n; n > 0 {
		var s state
		if err := read(filepath.Join(e.Path, dirStates, strconv.Itoa(n)+suffix), &s); err != nil {
			return err
		}
		e.Paused, e.Since = s.Paused, s.Time
	}
	return e.readRuns()
}

// lastNumber is the highest N of the files N.json in a directory.
func lastNumber(dir string) (last int, names []string, err error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0, nil, infra("read "+dir, err)
	}
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), suffix)
		if n, err := strconv.Atoi(name); ok && err == nil && n > 0 {
			last = max(last, n)
		}
		names = append(names, f.Name())
	}
	return last, names, nil
}

func (e *Entry) readRuns() error {
	dir := filepath.Join(e.Path, dirRuns)
	files, err := os.ReadDir(dir)
	if err != nil {
		return infra("read "+dir, err)
	}
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), suffix)
		if !ok || strings.HasSuffix(f.Name(), suffixDone) || strings.HasPrefix(name, ".") {
			continue
		}
		r, err := e.run(name)
		if err != nil {
			return err
		}
		e.Runs = append(e.Runs, r)
	}
	slices.SortFunc(e.Runs, func(a, b jobs.ScheduleRun) int { return a.Due.Compare(b.Due) })
	return nil
}

func (e *Entry) run(name string) (r jobs.ScheduleRun, err error) {
	path := filepath.Join(e.Path, dirRuns, name)
	if err := read(path+suffix, &r); err != nil {
		return r, err
	}
	r.Name = name
	var o jobs.ScheduleOutcome
	if err := read(path+suffixDone, &o); err == nil {
		r.Outcome = &o
	} else if !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	return r, nil
}

// state is that of a schedule since a moment.
type state struct {
	Version int       `json:"version"`
	Paused  bool      `json:"paused"`
	Time    time.Time `json:"time"`
}

// SetPaused pauses or resumes a schedule; false is that it was so already. What was due
// while it was paused is not made up for.
func (e *Entry) SetPaused(paused bool, now time.Time) (changed bool, err error) {
	if e.Paused == paused {
		return false, nil
	}
	path := filepath.Join(e.Path, dirStates, strconv.Itoa(e.states+1)+suffix)
	return createOnce(path, state{1, paused, now.UTC()})
}

// Remove removes a schedule. The jobs of its runs stay.
func (d Dir) Remove(e *Entry) error {
	gone, err := os.MkdirTemp(d.path, prefixGone)
	if err == nil {
		err = os.Rename(e.Path, filepath.Join(gone, e.Name))
		err = errors.Join(err, disk.RemoveTree(gone))
	}
	if err != nil {
		return infra("remove the schedule "+e.Name, err)
	}
	return disk.SyncDir(d.path)
}

// stamp names a run by its due time.
func stamp(t time.Time) string { return t.UTC().Format("20060102T150405Z") }

// Key is the idempotency key under which a run is submitted: whoever looks at the
// schedule when it is due, on whatever host, submits one job.
func (e *Entry) Key(r *jobs.ScheduleRun) string { return "schedule " + e.ID + " " + r.Name }

// Decide records what is to be done at a due time, unless that is decided already; it
// returns what counts.
func (e *Entry) Decide(r jobs.ScheduleRun) (jobs.ScheduleRun, error) {
	r.Version = 1
	if r.Name == "" {
		r.Name = stamp(r.Due)
	}
	won, err := createOnce(filepath.Join(e.Path, dirRuns, r.Name+suffix), r)
	if err != nil {
		return r, infra("record a run of "+e.Name, err)
	}
	if !won {
		return e.run(r.Name)
	}
	e.prune()
	return r, nil
}

// Conclude records what came of a run.
func (e *Entry) Conclude(r *jobs.ScheduleRun, o jobs.ScheduleOutcome) error {
	o.Version = 1
	if _, err := createOnce(filepath.Join(e.Path, dirRuns, r.Name+suffixDone), o); err != nil {
		return infra("record a run of "+e.Name, err)
	}
	r.Outcome = &o
	return nil
}

// prune forgets the oldest runs. Their jobs, and the keys of these, stay.
func (e *Entry) prune() {
	for len(e.Runs) >= mostRuns {
		path := filepath.Join(e.Path, dirRuns, e.Runs[0].Name)
		_ = os.Remove(path + suffix)
		_ = os.Remove(path + suffixDone)
		e.Runs = e.Runs[1:]
	}
}
