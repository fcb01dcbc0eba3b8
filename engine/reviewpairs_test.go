package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/workspace"
	"berth/jobs"
)

// A commit that is not there is no conflict, nor remembered as one, and takes no merge; targets
// that moved leave merges for the pairs; and a repository that cannot be borrowed from is an error once.
func TestForecast(t *testing.T) {
	f, r, repo, git := reviewing(t)
	must(t, os.WriteFile(filepath.Join(repo, "a"), []byte("other\n"), 0o600))
	git("commit", "-qam", "other")
	moved := func() *ReviewItem {
		return &ReviewItem{Record: r, part: r, State: ReviewWaiting, Commit: r.Current().Result().Commit, Target: "main", onto: git("rev-parse", "main")}
	}
	lost := moved()
	lost.onto = strings.Repeat("1", len(lost.onto))
	for _, c := range []struct {
		name                                 string
		items                                []*ReviewItem
		targets, left, skipped, known, marks int
		merged                               int
	}{
		{"lost commits", []*ReviewItem{moved(), lost, lost}, 1, 1, 2, 1, 1, 1},
		{"no share is left", []*ReviewItem{moved()}, 0, 3, 1, 0, 0, 0},
		{"nothing is left", []*ReviewItem{moved()}, 3, 0, 1, 0, 0, 0},
	} {
		x := &forecaster{e: f.Engine, file: filepath.Join(t.TempDir(), "known"), left: c.left, targets: c.targets}
		err := x.forecast(t.Context(), c.items)
		marks := 0
		for _, it := range c.items {
			marks += len(it.TargetConflicts)
		}
		if err != nil || x.left != c.left-c.merged || x.skipped != c.skipped || len(x.known) != c.known || marks != c.marks {
			t.Errorf("%s: %v, %d skipped, %v known, %d marks", c.name, err, x.skipped, x.known, marks)
		}
	}
	must(t, os.RemoveAll(r.Spec.Workspace.GitDir))
	x := &forecaster{e: f.Engine, file: filepath.Join(t.TempDir(), "known"), left: 8, targets: 8}
	if err := x.forecast(t.Context(), []*ReviewItem{lost, lost}); err == nil || x.skipped != 1 || x.left != 8 {
		t.Errorf("%v, %d skipped, %d left", err, x.skipped, x.left)
	}
}

// TestPairsOfResults: what has a file where another one has a directory may conflict, and
// what only begins with the same letters does not.
func TestPairsOfResults(t *testing.T) {
	item := func(id, ref string, path string) *ReviewItem {
		dir := filepath.Join(t.TempDir(), id)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		text := `{"files":[{"path":"` + path + `"}]}`
		if err := os.WriteFile(filepath.Join(dir, workspace.ManifestFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := &jobs.Record{Spec: jobs.Spec{ID: id}, Attempts: []jobs.Attempt{{N: 1, Dir: dir}}}
		return &ReviewItem{Record: r, State: ReviewWaiting, Commit: id, ref: ref, files: changedFiles(dir)}
	}
	const main = "refs/heads/main"
	for _, c := range []struct {
		name string
		a, b *ReviewItem
		want int
	}{
		{"the same file", item("1", main, "x"), item("2", main, "x"), 1},
		{"a file and a directory", item("1", main, "x"), item("2", main, "x/y/z"), 1},
		{"a directory and a file", item("1", main, "x/y/z"), item("2", main, "x/y"), 1},
		{"the same beginning", item("1", main, "x"), item("2", main, "xy/z"), 0},
		{"the same directory", item("1", main, "d/x"), item("2", main, "d/y"), 0},
		{"far above", item("1", main, "x"), item("2", main, "x"+strings.Repeat("/d", mostAbove)), 1},
		{"too far above", item("1", main, "x"), item("2", main, "x"+strings.Repeat("/d", mostAbove+1)), 0},
		{"another target", item("1", main, "x"), item("2", "refs/heads/main/x", "x/y"), 0},
	} {
		pairs := pairsOf([]*ReviewItem{c.a, c.b})
		if len(pairs) != c.want || c.want == 1 && pairs[0] != (pairOf{c.a, c.b}) {
			t.Errorf("%s: %v", c.name, pairs)
		}
	}
}
