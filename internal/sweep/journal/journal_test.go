package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var someTime = time.Date(2026, 11, 1, 12, 0, 0, 123, time.UTC)

func newWriter(t *testing.T, dir string) *Writer {
	t.Helper()
	w, err := Create(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func readAll(t *testing.T, path string) (all []Record, err error) {
	t.Helper()
	_, err = Read(path, 0, func(r Record) { all = append(all, r) })
	return all, err
}

func TestRecord(t *testing.T) {
	want := Record{Kind: End, State: Failed, Code: 3, Signal: 9, Round: 2, Generation: 300, Task: 1_000_000, Deaths: 2, Began: someTime,
		Took: time.Hour, CPU: 5 * time.Millisecond, Memory: 3 << 30, Worker: 7, Output: Place{2, 1 << 40}, Tries: Tries{1, 2, 3}, MilliCPUs: 1500}
	b := want.append(nil)
	if got, ok := parse(b); len(b) != Size || !ok || got != want {
		t.Errorf("%d bytes: %+v", len(b), got)
	}
	for i := range b {
		b[i] ^= 1
		if _, ok := parse(b); ok {
			t.Errorf("byte %d may be another", i)
		}
		b[i] ^= 1
	}
}

// What tasks write comes back, in the order of each task, from several files, and
// however it was mixed with that of others.
func TestOutput(t *testing.T) {
	dir := t.TempDir()
	w := newWriter(t, dir)
	w.most = 300
	var last [3]Place
	var want [3]string
	for i := range 60 {
		task := i % 3
		text := fmt.Sprintf("%d of %d\n", i, task)
		var err error
		last[task], err = w.Output(uint32(task+1), 1, Stream(1+i%2), last[task], []byte(text))
		must(t, err)
		want[task] += text
	}
	in := NewReader(func(uint32) string { return dir })
	defer in.Close()
	for task := range last {
		var got strings.Builder
		rec := &Record{Task: uint32(task + 1), Output: last[task]}
		must(t, in.Output(rec, func(f Frame) error {
			_, err := got.Write(f.Data)
			return err
		}))
		if got.String() != want[task] {
			t.Errorf("task %d: %q", task, got.String())
		}
		// 20 lines, ten of each stream; the last of one stand at the end.
		tail, err := in.Tail(rec, 12, Stderr)
		must(t, err)
		if end := string(tail[Stderr]); len(tail) != 1 || len(end) != 12 || !strings.HasSuffix(end, fmt.Sprintf(" of %d\n", task)) {
			t.Errorf("task %d ends in %q", task, tail)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "output.*")); len(files) < 5 {
		t.Errorf("%d files", len(files))
	}
	// A place that is another task's, or is no frame, is no output.
	for _, at := range []Place{{1, 3}, {1, 1 << 30}, last[1]} {
		if err := in.Output(&Record{Task: 1, Output: at}, func(Frame) error { return nil }); !errors.Is(err, ErrDamaged) {
			t.Errorf("%v: %v", at, err)
		}
	}
	big := bytes.Repeat([]byte("x"), 3*MostFrame+5)
	at, err := w.Output(9, 1, Stdout, Place{}, big)
	must(t, err)
	var got []byte
	must(t, in.Output(&Record{Task: 9, Output: at}, func(f Frame) error { got = append(got, f.Data...); return nil }))
	if !bytes.Equal(got, big) {
		t.Errorf("%d bytes of %d", len(got), len(big))
	}
}

// A file of results that is cut at any byte has the whole records before it, and
// whoever reads on later gets the rest.
func TestCut(t *testing.T) {
	dir := t.TempDir()
	w := newWriter(t, dir)
	var want []Record
	for i := range 5 {
		r := Record{Kind: End, State: OK, Round: 1, Generation: 1, Task: uint32(i + 1), Began: someTime, Took: time.Second}
		must(t, w.Add(r))
		want = append(want, r)
	}
	path := filepath.Join(dir, ResultsFile)
	whole, err := os.ReadFile(path)
	must(t, err)
	cut := filepath.Join(t.TempDir(), ResultsFile)
	for n := range len(whole) + 1 {
		must(t, os.WriteFile(cut, whole[:n], 0o600))
		var got []Record
		to, err := Read(cut, 0, func(r Record) { got = append(got, r) })
		if err != nil || !slices.Equal(got, want[:n/Size]) || to != int64(n/Size*Size) {
			t.Fatalf("%d bytes: %d records up to %d, %v", n, len(got), to, err)
		}
		must(t, os.WriteFile(cut, whole, 0o600))
		if _, err := Read(cut, to, func(r Record) { got = append(got, r) }); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%d bytes, and on: %d records, %v", n, len(got), err)
		}
	}
	// A machine that has lost power leaves zeros, or other bytes, in the middle.
	for i := range len(whole) - Size {
		b := slices.Clone(whole)
		b[i] ^= 0x40
		must(t, os.WriteFile(cut, b, 0o600))
		got, err := readAll(t, cut)
		if !errors.Is(err, ErrDamaged) || !slices.Equal(got, want[:i/Size]) {
			t.Fatalf("byte %d: %d records, %v", i, len(got), err)
		}
	}
}

// A write that fails leaves nothing behind which the next one would stand.
func TestFull(t *testing.T) {
	dir := t.TempDir()
	w := newWriter(t, dir)
	r := Record{Kind: End, State: OK, Round: 1, Generation: 1, Task: 1, Began: someTime}
	must(t, w.Add(r))
	real := w.results.f
	broken, err := os.Open(real.Name()) // not for writing
	must(t, err)
	w.results.f = broken
	if err := w.Add(r); err == nil {
		t.Error("a write that failed was none")
	}
	must(t, broken.Close())
	_, err = real.WriteAt([]byte("half"), Size) // what a full disk may take of it
	must(t, err)
	w.results.f = real
	r.Task = 2
	must(t, w.Add(r))
	if got, err := readAll(t, real.Name()); err != nil || len(got) != 2 || got[1].Task != 2 {
		t.Errorf("%+v, %v", got, err)
	}
}

// sweep is a directory with workers.
type sweep struct {
	dir     string
	writers map[uint32]*Writer
}

func (s *sweep) of(w uint32) string { return filepath.Join(s.dir, fmt.Sprint(w)) }

func (s *sweep) workers() (all []uint32) {
	for w := range s.writers {
		all = append(all, w)
	}
	return all
}

func (s *sweep) add(t interface{ Fatal(...any) }, w uint32, r Record) {
	if s.writers[w] == nil {
		if err := os.MkdirAll(s.of(w), 0o700); err != nil {
			t.Fatal(err)
		}
		var err error
		if s.writers[w], err = Create(s.of(w)); err != nil {
			t.Fatal(err)
		}
	}
	r.Began = someTime
	if err := s.writers[w].Add(r); err != nil {
		t.Fatal(err)
	}
}

func (s *sweep) close() {
	for _, w := range s.writers {
		_ = w.Close()
	}
}

// Of a task's results one counts: of the highest round, then of the highest
// generation, in whatever order workers are read, and through an index or not.
func TestFold(t *testing.T) {
	s := &sweep{t.TempDir(), map[uint32]*Writer{}}
	defer s.close()
	s.add(t, 1, Record{Kind: Start, Round: 1, Generation: 1, Task: 1})
	s.add(t, 1, Record{Kind: End, State: OK, Round: 1, Generation: 1, Task: 1, Took: time.Second})
	s.add(t, 1, Record{Kind: Start, Round: 1, Generation: 1, Task: 2})
	s.add(t, 2, Record{Kind: Adopted, State: OK, Round: 1, Generation: 3, Task: 1, Worker: 1})
	s.add(t, 3, Record{Kind: End, State: Failed, Code: 1, Round: 1, Generation: 2, Task: 1}) // late
	s.add(t, 2, Record{Kind: End, State: Failed, Code: 4, Round: 1, Generation: 3, Task: 2})
	s.add(t, 1, Record{Kind: End, State: OK, Round: 1, Generation: 1, Task: 2}) // late
	s.add(t, 1, Record{Kind: Start, Round: 1, Generation: 1, Task: 3})
	s.add(t, 1, Record{Kind: Tried, Round: 1, Generation: 1, Task: 3}) // and is run by another one
	s.add(t, 2, Record{Kind: Start, Round: 1, Generation: 3, Task: 3})
	s.add(t, 3, Record{Kind: Start, Round: 1, Generation: 1, Task: 4})
	s.add(t, 3, Record{Kind: Tried, Round: 1, Generation: 1, Task: 4}) // and runs no more
	s.add(t, 2, Record{Kind: Start, Round: 2, Generation: 1, Task: 2}) // tried again
	s.add(t, 2, Record{Kind: End, State: OK, Round: 1, Generation: 1, Task: 99})
	check := func(f *Fold) {
		t.Helper()
		if f.State(1) != OK || f.State(2) != Running || f.State(3) != Running || f.State(4) != Waiting || f.Done() != 1 || f.Count(Running) != 2 || f.Count(Waiting) != f.Tasks()-3 {
			t.Errorf("%v %v %v %v, %d done", f.State(1), f.State(2), f.State(3), f.State(4), f.Done())
		}
		if w, r, err := f.Record(1, s.of); err != nil || w != 2 || r.Worker != 1 || r.Kind != Adopted {
			t.Errorf("%d %+v %v", w, r, err)
		}
	}
	for _, order := range [][]uint32{{1, 2, 3}, {3, 2, 1}, {2, 3, 1}} {
		f := NewFold(4)
		must(t, f.Update(order, s.of))
		check(f)
		must(t, f.Update(order, s.of)) // nothing is counted twice
		check(f)
		path := filepath.Join(s.dir, "index")
		must(t, f.Save(path))
		check(Load(path, 4))
		if Load(path, 3).Count(Waiting) != 3 {
			t.Error("the index of another sweep was taken")
		}
		more := Load(path, 6) // a round has brought two
		check(more)
	}
	f := Load(filepath.Join(s.dir, "index"), 4)
	s.add(t, 3, Record{Kind: End, State: Killed, Signal: 9, Round: 2, Generation: 1, Task: 2})
	must(t, f.Update(s.workers(), s.of))
	if f.State(2) != Killed || f.Done() != 2 {
		t.Errorf("%v, %d", f.State(2), f.Done())
	}
	b, err := os.ReadFile(filepath.Join(s.dir, "index"))
	must(t, err)
	for i := range b {
		if _, ok := load(b[:i], 4); ok {
			t.Fatalf("an index of %d bytes was taken", i)
		}
		b[i] ^= 1
		if _, ok := load(b, 4); ok {
			t.Fatalf("an index with another byte %d was taken", i)
		}
		b[i] ^= 1
	}
}

// Core-hours are counted beyond what nanoseconds in 64 bits hold, and an index that has them
// in these is read, unless they have overflowed there.
func TestCoreHours(t *testing.T) {
	s := &sweep{t.TempDir(), map[uint32]*Writer{}}
	defer s.close()
	for task := range uint32(5) {
		s.add(t, 1, Record{Kind: End, State: OK, Round: 1, Generation: 1, Task: task + 1, Took: 30 * 24 * time.Hour, MilliCPUs: 4096_000})
	}
	s.add(t, 1, Record{Kind: Tried, State: Failed, Tries: Tries{Task: 1}, Round: 1, Generation: 1, Task: 6, Took: time.Hour, MilliCPUs: 500})
	f := NewFold(6)
	must(t, f.Update([]uint32{1}, s.of))
	const want, hours = 5*720*4096 + 0.5, 5*720 + 1.0
	path := filepath.Join(s.dir, "index")
	must(t, f.Save(path))
	for _, f := range []*Fold{f, Load(path, 6)} {
		if math.Abs(f.CoreHours()-want) > 1e-6 || math.Abs(f.Hours()-hours) > 1e-6 {
			t.Errorf("%f core-hours of %f, %f hours of %f", f.CoreHours(), want, f.Hours(), hours)
		}
	}
	b, err := os.ReadFile(path)
	must(t, err)
	old := func(took, core int64) ([]byte, int) {
		copy(b, "berthix3")
		binary.LittleEndian.PutUint64(b[32:], uint64(took))
		binary.LittleEndian.PutUint64(b[40:], uint64(core))
		binary.LittleEndian.PutUint32(b[len(b)-4:], checksum(b[:len(b)-4]))
		return b, 6
	}
	if f, ok := load(old(int64(2*time.Hour), int64(7*time.Hour))); !ok || f.Hours() != 2 || f.CoreHours() != 7 || f.Done() != 5 {
		t.Errorf("an index of before: %v, %+v", ok, f)
	}
	if _, ok := load(old(int64(2*time.Hour), -5)); ok {
		t.Error("an index whose core-hours have overflowed was taken")
	}
}

// However results are spread over workers and read, the same counts.
func TestFoldOrder(t *testing.T) {
	root, n := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dir := filepath.Join(root, fmt.Sprint(n))
		must(t, os.Mkdir(dir, 0o700))
		s := &sweep{dir, map[uint32]*Writer{}}
		defer s.close()
		type key struct {
			task              uint32
			round, generation uint16
		}
		done := map[key]bool{}
		for range rapid.IntRange(1, 30).Draw(rt, "records") {
			k := key{rapid.Uint32Range(1, 3).Draw(rt, "task"), rapid.Uint16Range(1, 2).Draw(rt, "round"), rapid.Uint16Range(1, 4).Draw(rt, "generation")}
			if done[k] { // a generation has one holder, who records one end
				continue
			}
			done[k] = true
			worker := uint32(k.generation)%3 + 1
			s.add(rt, worker, Record{Kind: Start, Task: k.task, Round: k.round, Generation: k.generation})
			if rapid.Bool().Draw(rt, "again") {
				s.add(rt, worker, Record{Kind: Tried, State: Failed, Tries: Tries{Task: 1}, Task: k.task, Round: k.round, Generation: k.generation})
				s.add(rt, worker, Record{Kind: Start, Tries: Tries{Task: 1}, Task: k.task, Round: k.round, Generation: k.generation})
			}
			if rapid.Bool().Draw(rt, "tried") {
				s.add(rt, worker, Record{Kind: Tried, Task: k.task, Round: k.round, Generation: k.generation})
			} else if rapid.Bool().Draw(rt, "ends") {
				s.add(rt, worker, Record{Kind: End, State: OK + State(k.generation%3), Task: k.task, Round: k.round, Generation: k.generation})
			}
		}
		one, other := NewFold(3), NewFold(3)
		workers := s.workers()
		slices.Sort(workers)
		must(t, one.Update(workers, s.of))
		slices.Reverse(workers)
		must(t, other.Update(workers, s.of))
		if !slices.Equal(one.tasks, other.tasks) || one.counts != other.counts || one.tried != other.tried {
			rt.Fatalf("%v\n%v", one.tasks, other.tasks)
		}
	})
}

// What rounds say of a task and what workers record of it count alike in any order, and
// through an index or not: a later round's result, and a result over a withdrawal.
func TestRounds(t *testing.T) {
	s := &sweep{t.TempDir(), map[uint32]*Writer{}}
	defer s.close()
	for task := range uint32(4) {
		s.add(t, 1, Record{Kind: Start, Round: 1, Generation: 1, Task: task + 1})
	}
	s.add(t, 1, Record{Kind: End, State: Failed, Round: 1, Generation: 1, Task: 1}) // is run again
	s.add(t, 1, Record{Kind: End, State: OK, Round: 1, Generation: 1, Task: 2})     // has a result, and is withdrawn
	s.add(t, 2, Record{Kind: End, State: OK, Round: 2, Generation: 1, Task: 4})
	rounds := func(f *Fold) {
		f.Await(1, 2)
		f.Await(4, 2)
		f.Withdraw(2)
		f.Withdraw(3)
		f.SetRounds(2)
	}
	one, other := NewFold(4), NewFold(4)
	rounds(one)
	must(t, one.Update(s.workers(), s.of))
	must(t, other.Update(s.workers(), s.of))
	must(t, other.Save(filepath.Join(s.dir, "index")))
	other = Load(filepath.Join(s.dir, "index"), 4)
	if other.Rounds() != 1 || other.State(1) != Failed {
		t.Errorf("%d rounds, %v", other.Rounds(), other.State(1))
	}
	rounds(other)
	for _, f := range []*Fold{one, other} {
		if f.State(1) != Waiting || f.State(2) != OK || f.State(3) != Withdrawn || f.State(4) != OK || f.Left() != 1 || f.Done() != 2 || f.Wanted() != 3 {
			t.Errorf("%v %v %v %v, %d left", f.State(1), f.State(2), f.State(3), f.State(4), f.Left())
		}
		must(t, f.Save(filepath.Join(s.dir, "index")))
		if l := Load(filepath.Join(s.dir, "index"), 4); l.Rounds() != 2 || l.State(3) != Withdrawn || l.Left() != 1 {
			t.Errorf("%d rounds, %v", l.Rounds(), l.State(3))
		}
	}
}

// A damaged file is named, and what the others say counts.
func TestDamaged(t *testing.T) {
	s := &sweep{t.TempDir(), map[uint32]*Writer{}}
	defer s.close()
	for task := range uint32(3) {
		s.add(t, 1, Record{Kind: End, State: OK, Round: 1, Generation: 1, Task: task + 1})
	}
	s.add(t, 2, Record{Kind: End, State: OK, Round: 1, Generation: 1, Task: 4})
	_, err := s.writers[1].results.f.WriteAt([]byte{0xff}, Size)
	must(t, err)
	f := NewFold(4)
	must(t, f.Update([]uint32{1, 2, 7}, s.of)) // 7 has nothing yet
	if d := f.Damaged(); f.Done() != 2 || len(d) != 1 || !strings.Contains(d[0], "1/results: damaged at byte 64") {
		t.Errorf("%d done, %q", f.Done(), d)
	}
}

// BenchmarkStatus is a look at a million tasks of which 400,000 are done.
func BenchmarkStatus(b *testing.B) {
	s := &sweep{b.TempDir(), map[uint32]*Writer{}}
	defer s.close()
	for i := range uint32(400_000) {
		s.add(b, 1+i%8, Record{Kind: End, State: OK, Round: 1, Generation: 1, Task: i + 1})
	}
	f := NewFold(1_000_000)
	if err := f.Update(s.workers(), s.of); err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(s.dir, "index")
	if err := f.Save(path); err != nil {
		b.Fatal(err)
	}
	b.Run("index", func(b *testing.B) {
		for b.Loop() {
			f := Load(path, 1_000_000)
			if err := f.Update(s.workers(), s.of); err != nil || f.Done() != 400_000 {
				b.Fatal(err)
			}
		}
	})
	b.Run("without", func(b *testing.B) {
		for b.Loop() {
			f := NewFold(1_000_000)
			if err := f.Update(s.workers(), s.of); err != nil || f.Done() != 400_000 {
				b.Fatal(err)
			}
		}
	})
}
