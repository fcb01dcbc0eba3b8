//go:build linux

package pool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"berth/internal/sys/disk"
	"berth/internal/sys/lease"
	"berth/jobs"
)

// Site is what an administrator says of a pool.
type Site struct {
	Nodes  []string      // names that jobs see; all are this machine
	CPUs   int           // of each
	Memory jobs.Bytes    // of each
	Limit  time.Duration // the most that a job may ask for; 0 is no bound
	Grace  time.Duration // between TERM and KILL
	Env    []string      // NAME=VALUE that every job begins with
}

// Setup makes a yard.
func Setup(dir string, s Site) error {
	if err := os.MkdirAll(filepath.Join(dir, "tickets"), 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, fileSite), b, 0o600)
}

// Files of a yard, and of a ticket's directory. An ask is a file that its shepherd
// takes away when it has done what it says.
const (
	fileSite   = "site.json"
	fileLock   = "lock"
	fileTicket = "ticket.json"
	fileScript = "script"
	dirSteps   = "steps"

	askEnd     = "ask-end"
	askAgain   = "ask-again"
	askHold    = "ask-hold"
	askRelease = "ask-release"
	askStill   = "ask-still"
	askOn      = "ask-on"
)

// yard is the directory of a pool.
type yard string

func (y yard) site() (s Site, err error) {
	b, err := os.ReadFile(filepath.Join(string(y), fileSite))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

func (y yard) dir(id string) string { return filepath.Join(string(y), "tickets", id) }

var idPattern = regexp.MustCompile(`^p-([0-9]{4,9})\.pool$`)

// The states of a ticket.
const (
	queued    = "Q"
	held      = "H"
	runs      = "R"
	suspended = "S"
	finished  = "F"
	ended     = "X"
)

// Why a ticket was ended.
const (
	byPerson = "stopped" // a person asked for it
	byLimit  = "clock"   // its time was up
	byCrew   = "crew"    // its processes were lost, and no verb here had ended them
	byRoom   = "moved"   // it had to go, and is not to be started again
)

// ticket is a job. Its shepherd alone writes it, once it runs.
type ticket struct {
	ID    string `json:"id"`
	Title string `json:"title"`
	order

	State    string    `json:"state"`
	Why      string    `json:"why,omitempty"` // it waits, or was ended
	By       string    `json:"by,omitempty"`  // who ended it
	Round    int       `json:"round,omitempty"`
	Node     string    `json:"node,omitempty"`
	Made     time.Time `json:"made"`
	Began    time.Time `json:"began,omitzero"`
	Stops    time.Time `json:"stops,omitzero"`
	Code     int       `json:"code,omitempty"`
	Signal   int       `json:"signal,omitempty"`
	Ending   bool      `json:"ending,omitempty"`
	Shepherd int       `json:"shepherd,omitempty"`
	Start    string    `json:"start,omitempty"` // of the shepherd, see [lease.StartTime]
}

func (t *ticket) over() bool { return t.State == finished || t.State == ended }

// stands reports whether a process looks after a ticket that is not over.
func (t *ticket) stands() bool {
	return !t.over() && (t.Shepherd == 0 && time.Since(t.Made) < time.Minute || t.Shepherd != 0 && lease.StartTime(t.Shepherd) == t.Start)
}

func (y yard) load(id string) (*ticket, error) {
	b, err := os.ReadFile(filepath.Join(y.dir(id), fileTicket))
	if err != nil {
		return nil, err
	}
	t := &ticket{}
	return t, json.Unmarshal(b, t)
}

func (y yard) save(t *ticket) error {
	b, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	dir := y.dir(t.ID)
	tmp, err := disk.WriteTemp(dir, append(b, '\n'), 0o600)
	if err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, fileTicket))
}

// tickets are all that there are, in the order of their numbers. One that is being
// made has no record yet.
func (y yard) tickets() ([]*ticket, error) {
	list, err := os.ReadDir(filepath.Join(string(y), "tickets"))
	if err != nil {
		return nil, err
	}
	var out []*ticket
	for _, e := range list {
		if !idPattern.MatchString(e.Name()) {
			continue
		}
		t, err := y.load(e.Name())
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// make draws a number and writes a ticket for a script. Behind all that it names it
// waits for those that stand with the same title: one is submitted twice at times.
func (y yard) make(o order, script []byte) (*ticket, error) {
	lock, err := os.OpenFile(filepath.Join(string(y), fileLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Flock(int(lock.Fd()), unix.LOCK_UN) }()
	all, err := y.tickets()
	if err != nil {
		return nil, err
	}
	n := 0
	for _, t := range all {
		k, _ := strconv.Atoi(idPattern.FindStringSubmatch(t.ID)[1])
		n = max(n, k)
		if t.Title == o.Title && t.stands() && !slices.Contains(o.Behind, t.ID) {
			o.Behind = append(o.Behind, t.ID)
		}
	}
	now := time.Now().UTC()
	t := &ticket{ID: fmt.Sprintf("p-%04d.pool", n+1), Title: o.Title, order: o, State: queued, Made: now}
	dir := y.dir(t.ID)
	if err := os.MkdirAll(filepath.Join(dir, dirSteps), 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, fileScript), script, 0o600); err != nil {
		return nil, err
	}
	return t, y.save(t)
}

// ask leaves a wish for a ticket's shepherd; by stands in it.
func (y yard) ask(id, what, by string) error {
	t, err := y.load(id)
	if err != nil || !t.stands() {
		return err
	}
	return os.WriteFile(filepath.Join(y.dir(id), what), []byte(by), 0o600)
}

// asked reads such a wish.
func (y yard) asked(id, what string) (by string, ok bool) {
	b, err := os.ReadFile(filepath.Join(y.dir(id), what))
	return string(b), err == nil
}

// done takes it away.
func (y yard) done(id, what string) { _ = os.Remove(filepath.Join(y.dir(id), what)) }

// variables are what a process of a ticket's job finds in its environment.
func (y yard) variables(t *ticket) []string {
	env := []string{"POOL_YARD=" + string(y), "POOL_TICKET=" + t.ID, "POOL_TITLE=" + t.Title, "POOL_HOST=" + t.Node, "POOL_ROUND=" + strconv.Itoa(t.Round),
		"POOL_BEGAN=" + t.Began.Format(time.RFC3339Nano)}
	if !t.Stops.IsZero() {
		env = append(env, "POOL_STOPS="+t.Stops.Format(time.RFC3339Nano))
	}
	return env
}

// status is a ticket in the words of package jobs.
func (t *ticket) status() jobs.Status {
	st := jobs.Status{NativeState: t.State, Node: t.Node, Start: t.Began, Code: t.Code, Signal: t.Signal, Reason: t.Why, Ending: t.Ending}
	switch t.State {
	case queued:
		st.State = jobs.StatePending
	case held:
		st.State, st.Held, st.Explanation, st.Hint = jobs.StatePending, true, "is held back by hand", "pool release "+t.ID
	case runs:
		st.State = jobs.StateRunning
	case suspended:
		st.State, st.Paused = jobs.StateRunning, true
	case finished:
		if st.State = jobs.StateFailed; t.Code == 0 {
			st.State = jobs.StateCompleted
		}
	case ended:
		st.State, st.By = jobs.StateError, t.By
		switch t.Why {
		case byPerson:
			st.State = jobs.StateCancelled
		case byLimit:
			st.State, st.Class = jobs.StateTimeout, jobs.ClassTime
		case byCrew:
			st.Class, st.Explanation = jobs.ClassNode, "lost its processes on "+t.Node
		case byRoom:
			st.Class, st.Explanation = jobs.ClassPreempted, "had to make room"
		}
	}
	return st
}

// words splits a list of a directive.
func words(s string) []string { return strings.Fields(s) }
