package sweep

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"berth/internal/sweep/claims"
	"berth/internal/sweep/command"
	"berth/internal/sweep/journal"
	"berth/internal/sys/disk"
	"berth/jobs"
	"berth/jobs/store"
)

const dirRounds = "rounds"

// mostRounds is how many a sweep may have; mostRound bounds the bytes of one's record.
const (
	mostRounds = 9999
	mostRound  = 512 << 20
)

// Numbers are the numbers of tasks, in their order, as ranges with both ends. It is a
// few bytes for tasks that stand together, and some 12 for one that stands alone.
type Numbers [][2]int

// Add puts a number behind the others, which are smaller.
func (n *Numbers) Add(task int) {
	if l := len(*n); l > 0 && (*n)[l-1][1] == task-1 {
		(*n)[l-1][1] = task
		return
	}
	*n = append(*n, [2]int{task, task})
}

// Len is how many there are.
func (n Numbers) Len() (total int) {
	for _, r := range n {
		total += r[1] - r[0] + 1
	}
	return total
}

// Has tells whether a task is one of them.
func (n Numbers) Has(task int) bool {
	i := sort.Search(len(n), func(i int) bool { return n[i][1] >= task })
	return i < len(n) && n[i][0] <= task
}

// Meet tells whether one of others, which are few, is among them.
func (n Numbers) Meet(others Numbers) (meet bool) {
	others.Each(func(t int) { meet = meet || n.Has(t) })
	return meet
}

// part are those from place lo to place hi, counted from 1.
func (n Numbers) part(lo, hi int) Numbers {
	var out Numbers
	at := 1 // the place of the range's first
	for _, r := range n {
		size := r[1] - r[0] + 1
		from, to := max(lo, at), min(hi, at+size-1)
		if from <= to {
			out = append(out, [2]int{r[0] + from - at, r[0] + to - at})
		}
		at += size
	}
	return out
}

// Each calls f with each.
func (n Numbers) Each(f func(task int)) {
	for _, r := range n {
		for t := r[0]; t <= r[1]; t++ {
			f(t)
		}
	}
}

// valid tells whether they ascend and stand in a table of so many.
func (n Numbers) valid(tasks int) bool {
	last := 0
	for _, r := range n {
		if r[0] <= last || r[1] < r[0] || r[1] > tasks {
			return false
		}
		last = r[1]
	}
	return true
}

// The kinds of rounds behind the first one.
const (
	RoundRetry  = "retry"
	RoundAdd    = "add"
	RoundResume = "resume" // the definition has changed
)

// Round is rounds/N.json: tasks that run, again or for the first time. The result of a
// higher round counts.
type Round struct {
	Version int       `json:"version"`
	Number  int       `json:"round"`
	Kind    string    `json:"kind"`
	Why     string    `json:"why,omitempty"` // as its user has said it
	Created time.Time `json:"created"`
	Batch   int       `json:"batch"`
	Runs    Numbers   `json:"runs"`
	// Withdrawn are tasks that are not to run any more, where they have no result.
	Withdrawn Numbers `json:"withdrawn,omitempty"`
	// Table has the tasks that come with the round, behind all others.
	Table *Table `json:"table,omitempty"`
}

// Table is a table of tasks.
type Table struct {
	Name  string `json:"name"` // of NAME.jsonl and NAME.offsets
	First int    `json:"first"`
	Tasks int    `json:"tasks"`
}

// Claims are the batches of a round.
func (s *Sweep) Claims(number int) claims.Round {
	r := s.Round(number)
	return claims.Round{Dir: filepath.Join(s.Dir, dirClaims, fmt.Sprint(number)), Tasks: r.Runs.Len(), Batch: r.Batch}
}

// Round is one of the rounds that were read, from 1.
func (s *Sweep) Round(number int) Round {
	if number == 1 {
		return Round{Version: 1, Number: 1, Created: s.Spec.Created, Batch: s.Spec.Batch, Runs: Numbers{{1, s.Spec.Tasks}}}
	}
	return s.later[number-2]
}

// Rounds is how many there are.
func (s *Sweep) Rounds() int { return 1 + len(s.later) }

// Total is how many tasks there are, those of later rounds too.
func (s *Sweep) Total() int {
	n := s.Spec.Tasks
	for _, r := range s.later {
		if r.Table != nil {
			n += r.Table.Tasks
		}
	}
	return n
}

func (s *Sweep) roundFile(n int) string {
	return filepath.Join(s.Dir, dirRounds, fmt.Sprintf("%d.json", n))
}

// Reload reads rounds that were made since the last look, and tells whether there are any.
func (s *Sweep) Reload() (more bool, err error) {
	for {
		n := s.Rounds() + 1
		b, err := disk.ReadRegular(s.roundFile(n), mostRound)
		if errors.Is(err, fs.ErrNotExist) {
			return more, nil
		}
		if err != nil {
			return more, err
		}
		var r Round
		err = json.Unmarshal(b, &r)
		total := s.Total()
		if r.Table != nil {
			total += r.Table.Tasks
		}
		switch {
		case err == nil && r.Version > 1:
			return more, &jobs.Error{Kind: jobs.KindConfig, Msg: "the round " + s.roundFile(n) + " was made by a newer berth", Hint: "use that one"}
		case err != nil || r.Number != n || r.Batch < 1 || !r.Runs.valid(total) || !r.Withdrawn.valid(total) ||
			r.Table != nil && (r.Table.First != s.Total()+1 || r.Table.Tasks < 1 || r.Table.Name != filepath.Base(r.Table.Name)):
			return more, &jobs.Error{Kind: jobs.KindInfra, Msg: "the record " + s.roundFile(n) + " cannot be read", Err: err}
		}
		s.later = append(s.later[:len(s.later):len(s.later)], r)
		more = true
	}
}

// ErrRoundTaken is that another command has made the next round meanwhile.
var ErrRoundTaken = errors.New("another command has made the next round")

// ErrNothing is that a round would run and withdraw nothing.
var ErrNothing = errors.New("there is nothing to run")

// AddRound makes the next round. tasks, if not nil, gives those that it brings, and may
// change the round until it returns.
func (s *Sweep) AddRound(r Round, workers int, tasks func(r *Round, add func(command.Task) error) error) (_ Round, err error) {
	r.Version, r.Number = 1, s.Rounds()+1
	if r.Number > mostRounds {
		return r, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the sweep %s has %d rounds, and may have no more", s.Spec.Name, mostRounds)}
	}
	if err := os.MkdirAll(filepath.Join(s.Dir, dirRounds), 0o700); err != nil {
		return r, err
	}
	if tasks != nil {
		t := &Table{Name: fmt.Sprintf("tasks.%d.%s", r.Number, strings.ToLower(rand.Text()[:8])), First: s.Total() + 1}
		defer func() {
			if err != nil || t.Tasks == 0 {
				_ = os.Remove(filepath.Join(s.Dir, t.Name+tableEnd))
				_ = os.Remove(filepath.Join(s.Dir, t.Name+offsetsEnd))
			}
		}()
		each := func(add func(command.Task) error) error { return tasks(&r, add) }
		if t.Tasks, err = writeTable(s.Dir, t.Name, each); err != nil {
			return r, err
		}
		if err := disk.SyncDir(s.Dir); err != nil {
			return r, err
		}
		if t.Tasks > 0 {
			r.Table = t
			r.Runs = append(slices.Clip(r.Runs), [2]int{t.First, t.First + t.Tasks - 1})
		}
	}
	if len(r.Runs)+len(r.Withdrawn) == 0 {
		return r, ErrNothing
	}
	r.Batch = BatchOf(r.Runs.Len(), workers)
	data, err := json.Marshal(r)
	if err != nil {
		return r, err
	}
	won, err := store.CreateOnce(s.roundFile(r.Number), append(data, '\n'))
	if err == nil && !won {
		err = ErrRoundTaken
	}
	if err != nil {
		return r, err
	}
	s.later = append(s.later[:len(s.later):len(s.later)], r)
	for _, path := range s.remains(time.Now()) { // of commands that were killed
		_ = Clean(path) // gc removes it another time
	}
	return r, nil
}

// Part are the tasks from one place of the round to another one, counted from 1.
func (r Round) Part(lo, hi uint32) Numbers { return r.Runs.part(int(lo), int(hi)) }

// Superseded tells whether a later round says something of a task: it is withdrawn, or
// run there.
func (s *Sweep) Superseded(round, task int) bool {
	for _, r := range s.later {
		if r.Number > round && (r.Withdrawn.Has(task) || r.Runs.Has(task)) {
			return true
		}
	}
	return false
}

// applyRounds tells the fold what the rounds that it does not know say of each task.
func (s *Sweep) applyRounds(f *journal.Fold) {
	f.Grow(s.Total())
	for n := f.Rounds() + 1; n <= s.Rounds(); n++ {
		r := s.Round(n)
		r.Runs.Each(func(t int) { f.Await(uint32(t), uint16(n)) })
		r.Withdrawn.Each(func(t int) { f.Withdraw(uint32(t)) })
		f.SetRounds(n)
	}
}
