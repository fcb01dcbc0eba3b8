package overlay

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"berth/jobs"
)

// names lists what stands in a directory.
func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

func TestLease(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deps")
	must(t, os.Mkdir(dir, 0o700))
	first, err := Acquire(dir, me("aaaaaaaa"), func(Owner) bool { t.Error("there is nobody to ask about"); return false })
	must(t, err)

	asked := Owner{}
	second, err := Acquire(dir, me("bbbbbbbb"), func(o Owner) bool { asked = o; return false })
	if second != nil || jobs.CodeOf(err) != jobs.CodeAgain || jobs.HintOf(err) == "" {
		t.Fatalf("a second one: %v, %v", second, err)
	}
	for _, word := range []string{"deps", "aaaaaaaa", "host-aaaaaaaa", "since 20"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not name %s", err, word)
		}
	}
	if asked.Attempt != me("aaaaaaaa").Attempt || asked.PID != 7 || asked.BootID != "boot" {
		t.Errorf("asked about %+v", asked)
	}

	must(t, first.Release())
	must(t, first.Release()) // twice is no error
	second, err = Acquire(dir, me("bbbbbbbb"), func(Owner) bool { t.Error("it was given back"); return false })
	must(t, err)
	if got := names(t, dir); got != "lease.2.json" {
		t.Errorf("left %s", got)
	}

	third, err := Acquire(dir, me("cccccccc"), always)
	must(t, err)
	// The second was thought to be gone and is not: what it gives back is not
	// the third's.
	must(t, second.Release())
	if _, err := Acquire(dir, me("dddddddd"), never); jobs.CodeOf(err) != jobs.CodeAgain || !strings.Contains(err.Error(), "cccccccc") {
		t.Errorf("after the release of a lost lease: %v", err)
	}
	must(t, third.Release())
	fourth, err := Acquire(dir, me("dddddddd"), never)
	must(t, err)
	must(t, os.RemoveAll(dir)) // by hand, under us
	must(t, fourth.Release())
}

// TestLeaseRaces lets many take, give back and take over at once: at no moment
// do two hold it.
func TestLeaseRaces(t *testing.T) {
	dir := t.TempDir()
	_, err := Acquire(dir, me("deadbeef"), never)
	must(t, err)
	var holders, won atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 12 {
				l, err := Acquire(dir, me("aaaaaaaa"), func(o Owner) bool { return strings.HasSuffix(o.Attempt, "deadbeef") })
				if err != nil {
					if jobs.CodeOf(err) != jobs.CodeAgain {
						t.Error(err)
					}
					continue
				}
				won.Add(1)
				if n := holders.Add(1); n != 1 {
					t.Errorf("%d hold it", n)
				}
				holders.Add(-1)
				if err := l.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if won.Load() == 0 {
		t.Error("nobody got it")
	}
	t.Logf("taken %d times; left: %s", won.Load(), names(t, dir))
}

// TestLeaseTakeOver lets many see the same dead owner: one of them goes on.
func TestLeaseTakeOver(t *testing.T) {
	for range 10 {
		dir := t.TempDir()
		dead, err := Acquire(dir, me("deadbeef"), never)
		must(t, err)
		var won atomic.Int32
		var ready, wg sync.WaitGroup
		ready.Add(6)
		for range 6 {
			wg.Go(func() {
				waited := false
				_, err := Acquire(dir, me("aaaaaaaa"), func(o Owner) bool {
					if !waited { // until all have seen it
						waited = true
						ready.Done()
						ready.Wait()
					}
					return strings.HasSuffix(o.Attempt, "deadbeef")
				})
				switch {
				case err == nil:
					won.Add(1)
				case jobs.CodeOf(err) != jobs.CodeAgain:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 {
			t.Errorf("%d took it over", won.Load())
		}
		must(t, dead.Release())
		if _, err := Acquire(dir, me("bbbbbbbb"), never); jobs.CodeOf(err) != jobs.CodeAgain {
			t.Errorf("the dead owner has given the winner's lease back: %v", err)
		}
	}
}

// TestLeaseLate is a taker that was suspended between its look and its step,
// for so long that its number was used and cleared away.
func TestLeaseLate(t *testing.T) {
	dir := t.TempDir()
	_, err := Acquire(dir, me("deadbeef"), never)
	must(t, err)
	var third *Lease
	late, err := Acquire(dir, me("aaaaaaaa"), func(o Owner) bool {
		if !strings.HasSuffix(o.Attempt, "deadbeef") {
			return false
		}
		second, err := Acquire(dir, me("bbbbbbbb"), always)
		must(t, err)
		must(t, second.Release())
		third, err = Acquire(dir, me("cccccccc"), never)
		must(t, err)
		return true
	})
	if late != nil || jobs.CodeOf(err) != jobs.CodeAgain || !strings.Contains(err.Error(), "cccccccc") {
		t.Errorf("the late one: %v, %v", late, err)
	}
	if got := names(t, dir); got != "lease.3.json" {
		t.Errorf("left %s", got)
	}
	must(t, third.Release())
}

func TestLeaseDamaged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "lease.1.json")
	for _, content := range []string{"", "{", "[]"} {
		must(t, os.WriteFile(path, []byte(content), 0o600))
		l, err := Acquire(dir, me("aaaaaaaa"), always)
		if l != nil || jobs.CodeOf(err) != jobs.CodeInfra || !strings.Contains(err.Error(), path) || jobs.HintOf(err) == "" {
			t.Errorf("%q: %v, %v", content, l, err)
		}
	}
	// Strangers' names are no leases.
	must(t, os.Remove(path))
	for _, n := range []string{"lease.x.json", "lease.json", "lease..json", "lease.-1.json", "lease.9.txt"} {
		must(t, os.WriteFile(filepath.Join(dir, n), nil, 0o600))
	}
	if _, err := Acquire(dir, me("aaaaaaaa"), never); err != nil {
		t.Error(err)
	}
	if _, err := Acquire(filepath.Join(dir, "none"), me("aaaaaaaa"), never); err == nil {
		t.Error("a lease of nothing")
	}
}
