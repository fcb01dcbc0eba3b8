package runner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/jobs"
	"berth/jobs/store"
	"berth/test/fakes/siftest"

	"github.com/google/uuid"
)

// layered is a job of the backend singularity, without a container: its command
// finds the layer in $LAYER.
func layered(t *testing.T, command string, change func(*store.New)) *job {
	t.Helper()
	bin := t.TempDir()
	image := filepath.Join(bin, "image.sif")
	if err := errors.Join(writeProgram(filepath.Join(bin, "apptainer"), "#!/bin/sh\n"), os.WriteFile(image, siftest.New(uuid.New(), nil), 0o600)); err != nil {
		t.Fatal(err)
	}
	j := newJob(t, command, func(n *store.New) {
		n.Spec.Backend, n.Spec.Level, n.Spec.Image = jobs.BackendSingularity, jobs.LevelNone, image // its guest stands on the bare host
		n.Spec.Overlay = jobs.OverlaySpec{Name: "deps", Driver: jobs.DriverFuse}
		if change != nil {
			change(n)
		}
	})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	j.argv = []string{"/bin/sh", "-c", `LAYER=$1; export LAYER; exec "$0" guest`, self, "{overlay}"}
	j.env = []string{"PATH=" + bin + ":" + os.Getenv("PATH")}
	return j
}

// overlayDir is where the job's overlay stands.
func (j *job) overlayDir() string {
	return filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(j.rec.Dir))), "overlays", "deps")
}

// kept is what the overlay holds, and checks that nothing else is there.
func (j *job) kept() string {
	j.t.Helper()
	entries, err := os.ReadDir(j.overlayDir())
	if err != nil {
		j.t.Fatal(err)
	}
	for _, e := range entries {
		if n := e.Name(); n != "layer" && n != "mark.json" && !strings.HasPrefix(n, "lease.") {
			j.t.Errorf("there is %s", n)
		}
	}
	b, err := os.ReadFile(filepath.Join(j.overlayDir(), "layer", "upper", "said"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		j.t.Fatal(err)
	}
	return string(b)
}

const say = `echo hello > "$LAYER/upper/said"; `

func TestPromotion(t *testing.T) {
	t.Parallel()
	done := func(text string) func(*store.New) {
		return func(n *store.New) { n.Spec.Done = []jobs.Command{{Shell: text}} }
	}
	over := func(text string) func(*store.New) {
		return func(n *store.New) { done(text)(n); n.Spec.DoneOver = jobs.DoneOverTask }
	}
	inPlace := func(change func(*store.New)) func(*store.New) {
		return func(n *store.New) { change(n); n.Spec.Overlay.Snapshot = jobs.SnapshotNever }
	}
	for name, c := range map[string]struct {
		command string
		change  func(*store.New)
		state   jobs.State
		way     string
		kept    bool
	}{
		"success":       {say, nil, jobs.StateCompleted, jobs.WaySnapshot, true},
		"with retry":    {say, func(n *store.New) { n.Spec.Retry = jobs.DefaultRetry() }, jobs.StateCompleted, jobs.WaySnapshot, true},
		"failure":       {say + "exit 3", nil, jobs.StateFailed, jobs.WaySnapshot, false},
		"signal":        {say + "kill -9 $$", nil, jobs.StateFailed, jobs.WaySnapshot, false},
		"checks pass":   {say, over(`test -s "$LAYER/upper/said" && echo worse > "$LAYER/upper/said"`), jobs.StateCompleted, jobs.WaySnapshot, true},
		"clean checks":  {say, done(`test ! -e "$LAYER/upper/said" && echo worse > "$LAYER/upper/said"`), jobs.StateCompleted, jobs.WaySnapshot, true},
		"forged":        {say, done(`test -e "$LAYER/upper/said"`), jobs.StateFailed, jobs.WaySnapshot, false},
		"none before":   {say, inPlace(done("true")), jobs.StateError, "", false}, // and the task has not run
		"task's":        {say, inPlace(over(`test -e "$LAYER/upper/said"`)), jobs.StateCompleted, jobs.WayInPlace, true},
		"a check fails": {say, done("exit 1"), jobs.StateFailed, jobs.WaySnapshot, false},
		"time":          {say + "exec sleep 60", func(n *store.New) { n.Spec.Resources.Time = 300 * time.Millisecond }, jobs.StateTimeout, jobs.WaySnapshot, false},
		"in place":      {say + "exit 3", func(n *store.New) { n.Spec.Overlay.Snapshot = jobs.SnapshotNever }, jobs.StateFailed, jobs.WayInPlace, true},
		"no image":      {say, func(n *store.New) { n.Spec.Image += ".not" }, jobs.StateError, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := layered(t, c.command, c.change)
			_, rec := j.run()
			if rec.State != c.state {
				t.Errorf("%+v\n%s", rec, j.read(store.FileRuntime))
			}
			if c.way == "" {
				return
			}
			if o := rec.Overlay; o == nil || o.Way != c.way || o.Name != "deps" || o.Driver != jobs.DriverFuse || o.Why == "" || o.Promoted != (c.kept && c.way == jobs.WaySnapshot) {
				t.Errorf("%+v", o)
			}
			if told, err := store.HasPromoted(j.dir); err != nil || told != (rec.Overlay.Promoted && j.rec.Spec.Retry != nil) {
				t.Errorf("told before the end: %v, %v", told, err)
			}
			if got := j.kept(); (got == "hello\n") != c.kept {
				t.Errorf("the overlay holds %q", got)
			}
		})
	}
}

// TestThrownAwayLayer: the record says what it was.
func TestThrownAwayLayer(t *testing.T) {
	t.Parallel()
	j := layered(t, say, func(n *store.New) { n.Spec.Overlay.Name = "" })
	if _, rec := j.run(); rec.State != jobs.StateCompleted || rec.Overlay == nil || *rec.Overlay != (jobs.OverlayUse{Driver: jobs.DriverFuse, Way: jobs.WayTemporary}) {
		t.Errorf("%+v", rec)
	}
}

// TestDoneOverThrownAway: a check finds nothing of the task's, unless it is to.
func TestDoneOverThrownAway(t *testing.T) {
	t.Parallel()
	for over, state := range map[string]jobs.State{"": jobs.StateFailed, jobs.DoneOverTask: jobs.StateCompleted} {
		j := layered(t, say, func(n *store.New) {
			n.Spec.Overlay.Name, n.Spec.DoneOver = "", over
			n.Spec.Done = []jobs.Command{{Shell: `test -d "$LAYER/upper"`}, {Shell: `test -e "$LAYER/upper/said"`}}
		})
		if _, rec := j.run(); rec.State != state || len(rec.Done) != 2 {
			t.Errorf("%q: %+v\n%s", over, rec, j.read(store.FileRuntime))
		}
		want := ""
		if over != "" {
			want = "the task's own files"
		}
		if r, err := store.LoadReceipt(j.dir); err != nil || r.CheckedOver != want {
			t.Errorf("%q: %+v, %v", over, r, err)
		}
	}
}

// TestCancelledLayer: what was asked to end changes nothing, whatever it exits
// with.
func TestCancelledLayer(t *testing.T) {
	t.Parallel()
	j := layered(t, say+`trap 'exit 0' TERM; echo ready; while :; do sleep 0.1; done`, nil)
	j.periods.Grace = patient
	j.start()
	j.says("ready")
	j.signal(syscall.SIGTERM)
	if _, rec := j.wait(); rec.State != jobs.StateCancelled || rec.Overlay.Promoted || j.kept() != "" {
		t.Errorf("%+v, %q", rec, j.kept())
	}
}

// TestFencedLayer: whose claim or lease is another's now changes nothing.
func TestFencedLayer(t *testing.T) {
	t.Parallel()
	j := layered(t, say+`echo ready; while test ! -e "$HOME/go"; do sleep 0.05; done`, nil)
	j.start()
	j.says("ready")
	leases, err := filepath.Glob(filepath.Join(j.overlayDir(), "lease.*.json"))
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	if err := os.WriteFile(filepath.Join(j.overlayDir(), "lease.77.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(j.tmp, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	code, rec := j.wait()
	if rec.State != jobs.StateError || code != jobs.CodeInfra || rec.Code != jobs.CodeInfra || rec.Overlay.Promoted || !strings.Contains(rec.Reason, "taken") || rec.Hint == "" || j.kept() != "" {
		t.Errorf("%d %+v, %q", code, rec, j.kept())
	}
}

// TestKilledLayer: the copy of a runner that was killed is gone after the next.
func TestKilledLayer(t *testing.T) {
	t.Parallel()
	first := layered(t, say+`echo ready; sleep 60`, nil)
	first.start()
	first.says("ready")
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.done
	first.nothingLeft()
	copies, err := filepath.Glob(filepath.Join(first.overlayDir(), ".attempt-*"))
	if err != nil || len(copies) != 1 {
		t.Fatal(copies, err)
	}
	next := layered(t, `test ! -e "$LAYER/upper/said"`, func(n *store.New) { n.Spec.Image = first.rec.Spec.Image })
	next.periods.GuestWait = slow // for so long a dead one is believed to live
	if err := errors.Join(os.MkdirAll(filepath.Dir(next.overlayDir()), 0o700), os.Rename(first.overlayDir(), next.overlayDir())); err != nil {
		t.Fatal(err)
	}
	if _, rec := next.run(); rec.State != jobs.StateCompleted || !rec.Overlay.Promoted || next.kept() != "" {
		t.Errorf("%+v", rec)
	}
}

// TestFencedInPlace: whoever works in the overlay itself stops when it is
// another's, for that one writes there now.
func TestFencedInPlace(t *testing.T) {
	t.Parallel()
	j := layered(t, say+`echo ready; while :; do sleep 0.05; done`, func(n *store.New) { n.Spec.Overlay.Snapshot = jobs.SnapshotNever })
	j.start()
	j.says("ready")
	if err := os.WriteFile(filepath.Join(j.overlayDir(), "lease.77.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, rec := j.wait(); rec.State != jobs.StateError || !strings.Contains(rec.Reason, "overlay deps was taken over") || rec.Hint == "" {
		t.Errorf("%+v", rec)
	}
}

// TestUndecidedLayer: what no one has accepted changes nothing.
func TestUndecidedLayer(t *testing.T) {
	t.Parallel()
	j := layered(t, say+`echo ready; while test ! -e "$HOME/go"; do sleep 0.05; done`, func(n *store.New) { n.Spec.Retry = jobs.DefaultRetry() })
	j.start()
	j.says("ready")
	// The job cannot be read from now on.
	if err := errors.Join(os.WriteFile(filepath.Join(j.dir, "verdict.json"), []byte("torn"), 0o600), os.WriteFile(filepath.Join(j.tmp, "go"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	<-j.done
	if err := os.Remove(filepath.Join(j.dir, "verdict.json")); err != nil {
		t.Fatal(err)
	}
	_, rec := j.wait()
	if rec.State != jobs.StateError || rec.Code != jobs.CodeInfra || rec.Overlay.Promoted || !strings.Contains(rec.Reason, "could not be recorded") || rec.Hint == "" || j.kept() != "" {
		t.Errorf("%+v, %q", rec, j.kept())
	}
}
