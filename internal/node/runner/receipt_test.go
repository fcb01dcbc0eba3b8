package runner

import (
	"strings"
	"testing"

	"berth/jobs"
	"berth/jobs/store"
)

func (j *job) receipt() *jobs.Receipt {
	j.t.Helper()
	r, err := store.LoadReceipt(j.dir)
	if err != nil {
		j.t.Fatal(err)
	}
	return r
}

func TestReceipt(t *testing.T) {
	t.Parallel()
	j := newJob(t, "true", func(n *store.New) { n.Spec.Resources = jobs.Resources{CPUs: 2, Memory: 64 * jobs.GiB} })
	if code, rec := j.run(); code != 0 {
		t.Fatalf("%d, %+v", code, rec)
	}
	r := j.receipt()
	if r == nil || r.Level != jobs.LevelNone || r.Asked != jobs.LevelNone || r.Seen != nil || len(r.Proof) != 1 || r.Kernel == "" || r.Versions["berth"] == "" || !strings.HasSuffix(strings.Join(r.Argv, " "), "/node guest") || r.Attempt != j.rec.Current().Info.ID {
		t.Fatalf("%+v", r)
	}
	held := map[string]jobs.Limit{}
	for _, l := range r.Limits {
		held[l.Name] = l
	}
	if m, c := held["memory"], held["cpus"]; m.By == "" || !m.Advisory && m.By == "the runner" || c.Value != "2" || c.By != "" || c.Why == "" {
		t.Errorf("%+v", r.Limits)
	}
}

// A container program that makes no container: its guest is on the host.
func TestNoContainer(t *testing.T) {
	t.Parallel()
	j := layered(t, "echo never", func(n *store.New) { n.Spec.Level = jobs.LevelFS })
	code, rec := j.run()
	if code != jobs.CodeConfig || rec.Exit.Started || !strings.HasPrefix(rec.Reason, "the container") || rec.Hint == "" {
		t.Errorf("%d, %+v", code, rec)
	}
	if r := j.receipt(); r == nil || r.Level != "" || r.Asked != jobs.LevelFS || len(r.Proof) > 0 || r.Image == nil || r.Overlay == nil {
		t.Errorf("%+v", r)
	}
	if out := j.read(store.FileStdout); out != "" {
		t.Errorf("it has run: %q", out)
	}
}
