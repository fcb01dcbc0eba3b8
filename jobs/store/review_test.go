package store

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"berth/jobs"
)

// Verdicts of several processes get a number each, and none is changed: the last one
// counts, and a merge is unfinished as long as no end of it is recorded.
func TestReviews(t *testing.T) {
	dir := t.TempDir()
	r, err := LoadReviews(dir)
	if err != nil || r.Verdict() != nil || r.Unfinished() != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			v := jobs.ReviewVerdict{Version: 1, Verdict: jobs.VerdictReject, Commit: "c", UID: i}
			if _, err := AddVerdict(dir, v); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	n, err := AddVerdict(dir, jobs.ReviewVerdict{Version: 1, Verdict: jobs.VerdictApprove, Commit: "c", Tree: "t"})
	if err != nil || n != 9 {
		t.Fatalf("%d, %v", n, err)
	}
	if _, err := AddReviewRun(dir, jobs.ReviewRun{Version: 1, Tree: "t", OK: true}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false} {
		if won, err := SetMerge(dir, n, jobs.ReviewMerge{Version: 1, New: string(rune('a' + i))}); won != want || err != nil {
			t.Errorf("journal %d: %t, %v", i, won, err)
		}
	}
	if err := SetShown(dir, "t"); err != nil {
		t.Fatal(err)
	}
	r, err = LoadReviews(dir)
	if err != nil || len(r.Verdicts) != 9 || r.Verdict().N != 9 || r.Unfinished() == nil || r.Unfinished().New != "a" || !r.Shown["t"] || len(r.Runs) != 1 || r.Runs[0].Tree != "t" || !r.Runs[0].OK {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := SetMerged(dir, n, jobs.ReviewMerged{Version: 1, New: "a"}); err != nil {
		t.Fatal(err)
	}
	if r, err = LoadReviews(dir); err != nil || r.Unfinished() != nil || r.IsMerged("c") == nil || r.IsMerged("d") != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	// A verdict that is none is damage, and told.
	if err := os.WriteFile(filepath.Join(dir, "review", "0010.json"), []byte(`{"version":1,"verdict":"APPROVE"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadReviews(dir); jobs.KindOf(err) != jobs.KindInfra {
		t.Errorf("%v", err)
	}
}
