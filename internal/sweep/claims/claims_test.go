package claims

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/sys/lease"

	"pgregory.net/rapid"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// next claims a batch, or fails.
func next(t *testing.T, b *Board, from int) *Held {
	t.Helper()
	h, open, err := b.Next(from)
	must(t, err)
	if h == nil {
		t.Fatalf("nothing to claim, %d are held", open)
	}
	return h
}

func none(t *testing.T, b *Board, open int) {
	t.Helper()
	h, n, err := b.Next(0)
	must(t, err)
	if h != nil || n != open {
		t.Fatalf("%+v, %d held", h, n)
	}
}

func never(uint32) bool { return false }

func TestChain(t *testing.T) {
	r := Round{t.TempDir(), 10, 4}
	dead := map[uint32]bool{}
	gone := func(w uint32) bool { return dead[w] }
	one, two, three := New(r, 1, gone), New(r, 2, gone), New(r, 3, gone)
	a, b, c := next(t, one, 0), next(t, two, 1), next(t, two, 1)
	if a.Batch != (Batch{1, 4}) || b.Batch != (Batch{5, 8}) || c.Batch != (Batch{9, 10}) || a.Generation != 1 || len(a.Former) != 0 {
		t.Errorf("%+v %+v %+v", a, b, c)
	}
	none(t, one, 3)
	none(t, two, 3)
	// Given back, it is another's, who learns who had it.
	if lost, err := b.Release(); lost || err != nil {
		t.Error(lost, err)
	}
	b = next(t, three, 0)
	if b.Batch != (Batch{5, 8}) || b.Generation != 3 || fmt.Sprint(b.Former) != "[2]" {
		t.Errorf("%+v", b)
	}
	// One that is gone loses what it has, and learns it when it comes back.
	dead[1] = true
	taken := next(t, two, 0)
	if taken.Batch != a.Batch || taken.Generation != 2 || fmt.Sprint(taken.Former) != "[1]" {
		t.Errorf("%+v", taken)
	}
	if lost, err := a.Close(); !lost || err != nil {
		t.Error("what was taken over was closed:", err)
	}
	for _, h := range []*Held{taken, b, c} {
		if lost, err := h.Close(); lost || err != nil {
			t.Error(lost, err)
		}
	}
	none(t, one, 0)
	none(t, New(r, 9, never), 0)
}

func TestSplit(t *testing.T) {
	r := Round{t.TempDir(), 8, 8}
	dead := map[uint32]bool{}
	gone := func(w uint32) bool { return dead[w] }
	one, two := New(r, 1, gone), New(r, 2, gone)
	a := next(t, one, 0)
	if _, err := a.Split(1); err == nil {
		t.Error("nothing was kept")
	}
	if lost, err := a.Split(4); lost || err != nil || a.Batch != (Batch{1, 3}) || a.Generation != 2 {
		t.Errorf("%+v, %v", a, err)
	}
	b := next(t, two, 0)
	if b.Batch != (Batch{4, 8}) || b.Generation != 3 || fmt.Sprint(b.Former) != "[1]" {
		t.Errorf("%+v", b)
	}
	if lost, err := b.Split(6); lost || err != nil {
		t.Error(lost, err)
	}
	c := next(t, New(r, 3, never), 0)
	if c.Batch != (Batch{6, 8}) || fmt.Sprint(c.Former) != "[1 2]" {
		t.Errorf("%+v", c)
	}
	for _, h := range []*Held{a, b, c} {
		if lost, err := h.Close(); lost || err != nil {
			t.Error(lost, err)
		}
	}
	none(t, New(r, 4, never), 0)
}

// What is kept of a batch that was split is taken over, too.
func TestSplitGone(t *testing.T) {
	r := Round{t.TempDir(), 8, 8}
	gone := func(w uint32) bool { return w == 1 }
	a := next(t, New(r, 1, gone), 0)
	_, err := a.Split(4)
	must(t, err)
	two := New(r, 2, gone)
	got := []*Held{next(t, two, 0), next(t, two, 0)}
	if got[0].Batch != (Batch{1, 3}) || got[0].Generation != 3 || got[1].Batch != (Batch{4, 8}) || got[1].Generation != 3 {
		t.Errorf("%+v %+v", got[0], got[1])
	}
	if lost, err := a.Close(); !lost || err != nil {
		t.Error(lost, err)
	}
	none(t, two, 2)
}

// A worker whose reply was lost, and the look after it, finds its own claim again.
func TestOwn(t *testing.T) {
	r := Round{t.TempDir(), 4, 4}
	next(t, New(r, 1, never), 0)
	if h := next(t, New(r, 1, never), 0); h.Generation != 1 {
		t.Errorf("%+v", h)
	}
	none(t, New(r, 2, never), 1)
}

// Many workers at once: each batch is one's, in each generation.
func TestRace(t *testing.T) {
	r := Round{t.TempDir(), 60, 2}
	var mu sync.Mutex
	holders := map[string]uint32{}
	var all sync.WaitGroup
	for w := range uint32(4) {
		all.Go(func() {
			b := New(r, w+1, never)
			for i := 0; ; i++ {
				h, _, err := b.Next(0)
				if err != nil || h == nil {
					if err != nil {
						t.Error(err)
					}
					return
				}
				key := fmt.Sprintf("%s.%d", h.name(), h.Generation)
				mu.Lock()
				if other, ok := holders[key]; ok {
					t.Errorf("%s is of %d and %d", key, other, w+1)
				}
				holders[key] = w + 1
				mu.Unlock()
				if i%5 == 4 {
					_, err = h.Release()
				} else {
					_, err = h.Close()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	none(t, New(r, 9, never), 0)
}

// Whatever workers do, each task is in one batch that is not split, and all are
// closed in the end.
func TestAnyOrder(t *testing.T) {
	root, n := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		dir := filepath.Join(root, fmt.Sprint(n))
		must(t, os.Mkdir(dir, 0o700))
		r := Round{dir, rapid.IntRange(1, 12).Draw(rt, "tasks"), rapid.IntRange(1, 6).Draw(rt, "batch")}
		dead := map[uint32]bool{}
		gone := func(w uint32) bool { return dead[w] }
		boards, holds := map[uint32]*Board{}, map[uint32]*Held{}
		closedBy := map[uint32]int{}
		finish := func(h *Held) {
			if lost, err := h.Close(); err != nil {
				rt.Fatal(err)
			} else if !lost {
				for task := h.Lo; task <= h.Hi; task++ {
					closedBy[task]++
				}
			}
		}
		for range rapid.IntRange(0, 25).Draw(rt, "steps") {
			w := rapid.Uint32Range(1, 3).Draw(rt, "worker")
			if boards[w] == nil {
				boards[w] = New(r, w, gone)
			}
			h := holds[w]
			if h == nil {
				h, _, err := boards[w].Next(rapid.IntRange(0, 5).Draw(rt, "from"))
				if err != nil {
					rt.Fatal(err)
				}
				holds[w] = h
				continue
			}
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 0:
				finish(h)
				delete(holds, w)
			case 1:
				if _, err := h.Release(); err != nil {
					rt.Fatal(err)
				}
				delete(holds, w)
			case 2:
				if h.Size() > 1 {
					if lost, err := h.Split(h.Lo + 1); err != nil {
						rt.Fatal(err)
					} else if lost {
						delete(holds, w)
					}
				}
			case 3: // called gone; what it has may be taken, and it may come back
				dead[w] = !dead[w]
			}
		}
		for w := range uint32(3) {
			dead[w+1] = true
		}
		last := New(r, 9, gone)
		for {
			h, open, err := last.Next(0)
			if err != nil {
				rt.Fatal(err)
			}
			if h == nil {
				if open != 0 {
					rt.Fatalf("%d are left", open)
				}
				break
			}
			finish(h)
		}
		for task := range uint32(r.Tasks) {
			if closedBy[task+1] != 1 {
				rt.Fatalf("task %d was closed %d times", task+1, closedBy[task+1])
			}
		}
	})
}

// No directory has a thousand entries, however many tasks there are.
func TestShards(t *testing.T) {
	r := Round{t.TempDir(), 1000, 1}
	b := New(r, 1, never)
	for i := 0; i < 1000; i += 97 {
		h := next(t, b, i)
		if h.Batch != (Batch{uint32(i + 1), uint32(i + 1)}) {
			t.Errorf("%+v", h)
		}
	}
	for i := range 5 {
		if entries, err := os.ReadDir(r.shard(i)); err != nil || len(entries) == 0 || len(entries) > shardSize {
			t.Errorf("%d: %d, %v", i, len(entries), err)
		}
	}
}

func TestDamaged(t *testing.T) {
	for _, text := range []string{"", "{", `{"kind":"mine"}`, `{"kind":"split","at":9}`} {
		r := Round{t.TempDir(), 4, 4}
		must(t, os.MkdirAll(r.shard(0), 0o700))
		must(t, os.WriteFile(filepath.Join(r.shard(0), "1-4.1"), []byte(text), 0o600))
		if h, _, err := New(r, 1, never).Next(0); err == nil {
			t.Errorf("%q: %+v", text, h)
		}
	}
}

func TestWatcher(t *testing.T) {
	dir := t.TempDir()
	now := time.Unix(1000, 0)
	me := lease.Self()
	looks := 0
	w := &Watcher{Dir: func(uint32) string { looks++; return dir }, Me: me, Patience: lease.PatienceFor(10 * time.Second), Now: func() time.Time { return now }}
	write := func(name, text string) { must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)) }
	// after asks so often, with so long between two looks.
	after := func(looks int, pause time.Duration) bool {
		gone := false
		for range looks {
			now = now.Add(pause)
			gone = w.Gone(1)
		}
		return gone
	}
	write(BeatFile, "1")
	if w.Gone(1) || after(17, 10*time.Second) {
		t.Error("gone before 180 s")
	}
	if !after(1, 10*time.Second) {
		t.Error("not gone after 180 s")
	}
	write(BeatFile, "2")
	looks = 0
	if w.Gone(1) {
		t.Error("a beat that moves is gone")
	}
	// However often it is asked for one that is there, it looks once in half a beat.
	if after(50, 0) || after(4, time.Second) || looks != 1 {
		t.Errorf("%d looks in 4 s", looks)
	}
	if after(3, time.Hour) { // this process stood still
		t.Error("hours between looks are a silence")
	}
	write(BeatFile, "3")
	b, err := json.Marshal(lease.Process{Host: me.Host, BootID: me.BootID, PID: 1 << 22, Start: "1"})
	must(t, err)
	write(WorkerFile, string(b))
	if after(1, 10*time.Second) || after(2, 10*time.Second) || !after(1, 10*time.Second) {
		t.Error("a process that is no more is gone after 30 s")
	}
	write(BeatFile, "4")
	write(EndFile, "{}")
	looks = 0
	if !after(3, 5*time.Second) || looks != 1 {
		t.Errorf("one that has ended is not gone, or it was looked at %d times", looks)
	}
}

// counted is a board that counts which claims it reads.
func counted(b *Board) (_ *Board, reads *int) {
	reads = new(int)
	b.file = func(path string, most int64) ([]byte, error) {
		*reads++
		return disk.ReadRegular(path, most)
	}
	return b, reads
}

// A worker that finds nothing free reads what is held, and that once: neither how many
// batches were closed counts, nor how often it looks.
func TestReads(t *testing.T) {
	const batches = shardSize + 20
	r := Round{t.TempDir(), batches, 1}
	one, read1 := counted(New(r, 1, never))
	two, read2 := counted(New(r, 2, never))
	last := next(t, New(r, 3, never), batches-1)
	for i := range (batches - 1) / 2 {
		for _, h := range []*Held{next(t, one, i), next(t, two, batches/2+i)} {
			if lost, err := h.Close(); lost || err != nil {
				t.Fatal(lost, err)
			}
		}
	}
	rest := next(t, one, 0) // one is left between them
	for range 50 {
		none(t, one, 2)
		none(t, two, 2)
	}
	if *read1 > 2 || *read2 > 2 {
		t.Errorf("%d and %d claims were read, and 2 are held", *read1, *read2)
	}
	for _, h := range []*Held{last, rest} {
		if lost, err := h.Close(); lost || err != nil {
			t.Error(lost, err)
		}
	}
	for range 50 {
		none(t, one, 0)
	}
	late, reads := counted(New(r, 9, never))
	none(t, late, 0)
	if *reads != 0 || *read1 > 2 {
		t.Errorf("%d and %d claims were read, and all are closed", *reads, *read1)
	}
	for i, size := range []int{shardSize, 20} {
		entries, err := os.ReadDir(r.shard(i))
		must(t, err)
		if len(entries) != 3*size {
			t.Errorf("%d: %d names", i, len(entries))
		}
	}
}

// While something is free, a look reads few of the claims that others hold; when nothing
// is, it reads each once, and takes over what a worker that is gone has.
func TestFewReads(t *testing.T) {
	const batches = 60
	r := Round{t.TempDir(), batches, 1}
	other, dead := New(r, 1, never), false
	for i := range batches - 3 {
		next(t, other, i)
	}
	b, reads := counted(New(r, 2, func(uint32) bool { return dead }))
	for i := range 3 {
		if h := next(t, b, 0); h.Lo != uint32(batches-2+i) || *reads > (i+1)*fewReads {
			t.Errorf("%+v, %d claims were read in %d looks", h, *reads, i+1)
		}
	}
	for range 5 {
		none(t, b, batches)
	}
	if *reads != batches-3 {
		t.Errorf("%d claims were read, of %d", *reads, batches-3)
	}
	dead = true
	if h := next(t, b, 0); h.Batch != (Batch{1, 1}) || h.Generation != 2 {
		t.Errorf("%+v", h)
	}
}

// The second name of a closed claim only says what is so: without it the claims are
// read, and without the claim it says nothing.
func TestClosedNames(t *testing.T) {
	r := Round{t.TempDir(), 2, 1}
	for i := range 2 {
		h := next(t, New(r, 1, never), i)
		_, err := h.Close()
		must(t, err)
	}
	must(t, os.Remove(filepath.Join(r.shard(0), "1-1.2.closed"))) // its worker was killed before
	b, reads := counted(New(r, 2, never))
	none(t, b, 0)
	if *reads != 2 {
		t.Errorf("%d claims were read", *reads)
	}
	must(t, os.Remove(filepath.Join(r.shard(0), "2-2.2")))
	must(t, os.Remove(filepath.Join(r.shard(0), "2-2.1")))
	if h := next(t, New(r, 3, never), 0); h.Batch != (Batch{2, 2}) || h.Generation != 1 {
		t.Errorf("%+v", h)
	}
}

// Claims that say the same are names of one file; those of two workers never are. A
// worker that sees a list from before its own claim does not take that for a new one.
func TestNames(t *testing.T) {
	r := Round{t.TempDir(), 6, 1}
	one, two := New(r, 1, never), New(r, 2, never)
	var all []*Held
	for i := range 3 {
		all = append(all, next(t, one, i), next(t, two, 3+i))
	}
	inode := func(name string) os.FileInfo {
		fi, err := os.Stat(filepath.Join(r.shard(0), name))
		must(t, err)
		return fi
	}
	if !os.SameFile(inode("1-1.1"), inode("3-3.1")) || !os.SameFile(inode("4-4.1"), inode("6-6.1")) || os.SameFile(inode("1-1.1"), inode("4-4.1")) {
		t.Error("names of other files than expected")
	}
	first := leaf{batch: all[0].Batch}
	for _, ended := range []bool{false, true} {
		if ended {
			_, err := all[0].Release()
			must(t, err)
		}
		for _, b := range []*Board{one, two} {
			if h, err := b.take(first, r.shard(0)); h != nil || err != nil {
				t.Errorf("%+v, %v", h, err)
			}
		}
	}
	if lost, err := all[0].Close(); !lost || err != nil {
		t.Error("what was given back was closed:", err)
	}
	// What is named again was removed by hand: there is another file then.
	must(t, os.Remove(filepath.Join(r.shard(0), "3-3.1")))
	must(t, os.Remove(filepath.Join(r.shard(0), "2-2.1")))
	must(t, os.Remove(filepath.Join(r.shard(0), "1-1.1")))
	must(t, os.Remove(filepath.Join(r.shard(0), "1-1.2")))
	if h := next(t, New(r, 3, never), 0); h.Generation != 1 {
		t.Errorf("%+v", h)
	}
}

// Of many batches the claims are few files, which the plan of a sweep counts.
func TestMostFiles(t *testing.T) {
	for _, c := range []struct{ tasks, batch, workers, want int }{
		{6, 1, 1, 2}, {1, 1, 8, 2}, {4000, 1, 1, 40}, {4000, 1, 16, 640}, {401, 1, 1, 6}, {300, 1, 1000, 600},
	} {
		if got := (Round{Tasks: c.tasks, Batch: c.batch}).MostFiles(c.workers); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}
