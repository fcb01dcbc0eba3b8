package allocations

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"berth/internal/node/keeper"
	"berth/internal/sys/ids"
	"berth/jobs"
	"berth/jobs/store"
)

// Names below an environment's directory, see the package's documentation.
const (
	dirAllocations = "allocations"
	fileAllocation = "allocation.json"
	fileScript     = "script.sh"
	fileSubmitted  = "submitted.json"
	fileEnded      = keeper.FileEnded
	fileReports    = "reports"
)

// Allocation is one allocation of an environment, as far as it is recorded.
type Allocation struct {
	Version int       `json:"version"`
	ID      string    `json:"id"` // UUIDv7
	Number  int       `json:"number"`
	Name    string    `json:"name"` // [jobs.JobName], by which the scheduler is asked for it
	Created time.Time `json:"created"`

	dir       string
	submitted *jobs.Submitted
	ended     *Ended
	fresh     bool // this client has seen it begin
}

// Ended is what became of an allocation.
type Ended struct {
	Version int        `json:"version"`
	State   jobs.State `json:"state,omitempty"` // by the scheduler
	Word    string     `json:"word,omitempty"`  // the scheduler's own, such as TIMEOUT; "" when it has none
	Why     string     `json:"why,omitempty"`
	Code    int        `json:"code,omitempty"` // of the job script
	Time    time.Time  `json:"time"`           // when that was found out
}

// String says it to people.
func (e *Ended) String() string {
	switch {
	case e.Word == "":
		return e.Why
	case e.Why == "":
		return e.Word
	}
	return e.Word + ", " + e.Why
}

// Native is the scheduler's id of it, or "".
func (a *Allocation) Native() string {
	if a.submitted == nil {
		return ""
	}
	return a.submitted.Handle.NativeID
}

// String names it to people.
func (a *Allocation) String() string {
	if id := a.Native(); id != "" {
		return "allocation " + id
	}
	return fmt.Sprintf("allocation number %d", a.Number)
}

// last reads the newest allocation below an environment's directory; nil when
// there was none.
func last(dir string) (*Allocation, error) {
	entries, err := os.ReadDir(filepath.Join(dir, dirAllocations))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "read the allocations of the environment", Err: err}
	}
	n := 0
	for _, e := range entries {
		if i, err := strconv.Atoi(e.Name()); err == nil {
			n = max(n, i)
		}
	}
	if n == 0 {
		return nil, nil
	}
	return load(dir, n)
}

func dirOf(dir string, n int) string {
	return filepath.Join(dir, dirAllocations, fmt.Sprintf("%04d", n))
}

// load reads one. Whoever has made the directory and not yet its record is
// about to: it is an allocation without a name.
func load(dir string, n int) (*Allocation, error) {
	a := &Allocation{Number: n, dir: dirOf(dir, n)}
	if fi, err := os.Stat(a.dir); err == nil {
		a.Created = fi.ModTime()
	}
	sub, end := &jobs.Submitted{}, &Ended{}
	for _, f := range []struct {
		name string
		into any
		got  func()
	}{
		{fileAllocation, a, func() {}},
		{fileSubmitted, sub, func() { a.submitted = sub }},
		{fileEnded, end, func() { a.ended = end }},
	} {
		path := filepath.Join(a.dir, f.name)
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = json.Unmarshal(b, f.into)
		}
		if err != nil {
			return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: path + " cannot be read", Err: err,
				Hint: "berth env rm removes the environment with its records and its files"}
		}
		f.got()
	}
	return a, nil
}

// create makes the record of allocation n. It returns false when another process
// has made it.
func create(dir string, n int, name string, now time.Time) (*Allocation, bool, error) {
	fail := func(err error) (*Allocation, bool, error) {
		return nil, false, &jobs.Error{Kind: jobs.KindInfra, Msg: "record an allocation of the environment", Err: err,
			Hint: "is there space left? df -h " + dir}
	}
	// Not all of its parents: the environment may just have been removed.
	if err := os.Mkdir(filepath.Join(dir, dirAllocations), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fail(err)
	}
	id, err := ids.New()
	if err != nil {
		return fail(err)
	}
	a := &Allocation{Version: 1, ID: id, Number: n, Name: jobs.JobName(jobs.Slug("env "+name), id), Created: now.UTC(), dir: dirOf(dir, n)}
	switch err := os.Mkdir(a.dir, 0o700); {
	case errors.Is(err, fs.ErrExist):
		return nil, false, nil
	case err != nil:
		return fail(err)
	}
	if won, err := a.once(fileAllocation, a); err != nil || !won {
		return fail(errors.Join(err, errors.New("the record was not taken")))
	}
	return a, true, nil
}

// once writes one of its files.
func (a *Allocation) once(name string, v any) (bool, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return false, err
	}
	return store.CreateOnce(filepath.Join(a.dir, name), append(b, '\n'))
}

// end records what became of it. Who comes second finds the first one's word.
func (a *Allocation) end(st jobs.Status, now time.Time) {
	a.ended = &Ended{Version: 1, State: st.State, Word: st.NativeState, Why: st.Reason, Code: st.Code, Time: now.UTC()}
	_, _ = a.once(fileEnded, a.ended) // found out again otherwise
}

// last is the last word of its keeper's start: that it is ready, or an error;
// nil when there is none yet.
func (a *Allocation) last(read func(path string) ([]byte, error)) *keeper.Report {
	b, err := read(filepath.Join(a.dir, fileReports))
	if err != nil {
		return nil
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		var r keeper.Report
		if json.Unmarshal(lines.Bytes(), &r) == nil && (r.Ready || r.Err() != nil) {
			return &r
		}
	}
	return nil
}
