package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/workspace"
	"berth/jobs"
)

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
		return &ReviewItem{Record: r, State: ReviewWaiting, Commit: id, ref: ref}
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
