package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"time"
)

// Fold is what the results of all workers say of each task. The result of the
// highest round, and in it of the highest generation, counts.
type Fold struct {
	tasks   []entry // of task i+1
	counts  [states]int
	workers map[uint32]int64 // how far the results of each were read
	rounds  int              // what these say is in it; the first says nothing
	began   int64            // when the first task began, unix ns; 0 is never
	ended   int64            // when the last one ended
	took    int64            // of all that ended, µs: ns would overflow at 2.5 million hours
	core    int64            // that, times the CPUs which each had
	tried   int64            // failures after which a task was tried again
	damaged []string
}

// entry is what counts of a task, in 16 bytes of the index.
type entry struct {
	round, generation uint16
	state             State
	code              uint8
	signal            uint8
	deaths            uint8
	worker            uint32 // whose record it is
	record            uint32 // which of its records, from 0
}

const entrySize = 16

// NewFold is the fold of a sweep with so many tasks, of which nothing was read yet.
func NewFold(tasks int) *Fold {
	f := &Fold{tasks: make([]entry, tasks), workers: map[uint32]int64{}, rounds: 1}
	f.counts[Waiting] = tasks
	return f
}

// above tells whether a record comes above what counts, whichever was read first: a
// later round, then a result over a start, then the higher generation.
func (e entry) above(r Record, s State) bool {
	switch {
	case r.Round != e.round:
		return r.Round > e.round
	case s.Result() != e.state.Result():
		return s.Result()
	}
	return e.state != Withdrawn && r.Generation > e.generation
}

// Grow says how many tasks there are now, at least as many as before.
func (f *Fold) Grow(tasks int) {
	if more := tasks - len(f.tasks); more > 0 {
		f.tasks = append(f.tasks, make([]entry, more)...)
		f.counts[Waiting] += more
	}
}

// Rounds is how many rounds it knows, and SetRounds says so, when Await and Withdraw
// were called for all tasks of the next one. What rounds say and what workers have
// recorded may come in any order, but the rounds one behind the other.
func (f *Fold) Rounds() int { return f.rounds }

// SetRounds see [Fold.Rounds].
func (f *Fold) SetRounds(n int) { f.rounds = n }

// Await says that a round runs a task: results of rounds before it count no more.
func (f *Fold) Await(task uint32, round uint16) {
	if e := &f.tasks[task-1]; e.round < round {
		f.set(e, entry{round: round})
	}
}

// Withdraw says that a task is not to run, if it has no result.
func (f *Fold) Withdraw(task uint32) {
	if e := &f.tasks[task-1]; !e.state.Result() {
		f.set(e, entry{round: max(e.round, 1), state: Withdrawn})
	}
}

func (f *Fold) set(e *entry, to entry) {
	f.counts[e.state]--
	f.counts[to.state]++
	*e = to
}

// add takes a record of a worker in.
func (f *Fold) add(worker, number uint32, r Record) {
	if int(r.Task) > len(f.tasks) {
		return
	}
	e := &f.tasks[r.Task-1]
	if t := r.Began.UnixNano(); r.Kind == Start && (f.began == 0 || t < f.began) {
		f.began = t
	}
	s := r.State
	runs := e.state == Running && e.worker == worker && e.round == r.Round && e.generation == r.Generation
	switch r.Kind {
	case Start:
		if runs {
			e.record = number // it is tried again
			return
		}
		s = Running
	case Tried:
		f.spent(r)
		switch {
		case r.State.Result() && r.Tries.Sum() > 0:
			f.tried++ // its next start follows, by the same worker
		case runs:
			f.set(e, entry{round: e.round, generation: e.generation}) // it runs no more
		}
		return
	case Wrote:
		if runs {
			e.record = number // its place is the newer one
		}
		return
	case End:
		f.ended = max(f.ended, r.Began.Add(r.Took).UnixNano())
		f.spent(r)
	case Adopted:
	}
	if !e.above(r, s) {
		return
	}
	f.set(e, entry{r.Round, r.Generation, s, r.Code, r.Signal, r.Deaths, worker, number})
}

// spent counts the time of a task that has ended.
func (f *Fold) spent(r Record) {
	f.took += r.Took.Microseconds()
	cpus := r.MilliCPUs
	if cpus == 0 {
		cpus = 1000
	}
	f.core += int64(float64(r.Took.Microseconds()) * float64(cpus) / 1000)
}

// perHour is how many of its units of time an hour has.
const perHour = float64(time.Hour / time.Microsecond)

// CoreHours is how long tasks had CPUs, each counted for itself: of all rounds and tries, for
// nothing or not.
func (f *Fold) CoreHours() float64 { return float64(f.core) / perHour }

// Hours is how long tasks took, of all rounds and tries.
func (f *Fold) Hours() float64 { return float64(f.took) / perHour }

// Tried is how often a task has failed and was tried again for that.
func (f *Fold) Tried() int { return int(f.tried) }

// Update reads what is new in the results of a sweep's workers. dir says where that
// of a number is. It goes on after a file that is damaged or cannot be read, and says so.
func (f *Fold) Update(workers []uint32, dir func(uint32) string) error {
	var errs []error
	f.damaged = nil
	for _, w := range workers {
		at := f.workers[w]
		to, err := Read(filepath.Join(dir(w), ResultsFile), at, func(r Record) {
			f.add(w, uint32(at/Size), r)
			at += Size
		})
		f.workers[w] = to
		if errors.Is(err, ErrDamaged) {
			f.damaged = append(f.damaged, err.Error())
		} else if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Read is how many bytes of results it is made of.
func (f *Fold) Read() (n int64) {
	for _, at := range f.workers {
		n += at
	}
	return n
}

// Tasks is how many tasks there are.
func (f *Fold) Tasks() int { return len(f.tasks) }

// Count is how many tasks are in a state.
func (f *Fold) Count(s State) int { return f.counts[s] }

// Done is how many have a result.
func (f *Fold) Done() int { return f.Wanted() - f.Left() }

// Left is how many are to have one yet.
func (f *Fold) Left() int { return f.counts[Waiting] + f.counts[Running] }

// Wanted is how many are to have one in the end: all that were not withdrawn.
func (f *Fold) Wanted() int { return len(f.tasks) - f.counts[Withdrawn] }

// State is that of a task.
func (f *Fold) State(task uint32) State { return f.tasks[task-1].state }

// Round is that of what counts of a task; 0 is that nothing was recorded.
func (f *Fold) Round(task uint32) uint16 { return f.tasks[task-1].round }

// Damaged names the files that cannot be read to their end.
func (f *Fold) Damaged() []string { return f.damaged }

// Times are when the first task began, and when the last of those that have ended did.
func (f *Fold) Times() (began, ended time.Time) {
	if f.began != 0 {
		began = time.Unix(0, f.began).UTC()
	}
	if f.ended != 0 {
		ended = time.Unix(0, f.ended).UTC()
	}
	return began, ended
}

// indexHead is how many bytes stand before the workers of an index.
const indexHead = 8 + 7*8 + 4

// An index of before is the same, but for times of tasks in ns.
var indexMagic, indexMagicNS = []byte("berthix4"), []byte("berthix3")

// Save writes the index, a cache: without a sync, for whoever cannot read it makes
// it again.
func (f *Fold) Save(path string) error {
	le := binary.LittleEndian
	b := make([]byte, 0, indexHead+4+len(f.workers)*12+len(f.tasks)*entrySize+4)
	b = append(b, indexMagic...)
	b = le.AppendUint64(b, uint64(len(f.tasks)))
	b = le.AppendUint64(b, uint64(f.began))
	b = le.AppendUint64(b, uint64(f.ended))
	b = le.AppendUint64(b, uint64(f.took))
	b = le.AppendUint64(b, uint64(f.core))
	b = le.AppendUint64(b, uint64(f.tried))
	b = le.AppendUint64(b, uint64(f.rounds))
	b = le.AppendUint32(b, uint32(len(f.workers)))
	for w, n := range f.workers {
		b = le.AppendUint32(b, w)
		b = le.AppendUint64(b, uint64(n))
	}
	for _, e := range f.tasks {
		b = le.AppendUint16(b, e.round)
		b = le.AppendUint16(b, e.generation)
		b = append(b, byte(e.state), e.code, e.signal, e.deaths)
		b = le.AppendUint32(b, e.worker)
		b = le.AppendUint32(b, e.record)
	}
	b = le.AppendUint32(b, checksum(b))
	tmp, err := os.CreateTemp(filepath.Dir(path), ".index-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(b)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

// Load reads the index of a sweep with so many tasks; one that is missing, of
// another sweep, or no index is an empty fold.
func Load(path string, tasks int) *Fold {
	b, err := os.ReadFile(path)
	if err != nil {
		return NewFold(tasks)
	}
	if f, ok := load(b, tasks); ok {
		return f
	}
	return NewFold(tasks)
}

func load(b []byte, tasks int) (*Fold, bool) {
	le := binary.LittleEndian
	old := bytes.HasPrefix(b, indexMagicNS)
	if len(b) < indexHead+4 || !old && !bytes.HasPrefix(b, indexMagic) || le.Uint64(b[8:]) > uint64(tasks) {
		return nil, false
	}
	had := int(le.Uint64(b[8:])) // before rounds that brought more
	workers := int(le.Uint32(b[indexHead-4:]))
	if len(b) != indexHead+workers*12+had*entrySize+4 || le.Uint32(b[len(b)-4:]) != checksum(b[:len(b)-4]) {
		return nil, false
	}
	f := NewFold(had)
	f.core, f.tried, f.rounds = int64(le.Uint64(b[40:])), int64(le.Uint64(b[48:])), int(le.Uint64(b[56:]))
	f.began, f.ended, f.took = int64(le.Uint64(b[16:])), int64(le.Uint64(b[24:])), int64(le.Uint64(b[32:]))
	if f.took < 0 || f.core < 0 {
		return nil, false // they have overflowed, and are counted again
	}
	if old {
		f.took, f.core = f.took/1000, f.core/1000
	}
	b = b[indexHead:]
	for range workers {
		f.workers[le.Uint32(b)] = int64(le.Uint64(b[4:]))
		b = b[12:]
	}
	f.counts = [states]int{}
	for i := range f.tasks {
		e := b[i*entrySize:]
		s := State(e[4])
		if s >= states {
			return nil, false
		}
		f.tasks[i] = entry{le.Uint16(e), le.Uint16(e[2:]), s, e[5], e[6], e[7], le.Uint32(e[8:]), le.Uint32(e[12:])}
		f.counts[s]++
	}
	f.Grow(tasks)
	return f, true
}
