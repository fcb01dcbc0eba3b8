package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/jobs"
)

// TestChecks: the table is whole.
func TestChecks(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Checks() {
		if c.ID == "" || c.Name == "" || c.About == "" || c.run == nil || seen[c.ID] {
			t.Errorf("%+v", c)
		}
		if c.Scope != Scheduler && c.Scope != Backend && c.Scope != Machine {
			t.Errorf("%s has no scope", c.ID)
		}
		if c.Submit != (c.Scope == Scheduler) {
			t.Errorf("%s: a check of the scheduler is one of the side that submits", c.ID)
		}
		if c.Limit+graceTime > wholeTime {
			t.Errorf("%s may take %v", c.ID, c.Limit)
		}
		seen[c.ID] = true
	}
	if wholeTime+graceTime >= 30*time.Second {
		t.Error("it may take longer than it says")
	}
}

// TestHanging: what hangs, in a system call or not, costs its own findings and
// no others, and a check that panics is one failure.
func TestHanging(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	unblock := func() { // the goroutine that is left behind
		if f, err := os.OpenFile(fifo, os.O_RDWR, 0); err == nil {
			f.Close()
		}
	}
	defer unblock()
	const brief = 20 * time.Millisecond
	p := runChecks(t.Context(), where(t), []Check{
		{ID: "good", Scope: Machine, Name: "good", run: func(context.Context, *look) []Finding { return one(OK, "fine\nline", "") }},
		{ID: "call", Scope: Machine, Name: "call", Limit: brief, run: func(context.Context, *look) []Finding {
			_, err := os.ReadFile(fifo)
			return one(OK, err.Error(), "")
		}},
		{ID: "heeds", Scope: Machine, Name: "heeds", Limit: brief, run: func(ctx context.Context, _ *look) []Finding {
			<-ctx.Done()
			return one(Warn, causeOf(ctx).Error(), "")
		}},
		{ID: "panics", Scope: Machine, Name: "panics", run: func(_ context.Context, l *look) []Finding { return l.mustFail() }},
		{ID: "submits", Scope: Scheduler, Submit: true, Name: "submits", run: func(context.Context, *look) []Finding { return one(OK, "x", "") }},
	})
	for id, want := range map[string]string{
		"good": "ok fine line", "call": "fail no answer: it took longer than 20ms", "heeds": "warn it took longer than 20ms", "panics": "fail berth itself failed here: on purpose at run_test.go:", "submits": "ok x",
	} {
		f := p.Find(id)
		if got := string(f.Status) + " " + f.Why; !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
	w := where(t)
	w.Where = "node"
	if p := runChecks(t.Context(), w, []Check{{ID: "submits", Submit: true, run: func(context.Context, *look) []Finding { return one(Fail, "x", "") }}}); p.Find("submits").Status != "" {
		t.Error("a check of the side that submits was made on a node")
	}
}

// deaf is a starter whose programs never end by themselves.
type deaf struct{}

type deafProcess struct{ ctx context.Context }

func (deaf) Start(ctx context.Context, _ jobs.Cmd) (jobs.Process, error) {
	return deafProcess{ctx}, nil
}
func (p deafProcess) Signal(syscall.Signal) error { return nil }
func (p deafProcess) Wait() (jobs.Exit, error) {
	<-p.ctx.Done()
	return jobs.Exit{Started: true, Code: 137, Signal: 9}, nil
}

// refusing starts nothing.
type refusing struct{ err error }

func (r refusing) Start(context.Context, jobs.Cmd) (jobs.Process, error) { return nil, r.err }

// TestHalfBroken: with every program hanging, and with none that starts, all
// checks have an end, and each failure says something.
func TestHalfBroken(t *testing.T) {
	if testing.Short() {
		t.Skip("takes as long as the longest check")
	}
	t.Parallel()
	bin := programs(t, map[string]string{"sbatch": "", "squeue": "", "scancel": "", "scontrol": "", "sacct": "", "sacctmgr": "", "sinfo": "", "srun": "", "apptainer": "", "bash": "", "git": "", "true": "", "quota": ""})
	for name, on := range map[string]jobs.Starter{"hanging": deaf{}, "refused": refusing{errors.New("start: permission denied")}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := where(t)
			w.On = on
			env := map[string]string{"PATH": bin, "HOME": t.TempDir()}
			w.Getenv = func(n string) string { return env[n] }
			p := Run(t.Context(), w)
			if p.OK() {
				t.Error("nothing works, and that is all right")
			}
			for _, f := range p.Findings {
				if f.Why == "" {
					t.Errorf("%s says nothing: %+v", f.ID, f)
				}
			}
			for _, id := range []string{"slurm.controller", "apptainer.program"} {
				if got := p.Find(id); got.Status != Fail {
					t.Errorf("%s: %+v", id, got)
				}
			}
			if got := p.Find("scratch"); got.Status == "" {
				t.Error("the others were not made")
			}
		})
	}
}

// TestInterrupted: the end of the caller's context ends everything, and what
// was made is removed.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := where(t)
	w.On = deaf{}
	time.AfterFunc(50*time.Millisecond, cancel)
	Run(ctx, w)
	left, _ := filepath.Glob(filepath.Join(w.Getenv("TMPDIR"), "*"))
	if more, _ := filepath.Glob(filepath.Join(w.Getenv("HOME"), ".*")); len(left)+len(more) > 0 {
		t.Errorf("left: %q %q", left, more)
	}
}

// TestMain: a request comes in, an answer goes out.
func TestMainVerb(t *testing.T) {
	dir := t.TempDir()
	request, answer := filepath.Join(dir, "request"), filepath.Join(dir, "answer")
	b, err := json.Marshal(Where{Version: Version, Where: "node", State: filepath.Join(dir, "state"), Backend: jobs.BackendLocal})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(request, b, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir) // no Slurm, no containers
	var out, errs strings.Builder
	if code := Main([]string{"--json", "--request", request, "--answer", answer}, nil, &out, &errs); code != 0 || out.String()+errs.String() != "" {
		t.Fatalf("exit %d: %s%s", code, &out, &errs)
	}
	if b, err = os.ReadFile(answer); err != nil {
		t.Fatal(err)
	}
	p, err := ReadAnswer(b)
	if err != nil || p.Where != "node" || p.Find("state").Status != OK || !strings.HasPrefix(p.Find(IDBackend).Why, "local (configured)") {
		t.Errorf("%v: %s", err, b)
	}
	for _, args := range [][]string{nil, {"--json", "--request"}, {"--request", request}, {"x"}} {
		if code := Main(args, nil, &out, &errs); code != jobs.CodeUsage {
			t.Errorf("%q: exit %d", args, code)
		}
	}
	for _, bad := range []string{`{`, `{"version": 99}`, ``} {
		if code := Main([]string{"--json", "--request", "-"}, strings.NewReader(bad), &out, &errs); code != jobs.CodeUsage {
			t.Errorf("%q: exit %d", bad, code)
		}
	}
}

// where is a machine with nothing: an empty PATH, a home, an empty /.
func where(t *testing.T) Where {
	t.Helper()
	home, tmp := t.TempDir(), t.TempDir()
	if err := os.Chmod(home, 0o700); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"HOME": home, "TMPDIR": tmp, "PATH": ""}
	return Where{Root: t.TempDir(), Getenv: func(n string) string { return env[n] }}
}

// programs makes a directory of shell scripts.
func programs(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/bash\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// put writes a file below the machine's root.
func put(t *testing.T, w Where, path, text string) {
	t.Helper()
	p := w.path(path)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// lookAt runs one check of the table, with time for a machine that does much
// else: how long one may take is not what is looked at.
func lookAt(t *testing.T, w Where, id string) []Finding {
	t.Helper()
	for _, c := range Checks() {
		if c.ID == id {
			const long = 5 * time.Minute
			ctx, cancel := context.WithTimeout(t.Context(), long)
			defer cancel()
			c.Limit = long
			l := newLook(ctx, w.withDefaults())
			l.limit = long
			return c.bounded(ctx, l)
		}
	}
	t.Fatalf("there is no check %s", id)
	return nil
}

// expect compares findings with "status words of why" lines.
func expect(t *testing.T, what string, got []Finding, want ...string) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d findings, want %d: %+v", what, len(got), len(want), got)
		return
	}
	for i, f := range got {
		status, why, _ := strings.Cut(want[i], " ")
		if string(f.Status) != status || !strings.Contains(f.Why, why) {
			t.Errorf("%s: %s %q, want %s", what, f.Status, f.Why, want[i])
		}
		if f.Status == Fail && f.Do == "" {
			t.Errorf("%s: fails and says not what to do: %q", what, f.Why)
		}
	}
}

func (*look) mustFail() []Finding { panic("on purpose") }
