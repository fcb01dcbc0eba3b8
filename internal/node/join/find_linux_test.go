package join

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/sys/ids"
	"berth/internal/sys/lease"
	"berth/jobs"
	"berth/jobs/store"
)

// attempt is the record of an attempt whose runner is this process.
func attempt(t *testing.T, backend string, change func(*jobs.Claim)) (dir string) {
	t.Helper()
	id, err := ids.New()
	if err != nil {
		t.Fatal(err)
	}
	job := filepath.Join(t.TempDir(), id)
	dir = store.AttemptDir(job, 1)
	write := func(path string, v any) {
		b, err := json.Marshal(v)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o700)
		}
		if err == nil {
			err = os.WriteFile(path, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(job, "job.json"), jobs.Spec{Version: 1, ID: id, Place: jobs.Place{Backend: backend}})
	write(filepath.Join(dir, "attempt.json"), jobs.AttemptInfo{Version: 1, ID: id, Number: 1})
	if change != nil {
		me := lease.Self()
		c := jobs.Claim{Version: 1, Attempt: id, Host: me.Host, BootID: me.BootID, PID: me.PID, Start: me.Start}
		change(&c)
		write(filepath.Join(dir, "claim.json"), c)
	}
	return dir
}

func same(*jobs.Claim) {}

// mine is the place of a task that this process has opened.
var mine = func() jobs.Inside {
	me := lease.Self()
	return jobs.Inside{Version: 1, Home: "/h", Dir: "/d", Host: me.Host, BootID: me.BootID, PID: me.PID, Start: me.Start}
}()

func TestLookAt(t *testing.T) {
	inside := mine
	for name, c := range map[string]struct {
		backend string
		change  func(*jobs.Claim)
		also    func(t *testing.T, dir string)
		err     string // or else
		why     string // or else it is found
	}{
		"not begun":  {jobs.BackendLocal, nil, nil, "", "has not begun yet"},
		"preparing":  {jobs.BackendLocal, same, nil, "", "is being prepared"},
		"other host": {jobs.BackendLocal, func(c *jobs.Claim) { c.Host = "elsewhere" }, nil, "runs on elsewhere, and this is", ""},
		"other boot": {jobs.BackendLocal, func(c *jobs.Claim) { c.BootID = "other/1" }, nil, "runs on", ""},
		"gone":       {jobs.BackendLocal, func(c *jobs.Claim) { c.PID = 1 << 30 }, nil, "is no more", ""},
		"recycled":   {jobs.BackendLocal, func(c *jobs.Claim) { c.Start = "1" }, nil, "is no more", ""},
		"old":        {jobs.BackendLocal, func(c *jobs.Claim) { c.Start = "" }, nil, "by an older berth", ""},
		"ended": {jobs.BackendLocal, same, func(t *testing.T, dir string) {
			if _, err := store.SetExit(dir, jobs.ExitRecord{Version: 1, State: jobs.StateFailed}); err != nil {
				t.Fatal(err)
			}
		}, "has ended", ""},
		"no container": {jobs.BackendSingularity, same, func(t *testing.T, dir string) { put(t, dir, inside) }, "", "no container"},
		"another's place": {jobs.BackendLocal, same, func(t *testing.T, dir string) {
			in := inside
			in.Start = "1"
			put(t, dir, in)
		}, "is no more", ""},
		"local": {jobs.BackendLocal, same, func(t *testing.T, dir string) { put(t, dir, inside) }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := attempt(t, c.backend, c.change)
			if c.also != nil {
				c.also(t, dir)
			}
			got, why, err := lookAt(dir)
			switch {
			case c.err != "":
				if err == nil || !strings.Contains(err.Error(), c.err) || jobs.HintOf(err) == "" {
					t.Errorf("%+v %q %v", got, why, err)
				}
			case c.why != "":
				if err != nil || got != nil || !strings.Contains(why, c.why) {
					t.Errorf("%+v %q %v", got, why, err)
				}
			case err != nil || got == nil || got.inside.Home != "/h" || got.init.PID != 0:
				t.Errorf("%+v %q %v", got, why, err)
			}
		})
	}
}

func put(t *testing.T, dir string, in jobs.Inside) {
	t.Helper()
	if won, err := store.SetInside(dir, in); err != nil || !won {
		t.Fatal(won, err)
	}
}

// A place that is being prepared is waited for, and said so once.
func TestFindWaits(t *testing.T) {
	dir := attempt(t, jobs.BackendLocal, same)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	time.AfterFunc(2*look, func() { put(t, dir, mine) })
	n := 0
	if got, err := find(ctx, dir, func(string) { n++ }); err != nil || got.inside.Home != "/h" || n != 1 {
		t.Errorf("%+v %v, said %d times", got, err, n)
	}
	short, stop := context.WithTimeout(t.Context(), look/2)
	defer stop()
	if _, err := find(short, attempt(t, jobs.BackendLocal, same), func(string) {}); jobs.KindOf(err) != jobs.KindAgain {
		t.Error(err)
	}
}

func TestMainErrors(t *testing.T) {
	for line, want := range map[string]string{
		"":                     "usage: berth-node join",
		"--attempt relative":   "usage: berth-node join",
		"--attempt /nowhere/x": `"error":"there is no attempt in /nowhere/x`,
	} {
		var stderr bytes.Buffer
		if code := Main(strings.Fields(line), strings.NewReader(""), &bytes.Buffer{}, &stderr); code == 0 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: %d %s", line, code, stderr.String())
		}
	}
}

// The copy in memory is this program, and cannot be changed.
func TestCopyOfSelf(t *testing.T) {
	f, err := copyOfSelf()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	self, err := os.Stat("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := f.Stat(); err != nil || fi.Size() != self.Size() {
		t.Errorf("%v %v", fi, err)
	}
	if _, err := f.WriteAt([]byte("x"), 0); err == nil {
		t.Error("it was written")
	}
	if err := f.Truncate(0); err == nil {
		t.Error("it was cut")
	}
}
