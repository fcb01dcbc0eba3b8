package store

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"berth/jobs"

	"github.com/google/go-cmp/cmp"
)

// listed is what a listing says, the first of it and a sample of the rest
// compared with what the files say.
func listed(t *testing.T, s *Store) []*jobs.Record {
	t.Helper()
	list, err := s.List()
	must(t, err)
	for i, r := range list {
		if i > 0 && list[i-1].Spec.ID >= r.Spec.ID {
			t.Errorf("%s is listed after %s", r.Spec.ID, list[i-1].Spec.ID)
		}
		if i > 10 && i%20 != 0 {
			continue
		}
		want, err := s.Load(r.Spec.ID)
		must(t, err)
		if !reflect.DeepEqual(want, r) {
			t.Fatalf("the listing differs from the record:\n%s", cmp.Diff(want, r))
		}
	}
	return list
}

func TestListThousand(t *testing.T) {
	t.Parallel()
	s := open(t)
	fill(t, s, 500, false)
	fill(t, s, 500, true)
	changed(t, s, time.Now().Add(time.Hour)) // just now, however long that takes
	if n := len(listed(t, s)); n != 1000 {
		t.Fatalf("%d of 1000 are listed", n)
	}
	if _, err := os.Stat(s.index); err == nil {
		t.Error("records that have just changed were put into the index")
	}
	age(t, s)
	for range 2 {
		if n := len(listed(t, s)); n != 1000 {
			t.Fatalf("%d of 1000 are listed", n)
		}
	}
	if n := rowsIn(mustRead(t, s.index), s.home); n != 1000 {
		t.Errorf("%d rows in the index", n)
	}
}

// TestIndexFollows changes records in every way that there is, while the
// index holds them as they were.
func TestIndexFollows(t *testing.T) {
	t.Parallel()
	s := open(t)
	fill(t, s, 4*indexFrom, false)
	age(t, s)
	list := listed(t, s)
	before := mustRead(t, s.index)
	now := time.Now().UTC()

	_, err := SetExit(list[0].Current().Dir, jobs.ExitRecord{Version: 1, State: jobs.StateFailed, Code: 1, Ended: now})
	must(t, err)
	_, err = SetCancel(list[1].Dir, jobs.Cancel{Version: 1, Time: now})
	must(t, err)
	_, err = SetClaim(list[2].Current().Dir, jobs.Claim{Version: 1, Time: now})
	must(t, err)
	must(t, Beat(list[2].Current().Dir, 1, now))
	_, err = SetTaken(list[3].Current().Dir, jobs.Taken{Version: 1, Time: now})
	must(t, err)
	must(t, s.Remove(list[4]))
	_, err = SetVerdict(list[5].Current().Dir, jobs.Verdict{Version: 1, State: jobs.StateLost, Time: now})
	must(t, err)
	must(t, os.Mkdir(AttemptDir(list[6].Dir, 2), 0o700))
	must(t, os.WriteFile(filepath.Join(AttemptDir(list[6].Dir, 2), fileAttempt), []byte(`{"version":1,"id":"x","number":2}`), 0o600))
	// Removed and recorded again under the same id, as only a restore does.
	must(t, s.Remove(list[7]))
	n := sample(t)
	n.Spec.ID = list[7].Spec.ID
	_, err = s.Create(n)
	must(t, err)

	again := listed(t, s)
	if len(again) != len(list)-1 {
		t.Errorf("%d became %d", len(list), len(again))
	}
	want := map[int]jobs.State{0: jobs.StateFailed, 2: jobs.StateRunning, 4: jobs.StateLost /* was 5 */}
	for i, state := range want {
		if got := jobs.StateOf(again[i]); got != state {
			t.Errorf("job %d is %s, want %s", i, got, state)
		}
	}
	if again[1].Cancel == nil {
		t.Error("the cancel is not seen")
	}
	if !bytes.Equal(before, mustRead(t, s.index)) {
		t.Error("the index was written for a few changes")
	}
	// A beat of a running job changes no directory.
	age(t, s)
	dir := list[2].Current().Dir
	listed(t, s)
	must(t, os.Chtimes(filepath.Join(dir, fileBeat), now.Add(time.Hour), now.Add(time.Hour)))
	listed(t, s)

	for _, r := range again[:20] {
		must(t, s.Remove(r))
	}
	listed(t, s)
	if bytes.Equal(before, mustRead(t, s.index)) {
		t.Error("the index was not written for many changes")
	}
}

// TestIndexDamaged: whatever stands in the index's place, the listing is right,
// and the index is made again.
func TestIndexDamaged(t *testing.T) {
	t.Parallel()
	s := open(t)
	fill(t, s, indexFrom, true)
	age(t, s)
	listed(t, s)
	good := mustRead(t, s.index)
	flipped := bytes.Clone(good)
	flipped[len(flipped)/2] ^= 1
	other := mustRead(t, makeIndex(t, "/another/home"))
	for name, content := range map[string][]byte{
		"empty": {}, "torn": good[:len(good)/2], "head only": []byte(indexHead), "flipped": flipped, "longer": append(bytes.Clone(good), 0),
		"another ledger's": other, "text": []byte("hello\n"), "later format": append([]byte("berth index 4\n"), good[len(indexHead):]...),
	} {
		must(t, os.WriteFile(s.index, content, 0o600))
		if n := len(listed(t, s)); n != indexFrom {
			t.Errorf("%s: %d listed", name, n)
		}
		if n := rowsIn(mustRead(t, s.index), s.home); n != indexFrom {
			t.Errorf("%s: the index was not made anew: %d rows are good", name, n)
		}
	}
	// One that others may write is not believed, and replaced.
	must(t, os.Chmod(s.index, 0o666))
	listed(t, s)
	if fi, err := os.Stat(s.index); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	// No place for it: the listing works all the same.
	for _, place := range []string{"", "/proc/none/index", filepath.Join(s.index, "below-a-file")} {
		s.index = place
		listed(t, s)
	}
}

func TestIndexFile(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	x, y := indexFile("/a"), indexFile("/b")
	if filepath.Dir(x) != filepath.Join(cache, "berth") || x == y {
		t.Errorf("%s and %s", x, y)
	}
	t.Setenv("XDG_CACHE_HOME", "relative")
	if got := indexFile("/a"); got != "" {
		t.Error(got)
	}
}

// TestListOpen: what is left out is what no one has anything to do about.
func TestListOpen(t *testing.T) {
	t.Parallel()
	s := open(t)
	fill(t, s, indexFrom, true)
	fill(t, s, 3, false)
	age(t, s)
	list := listed(t, s)
	now := time.Now().UTC()
	var open []string
	ended := 0
	for _, r := range list {
		a := r.Current()
		if a.Exit == nil {
			open = append(open, r.Spec.ID)
			continue
		}
		switch ended++; ended {
		case 1: // its branch is not in the repository, and that is found out in time
			x := *a.Exit
			x.Result.Taken = false
			b, err := encode(x)
			must(t, err)
			must(t, os.Remove(filepath.Join(a.Dir, fileExit)))
			must(t, os.WriteFile(filepath.Join(a.Dir, fileExit), b, 0o600))
			open = append(open, r.Spec.ID)
		case 2: // someone was killed before the values were removed
			must(t, os.WriteFile(filepath.Join(a.Dir, fileEnv), []byte("A=1\x00"), 0o600))
			open = append(open, r.Spec.ID)
		case 3: // the end of another attempt is open
			must(t, os.Mkdir(AttemptDir(r.Dir, 2), 0o700))
			must(t, os.WriteFile(filepath.Join(AttemptDir(r.Dir, 2), fileAttempt), []byte(`{"version":1,"id":"x","number":2}`), 0o600))
			open = append(open, r.Spec.ID)
		case 4:
			_, err := SetCancel(r.Dir, jobs.Cancel{Version: 1, Time: now})
			must(t, err) // too late: it is at rest
		case 5:
			must(t, s.Remove(r))
		}
	}
	look := func(what string) {
		t.Helper()
		got, err := s.ListOpen()
		must(t, err)
		var ids []string
		for _, r := range got {
			want, err := s.Load(r.Spec.ID)
			must(t, err)
			if !reflect.DeepEqual(want, r) {
				t.Errorf("%s: the listing differs from the record:\n%s", what, cmp.Diff(want, r))
			}
			ids = append(ids, r.Spec.ID)
		}
		if !slices.Equal(ids, open) {
			t.Errorf("%s: %v\nwant %v", what, ids, open)
		}
	}
	look("with an index")
	age(t, s)
	must(t, os.Remove(s.index))
	look("without one")
	if n := rowsIn(mustRead(t, s.index), s.home); n != len(list)-2 { // one is removed, one has two attempts
		t.Errorf("%d of %d are in the index", n, len(list))
	}
	look("with what the one before has written")
	if n := len(listed(t, s)); n != len(list)-1 {
		t.Errorf("%d of %d are listed", n, len(list)-1)
	}
}

// TestIndexLarge writes more than is kept in memory.
func TestIndexLarge(t *testing.T) {
	t.Parallel()
	s := open(t)
	fill(t, s, chunkOf+100, true)
	age(t, s)
	listed(t, s)
	if n := rowsIn(mustRead(t, s.index), s.home); n != chunkOf+100 {
		t.Errorf("%d rows", n)
	}
	for _, r := range listed(t, s)[:300] {
		must(t, s.Remove(r))
	}
	listed(t, s)
	if n := rowsIn(mustRead(t, s.index), s.home); n != chunkOf-200 {
		t.Errorf("%d rows after 300 were removed", n)
	}
	listed(t, s)
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(s.index), ".index-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// rowsIn is how many records a file has that can be read from it, or -1.
func rowsIn(b []byte, home string) (n int) {
	f := bytes.NewReader(b)
	rows, chunks, ok := readTable(f, f.Size(), home)
	if !ok {
		return -1
	}
	read := map[int][]*jobs.Record{} // each chunk once: they are large
	for i := range rows {
		at := int(rows[i].chunk)
		recs, ok := read[at]
		if !ok {
			recs, _ = readChunk(f, &chunks[at])
			read[at] = recs
		}
		if rec := rows[i].in(recs); rec != nil {
			n++
		}
	}
	return n
}

// makeIndex writes an index of records that have only ids.
func makeIndex(t testing.TB, home string, ids ...string) string {
	t.Helper()
	w := indexWriter{path: filepath.Join(t.TempDir(), "index")}
	for _, id := range ids {
		w.add(row{id: id}, &jobs.Record{Spec: jobs.Spec{ID: id}})
	}
	w.finish(home)
	w.drop()
	must(t, w.err)
	return w.path
}

func FuzzIndex(f *testing.F) {
	b := mustRead(f, makeIndex(f, "/h", "01234567-89ab-cdef-0123-456789abcdef"))
	if n := rowsIn(b, "/h"); n != 1 {
		f.Fatal(n)
	}
	f.Add(b)
	f.Add([]byte(indexHead))
	f.Fuzz(func(_ *testing.T, b []byte) { rowsIn(b, "/h") })
}
