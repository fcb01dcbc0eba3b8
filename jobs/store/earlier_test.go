package store

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"

	"github.com/google/go-cmp/cmp"
)

// TestEarlier reads ledgers of earlier versions: what each of their jobs is.
func TestEarlier(t *testing.T) {
	type is struct {
		State    jobs.State
		Code     int // of berth wait
		Attempts int
	}
	for name, want := range map[string]map[string]is{
		"earlier-2026-11": {
			"5ceb300c": {jobs.StateCompleted, 0, 1}, // with a branch
			"e3f5c245": {jobs.StateFailed, 1, 1},
			"20e7a16c": {jobs.StateCancelled, 130, 1},
			"79fe7e64": {jobs.StateCancelled, 130, 1}, // by a verdict
			"4a7eb19b": {jobs.StatePending, 8, 1},     // submitted, and not begun
			"2f830f28": {jobs.StateCompleted, 0, 1},   // of the local scheduler
			"e7a73d0f": {jobs.StateCompleted, 0, 2},   // tried again, for memory
		},
	} {
		s := earlier(t, name)
		list, err := s.List()
		must(t, err)
		got := map[string]is{}
		for _, r := range list {
			got[jobs.Short(r.Spec.ID)] = is{jobs.StateOf(r), jobs.CodeOfRecord(r), len(r.Attempts)}
			for _, a := range r.Attempts {
				if v, err := LoadReceipt(a.Dir); v != nil || err != nil {
					t.Errorf("the receipt of %s: %v, %v", a.Dir, v, err)
				}
				if a.Claim != nil {
					if in, err := LoadInside(a.Dir); err != nil || in == nil {
						t.Errorf("inside.json of %s: %v", a.Dir, err)
					}
				}
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
		if r, err := s.Find("5ceb300c"); err != nil || r.Current().Exit.Result == nil || !strings.HasPrefix(r.Current().Exit.Result.Branch, "berth/echo/") {
			t.Errorf("%v", err)
		}
		if r, err := s.Find("e7a73d0f"); err != nil || r.Attempts[0].Decision.Verb != jobs.VerbRetry || r.Attempts[1].Decision.Verb != jobs.VerbAccept || r.Attempts[1].Info.Change.Memory == 0 {
			t.Errorf("%v", err)
		}
	}
}

// TestNewer makes each file of a record one of a newer schema: the record is
// refused with the reason, and read as nothing else.
func TestNewer(t *testing.T) {
	s := earlier(t, "earlier-2026-11")
	for _, id := range []string{"e7a73d0f", "79fe7e64"} {
		r, err := s.Find(id)
		must(t, err)
		files := 0
		must(t, filepath.WalkDir(r.Dir, func(path string, d os.DirEntry, err error) error {
			must(t, err)
			b, err := os.ReadFile(path)
			if d.IsDir() || err != nil || !bytes.Contains(b, []byte(`"version": 1`)) || d.Name() == fileInside {
				return nil
			}
			files++
			var v map[string]any
			must(t, json.Unmarshal(b, &v))
			if v["version"] = 2; d.Name() == fileJob {
				v["version"] = jobs.SpecVersion + 1
			}
			newer, err := json.Marshal(v)
			must(t, err)
			must(t, os.WriteFile(path, newer, 0o600))
			got, err := LoadDir(r.Dir)
			if got != nil || jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), "newer berth") || !strings.Contains(err.Error(), d.Name()) || jobs.HintOf(err) == "" {
				t.Errorf("%s: %v, %v", d.Name(), got, err)
			}
			must(t, os.WriteFile(path, b, 0o600))
			return nil
		}))
		if files < 5 {
			t.Errorf("%s: %d files", id, files)
		}
	}
	r, err := s.Find("5ceb300c")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(r.Current().Dir, fileReceipt), []byte(`{"version": 2}`), 0o600))
	if v, err := LoadReceipt(r.Current().Dir); v == nil || jobs.CodeOf(err) != jobs.CodeConfig {
		t.Errorf("the receipt: %v", err)
	}
}

// earlier returns a copy of a ledger of testdata.
func earlier(t *testing.T, name string) *Store {
	t.Helper()
	home := filepath.Join(t.TempDir(), "state")
	must(t, os.CopyFS(home, os.DirFS(filepath.Join("testdata", name))))
	must(t, os.Chmod(home, 0o700))
	s, err := Open(home)
	must(t, err)
	return s
}
