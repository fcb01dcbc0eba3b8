package slurm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/jobs"
	"berth/slurm"
)

// busySite is a Slurm that counts what it is asked, with a clock that only sleeping
// moves.
type busySite struct {
	mu     sync.Mutex
	now    time.Time
	queue  string
	fail   string
	asked  []time.Time // of anything
	queues int
	config int
}

func (s *busySite) clock() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *busySite) sleep(ctx context.Context, d time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(d)
	return ctx.Err()
}

func (s *busySite) Start(ctx context.Context, c jobs.Cmd) (jobs.Process, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var out, complaint string
	code := 0
	switch c.Argv[0] {
	case "squeue":
		s.queues++
		if out = s.queue; s.fail != "" {
			out, complaint, code = "", s.fail, 1
		}
	case "scontrol":
		s.config++
		out = nodbd
	case "sbatch":
		out = "77\n"
	}
	if c.Argv[0] != "sbatch" && c.Argv[0] != "scancel" {
		s.asked = append(s.asked, s.now)
	}
	_, _ = fmt.Fprint(c.Stdout, out)
	_, _ = fmt.Fprint(c.Stderr, complaint)
	return done{code}, nil
}

type done struct{ code int }

func (done) Signal(syscall.Signal) error { return nil }
func (d done) Wait() (jobs.Exit, error)  { return jobs.Exit{Started: true, Code: d.code}, nil }

// process is one berth process on the host of the site.
func (s *busySite) process(dir string) *slurm.Scheduler {
	return slurm.New(s, slurm.Config{Now: s.clock, Sleep: s.sleep, Environ: []string{"PATH=/bin"}, Shared: func() (string, error) { return dir, nil }})
}

func newSite() *busySite {
	return &busySite{now: now, queue: "7|RUNNING|0:0|N/A|c1|berth-a-0|None|\n"}
}

// TestPolite has many processes ask about their jobs all the time.
func TestPolite(t *testing.T) {
	site, dir := newSite(), t.TempDir()
	var all []*slurm.Scheduler
	for range 6 {
		all = append(all, site.process(dir))
	}
	known := []jobs.Handle{h("7", "berth-a-0")}
	end := site.clock().Add(10 * time.Minute)
	for site.clock().Before(end) {
		for _, p := range all {
			got, err := p.Status(jobs.WithPatience(t.Context()), known)
			if err != nil || got["berth-a-0"].NativeState != "RUNNING" || site.clock().Sub(got["berth-a-0"].AsOf) > time.Minute {
				t.Fatal(got, err)
			}
		}
		_ = site.sleep(t.Context(), 500*time.Millisecond)
	}
	// 15, 22.5, ... s, and then every 42 s to 60 s.
	if site.queues < 12 || site.queues > 24 {
		t.Errorf("asked %d times in ten minutes", site.queues)
	}
	// Jobs that it does not know, and that are new, may be newer than the answer, and are
	// looked for, but not more often than every 2 s.
	site.queues = 0
	since := site.clock().Add(-time.Hour).Unix()
	end = site.clock().Add(time.Minute)
	for site.clock().Before(end) {
		for i, p := range all {
			if _, err := p.Status(jobs.WithPatience(t.Context()), []jobs.Handle{fresh(fmt.Sprintf("berth-b-%d", i), since)}); err != nil {
				t.Fatal(err)
			}
		}
		_ = site.sleep(t.Context(), 500*time.Millisecond)
	}
	if site.queues < 15 || site.queues > 31 {
		t.Errorf("asked %d times in a minute", site.queues)
	}
	// Of one that has long been forgotten the next answer knows no more.
	site.queues = 0
	end = site.clock().Add(time.Minute)
	for site.clock().Before(end) {
		for _, p := range all {
			if _, err := p.Status(jobs.WithLook(t.Context()), []jobs.Handle{h("9", "berth-c-0")}); err != nil {
				t.Fatal(err)
			}
		}
		_ = site.sleep(t.Context(), 500*time.Millisecond)
	}
	if site.queues > 5 {
		t.Errorf("asked %d times in a minute for what is gone", site.queues)
	}
	for i := 2; i < len(site.asked); i++ {
		if d := site.asked[i].Sub(site.asked[i-2]); d < time.Second {
			t.Fatalf("three questions within %v", d)
		}
	}
}

// fresh is a job that was submitted a moment ago.
func fresh(name string, since int64) jobs.Handle {
	out := h("8", name)
	out.Opaque = fmt.Appendf(nil, `{"since":%d}`, since)
	return out
}

// TestPoll: looks of all processes together ask once in the time that a site gives, and
// who waits for an answer does not.
func TestPoll(t *testing.T) {
	site, dir := newSite(), t.TempDir()
	var all []*slurm.Scheduler
	noted := map[string]int{}
	for range 6 {
		all = append(all, slurm.New(site, slurm.Config{Now: site.clock, Sleep: site.sleep, Environ: []string{"PATH=/bin"}, Poll: 30 * time.Second,
			Note: func(program string) { noted[program]++ }, Shared: func() (string, error) { return dir, nil }}))
	}
	known := []jobs.Handle{h("7", "berth-a-0")}
	end := site.clock().Add(10 * time.Minute)
	for site.clock().Before(end) {
		for _, p := range all {
			if got, err := p.Status(jobs.WithLook(t.Context()), known); err != nil || site.clock().Sub(got["berth-a-0"].AsOf) >= 30*time.Second {
				t.Fatal(got, err)
			}
		}
		_ = site.sleep(t.Context(), time.Second)
	}
	if site.queues != 20 || noted["squeue"] != 20 {
		t.Errorf("asked %d times in ten minutes, of which %v were noted", site.queues, noted)
	}
	_ = site.sleep(t.Context(), 3*time.Second)
	for what, ctx := range map[string]context.Context{"waits": t.Context(), "has seen a change": jobs.WithLook(jobs.WithUrgency(t.Context()))} {
		before := site.queues
		if _, err := all[0].Status(ctx, known); err != nil || site.queues != before+1 {
			t.Errorf("who %s was told what was known: %v", what, err)
		}
		_ = site.sleep(t.Context(), 3*time.Second)
	}
	if _, err := all[1].Submit(t.Context(), launch(), "/x"); err != nil {
		t.Fatal(err)
	}
	before := site.queues
	if _, err := all[2].Status(jobs.WithLook(t.Context()), known); err != nil || site.queues != before+1 {
		t.Errorf("a look after a submission was told what was known before: %v", err)
	}
}

// TestPoliteChange sees at once what was submitted or ended from here.
func TestPoliteChange(t *testing.T) {
	site, dir := newSite(), t.TempDir()
	a, b := site.process(dir), site.process(dir)
	known := []jobs.Handle{h("7", "berth-a-0")}
	for range 40 {
		if _, err := a.Status(jobs.WithPatience(t.Context()), known); err != nil {
			t.Fatal(err)
		}
		_ = site.sleep(t.Context(), 5*time.Second)
	}
	site.queue = "7|CANCELLED|0:0|N/A|c1|berth-a-0|None|\n77|PENDING|0:0|N/A||" + launch().Name + "|Priority|\n"
	before := site.queues
	if _, err := a.Status(jobs.WithPatience(t.Context()), known); err != nil || site.queues != before {
		t.Fatalf("the answer of 5 s ago was not enough: %v", err)
	}
	hd, err := b.Submit(t.Context(), launch(), "/x")
	if err != nil {
		t.Fatal(err)
	}
	got, err := a.Status(jobs.WithPatience(t.Context()), append(known, hd))
	if err != nil || got["berth-a-0"].NativeState != "CANCELLED" || got[hd.Name].NativeState != "PENDING" {
		t.Error(got, err)
	}
	// Who looks is not patient.
	_ = site.sleep(t.Context(), 3*time.Second)
	site.queue = "7|COMPLETED|0:0|N/A|c1|berth-a-0|None|\n"
	if got, err := b.Status(t.Context(), known); err != nil || got["berth-a-0"].NativeState != "COMPLETED" {
		t.Error(got, err)
	}
	// Who has seen a change is told of it at once.
	site.queue = "7|FAILED|0:0|N/A|c1|berth-a-0|None|\n"
	if got, err := b.Status(t.Context(), known); err != nil || got["berth-a-0"].NativeState != "COMPLETED" {
		t.Error(got, err)
	}
	if got, err := b.Status(jobs.WithUrgency(t.Context()), known); err != nil || got["berth-a-0"].NativeState != "FAILED" {
		t.Error(got, err)
	}
	// Who must know waits for it, instead of taking an answer of before.
	site.queue = ""
	if found, err := b.Find(t.Context(), []string{hd.Name}); err != nil || len(found) != 0 {
		t.Error(found, err)
	}
}

// TestBusy leaves a Slurm alone that cannot answer, and tells what it said.
func TestBusy(t *testing.T) {
	site, dir := newSite(), t.TempDir()
	a, b := site.process(dir), site.process(dir)
	known := []jobs.Handle{h("7", "berth-a-0")}
	site.fail = "slurm_load_jobs error: Rate limit exceeded, please retry momentarily"
	if _, err := a.Status(t.Context(), known); jobs.KindOf(err) != jobs.KindInfra || !strings.Contains(err.Error(), "Rate limit") {
		t.Fatal(err)
	}
	start := site.clock()
	for site.clock().Sub(start) < 5*time.Minute {
		for _, p := range []*slurm.Scheduler{a, b} {
			if _, err := p.Status(t.Context(), known); err == nil || !strings.Contains(err.Error(), "Rate limit exceeded") {
				t.Fatal(err)
			}
		}
		_ = site.sleep(t.Context(), time.Second)
	}
	if site.queues < 6 || site.queues > 12 {
		t.Errorf("asked %d times in five minutes", site.queues)
	}
	site.fail = ""
	_ = site.sleep(t.Context(), time.Minute)
	if got, err := b.Status(t.Context(), known); err != nil || len(got) != 1 {
		t.Error(got, err)
	}
	// Someone who gives up says nothing about Slurm.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = site.sleep(t.Context(), time.Minute)
	if _, err := a.Status(ctx, known); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := b.Status(t.Context(), known); err != nil {
		t.Error(err)
	}
}

// TestSharedAtOnce has processes ask at the same moment: one does for all.
func TestSharedAtOnce(t *testing.T) {
	site, dir := newSite(), t.TempDir()
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			// No time passes on its clock, so the answer is new for whoever comes last.
			p := slurm.New(site, slurm.Config{Now: site.clock, Environ: []string{"PATH=/bin"}, Shared: func() (string, error) { return dir, nil }})
			if got, err := p.Status(t.Context(), []jobs.Handle{h("7", "berth-a-0")}); err != nil || len(got) != 1 {
				t.Error(got, err)
			}
		})
	}
	wg.Wait()
	if site.queues != 1 {
		t.Errorf("asked %d times", site.queues)
	}
}

// TestSharedConfig asks for the configuration rarely.
func TestSharedConfig(t *testing.T) {
	site, dir := newSite(), t.TempDir()
	// The file's time is the machine's, so the clock is that, and what was slept.
	slept := func() time.Time { return time.Now().Add(site.clock().Sub(now)) }
	process := func() *slurm.Scheduler {
		return slurm.New(site, slurm.Config{Now: slept, Sleep: site.sleep, Environ: []string{"PATH=/bin"}, Shared: func() (string, error) { return dir, nil }})
	}
	for range 3 {
		if _, err := process().Status(t.Context(), []jobs.Handle{h("8", "berth-b-0")}); err != nil {
			t.Fatal(err)
		}
	}
	if site.config != 1 {
		t.Errorf("asked %d times", site.config)
	}
	_ = site.sleep(t.Context(), 11*time.Minute)
	if _, err := process().Status(t.Context(), []jobs.Handle{h("8", "berth-b-0")}); err != nil || site.config != 2 {
		t.Errorf("asked %d times, %v", site.config, err)
	}
}

// TestSharedStopped: a process that was stopped while it asked holds no one up for
// ever.
func TestSharedStopped(t *testing.T) {
	site, dir := newSite(), t.TempDir()
	known := []jobs.Handle{h("7", "berth-a-0")}
	if _, err := site.process(dir).Status(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "slurm-*"))
	if err != nil || len(files) < 2 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			t.Fatal(err)
		}
	}
	before := site.clock()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // of the real clock
	defer cancel()
	got, err := site.process(dir).Status(ctx, known)
	if waited := site.clock().Sub(before); err != nil || len(got) != 1 || waited < time.Minute || waited > 5*time.Minute {
		t.Errorf("%v, %v, after %v", got, err, waited)
	}
}

// TestSharedPrograms: who has no squeue on the PATH does not tell the others that
// there is none, and another squeue's answers are another cluster's.
func TestSharedPrograms(t *testing.T) {
	site, dir := newSite(), t.TempDir()
	known := []jobs.Handle{h("7", "berth-a-0")}
	with := func(path string) *slurm.Scheduler {
		return slurm.New(site, slurm.Config{Now: site.clock, Sleep: site.sleep, Environ: []string{"PATH=" + path}, Shared: func() (string, error) { return dir, nil }})
	}
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "squeue"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	site.fail = "not found"
	if _, err := with("/nowhere").Status(t.Context(), known); err == nil {
		t.Fatal("it answered")
	}
	site.fail = ""
	for _, path := range []string{bin, "/nowhere:" + bin} {
		if got, err := with(path).Status(t.Context(), known); err != nil || len(got) != 1 {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
	if site.queues != 2 {
		t.Errorf("asked %d times: one squeue by two PATHs is one", site.queues)
	}
}

// TestNotShared asks for itself where there is no place to share.
func TestNotShared(t *testing.T) {
	for name, dir := range map[string]func() (string, error){
		"no directory": func() (string, error) { return "", errors.New("none") },
		"gone":         func() (string, error) { return "/proc/1/nowhere", nil },
	} {
		site := newSite()
		p := slurm.New(site, slurm.Config{Now: site.clock, Sleep: site.sleep, Environ: []string{"PATH=/bin"}, Shared: dir})
		for range 2 {
			if got, err := p.Status(t.Context(), []jobs.Handle{h("7", "berth-a-0")}); err != nil || len(got) != 1 {
				t.Errorf("%s: %v %v", name, got, err)
			}
		}
		if site.queues != 2 {
			t.Errorf("%s: asked %d times", name, site.queues)
		}
	}
}
