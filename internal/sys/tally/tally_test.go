package tally

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

func TestLog(t *testing.T) {
	now := time.Date(2026, 11, 20, 23, 30, 0, 0, time.UTC)
	l := Log{Dir: filepath.Join(t.TempDir(), "asked"), Now: func() time.Time { return now }}
	if got, err := l.Since(now.Add(-time.Hour)); err != nil || got != nil {
		t.Errorf("of nothing: %v, %v", got, err)
	}
	l.Note("/usr/bin/ask")
	now = now.Add(time.Hour) // another day
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { l.Note("ask") })
	}
	all.Wait()
	f, err := os.OpenFile(filepath.Join(l.Dir, "2026-11-21"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString("half a\nx y z\n99999999999 ask later\n")
	_ = f.Close()
	got, err := l.Since(now.Add(-time.Hour))
	if err != nil || len(got) != 51 || got[0].Program != "ask" || got[0].Host == "" || !got[0].Time.Equal(now.Add(-time.Hour)) {
		t.Errorf("%d, %v: %+v", len(got), err, got[:1])
	}
	if got, err := l.Since(now); err != nil || len(got) != 50 {
		t.Errorf("%d, %v", len(got), err)
	}
	now = now.Add(5 * 24 * time.Hour)
	l.Note("ask")
	if files, _ := os.ReadDir(l.Dir); len(files) != 1 {
		t.Errorf("%v", files)
	}
	// Where nothing can be written nothing is counted, and nothing fails.
	Log{Dir: "/proc/1/nowhere/asked"}.Note("ask")
}
