package sweep

import (
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"berth/internal/sweep/claims"
	"berth/internal/sweep/journal"
	"berth/internal/sys/disk"
	"berth/jobs"
	"berth/jobs/store"
)

const (
	filePlan    = "plan.json"
	claimsFirst = "first"
)

// MostPilot is how many tasks a pilot may have.
const MostPilot = 100

// First are the tasks that run before the others: the canary, or the pilot.
func (s *Sweep) First() Numbers {
	if s.Spec.Canary {
		return Numbers{{1, 1}}
	}
	return Spread(s.Spec.Tasks, s.Spec.Pilot)
}

// FirstClaims are the claims of those: each one's place among them is its batch.
func (s *Sweep) FirstClaims() claims.Round {
	dir := claimsFirst
	if s.Spec.Canary {
		dir = claimsCanary
	}
	return claims.Round{Dir: filepath.Join(s.Dir, dirClaims, dir), Tasks: s.First().Len(), Batch: 1}
}

// Piloting tells whether tasks of the pilot have no result yet.
func (s *Sweep) Piloting(f *journal.Fold) (more bool) {
	if s.Spec.Pilot == 0 {
		return false
	}
	s.First().Each(func(t int) {
		st := f.State(uint32(t))
		more = more || !st.Result() && st != journal.Withdrawn
	})
	return more
}

// Spread are n numbers from 1 to tasks at the same distance, both ends among them.
func Spread(tasks, n int) (out Numbers) {
	n = min(n, tasks)
	for i := range n {
		out.Add(1 + i*(tasks-1)/max(n-1, 1))
	}
	return out
}

// Measured is what tasks that ran took.
type Measured struct {
	Tasks  int           `json:"tasks"` // that have a result
	OK     int           `json:"ok"`    // of which the rest is
	Mean   time.Duration `json:"mean_ns"`
	Most   time.Duration `json:"most_ns"`
	Memory jobs.Bytes    `json:"memory_bytes"` // the most that one of them had
}

// Measure is what tasks took that succeeded.
func (s *Sweep) Measure(f *journal.Fold, numbers Numbers) (m Measured, err error) {
	in := journal.NewReader(s.WorkerDir)
	defer in.Close()
	var sum time.Duration
	numbers.Each(func(t int) {
		if err != nil || !f.State(uint32(t)).Result() {
			return
		}
		_, r, rerr := in.Record(f, uint32(t))
		if rerr != nil {
			err = rerr
			return
		}
		m.Tasks++
		if r == nil || r.State != journal.OK {
			return
		}
		m.OK++
		sum += r.Took
		m.Most, m.Memory = max(m.Most, r.Took), max(m.Memory, jobs.Bytes(r.Memory))
	})
	if m.OK > 0 {
		m.Mean = max(sum/time.Duration(m.OK), time.Millisecond)
	}
	return m, err
}

// Share is the memory that a task which says none is counted with, by what others had.
func (m Measured) Share() jobs.Bytes { return m.Memory + m.Memory/4 }

// Plan is plan.json: what the times of the pilot have changed of what was submitted.
type Plan struct {
	Version int `json:"version"`
	Measured
	Workers int `json:"workers"`
	// Time is the walltime of each worker that is submitted from then on; 0 is as it was.
	Time time.Duration `json:"time_ns,omitempty"`
}

// Times of workers that are planned.
const (
	shortestWorker = 10 * time.Minute // for which fewer of them are better
	timeStep       = 5 * time.Minute
	timeToBegin    = 2 * time.Minute // and to end
)

// Planned is a plan for so many tasks: workers is the most of them, fewer that it may
// choose fewer, and most the longest a job may run; 0 is not known.
func (m Measured) Planned(tasks, workers, slots int, fewer bool, most time.Duration) Plan {
	p := Plan{Version: 1, Measured: m, Workers: max(workers, 1)}
	slots = max(slots, 1)
	if all := float64(tasks) * float64(m.Mean) / float64(slots); fewer {
		p.Workers = min(p.Workers, max(int(all/float64(shortestWorker))+1, 1))
	}
	p.Workers = max(min(p.Workers, (tasks+slots-1)/slots), 1)
	turns := (tasks + p.Workers*slots - 1) / (p.Workers * slots)
	p.Time = time.Duration(turns)*m.Mean*3/2 + 2*m.Most + timeToBegin
	p.Time = (p.Time + timeStep - 1) / timeStep * timeStep
	if most > 0 {
		p.Time = min(p.Time, most)
	}
	return p
}

// SlotsOf is how many tasks a worker runs at once, where each has the memory that was measured.
func (m Measured) SlotsOf(spec *Spec) int {
	slots := max(spec.Slots, 1)
	if most := spec.Bounds().Memory; most > 0 && spec.Request.Memory == "" && m.Memory > 0 {
		slots = min(slots, max(int(most/m.Share()), 1))
	}
	return slots
}

// SetPlan records the plan. Of two the first one stays.
func (s *Sweep) SetPlan(p Plan) error {
	b, err := json.Marshal(p)
	if err == nil {
		_, err = store.CreateOnce(filepath.Join(s.Dir, filePlan), append(b, '\n'))
	}
	return err
}

// Plan is what the pilot has shown; nil is that it is not known yet.
func (s *Sweep) Plan() (*Plan, error) {
	path := filepath.Join(s.Dir, filePlan)
	b, err := disk.ReadRegular(path, 1<<16)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	p := &Plan{}
	if err == nil {
		err = json.Unmarshal(b, p)
	}
	if err != nil || p.Version != 1 {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "the record " + path + " cannot be read", Err: err}
	}
	return p, nil
}
