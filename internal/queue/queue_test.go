//go:build linux

package queue

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/jobs"
	"berth/templates"
)

// patience is how many looks, of 20 ms each, something is waited for before the
// test fails: a machine that does much else is no failure.
const patience = 9000

// at is a queue whose jobs run this test program as their berth-node.
func at(t *testing.T, cpus int, memory jobs.Bytes) *Queue {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Dir: t.TempDir(), Script: templates.WithRemark, Node: self, CPUs: cpus, Memory: memory})
}

// submit puts a job into the queue whose script is one line; the job is gone
// when the test ends.
func submit(t *testing.T, q *Queue, name, line string, r jobs.Resources) jobs.Handle {
	t.Helper()
	return submitAfter(t, q, name, line, r, t.TempDir(), nil)
}

// submitAfter is the same for one that waits for others, in a directory.
func submitAfter(t *testing.T, q *Queue, name, line string, r jobs.Resources, dir string, after []jobs.After) jobs.Handle {
	t.Helper()
	script := filepath.Join(dir, "script.sh")
	if err := os.WriteFile(script, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, err := q.Submit(t.Context(), jobs.Launch{Name: name, Dir: dir, Resources: r, After: after}, script)
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, jobs.SchedulerLog))
		t.Fatalf("submit %s: %v\n%s", name, err, log)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		for range patience {
			st, err := q.Status(ctx, []jobs.Handle{h})
			if err != nil {
				t.Error(err)
			}
			if _, alive := st[name]; !alive {
				return
			}
			if err := q.Cancel(ctx, []jobs.Handle{h}); err != nil {
				t.Error(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		t.Errorf("%s outlives the test", name)
	})
	return h
}

func state(t *testing.T, q *Queue, h jobs.Handle) jobs.State {
	t.Helper()
	st, err := q.Status(t.Context(), []jobs.Handle{h})
	if err != nil {
		t.Fatal(err)
	}
	return st[h.Name].State
}

func await(t *testing.T, q *Queue, h jobs.Handle, want jobs.State) {
	t.Helper()
	for range patience {
		if state(t, q, h) == want {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%s is %q, want %q", h.Name, state(t, q, h), want)
}

const forever = "exec sleep 300"

func TestOrderAndBounds(t *testing.T) {
	q := at(t, 2, 4*jobs.GiB)
	one := submit(t, q, "one", forever, jobs.Resources{})
	await(t, q, one, jobs.StateRunning)
	big := submit(t, q, "big", forever, jobs.Resources{CPUs: 2})
	small := submit(t, q, "small", forever, jobs.Resources{CPUs: 1})
	time.Sleep(300 * time.Millisecond)
	if a, b := state(t, q, big), state(t, q, small); a != jobs.StatePending || b != jobs.StatePending {
		t.Errorf("big is %s; small, which came later, is %s", a, b)
	}
	if err := q.Cancel(t.Context(), []jobs.Handle{big}); err != nil {
		t.Fatal(err)
	}
	await(t, q, small, jobs.StateRunning)
}

// A job that waits for others has no share of the machine; when its time has
// come it goes behind what came meanwhile.
func TestAfter(t *testing.T) {
	q := at(t, 2, 4*jobs.GiB)
	after := []jobs.After{{Job: "x", Need: jobs.NeedOK}}
	waits := func(dir, text string) {
		if err := os.WriteFile(filepath.Join(dir, ".waits"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, ".waits"), filepath.Join(dir, "waits")); err != nil {
			t.Fatal(err)
		}
	}
	dir, hopeless := t.TempDir(), t.TempDir()
	waits(dir, "1a2b3c4d (ok)")
	waits(hopeless, "5e6f7081 (ok)")
	child := submitAfter(t, q, "child", forever, jobs.Resources{CPUs: 2}, dir, after)
	never := submitAfter(t, q, "never", forever, jobs.Resources{CPUs: 2}, hopeless, after)
	big := submit(t, q, "big", forever, jobs.Resources{CPUs: 2})
	await(t, q, big, jobs.StateRunning)
	st, err := q.Status(t.Context(), []jobs.Handle{child})
	if err != nil || st["child"].State != jobs.StatePending || st["child"].Reason != "waits for 1a2b3c4d (ok)" {
		t.Errorf("%+v, %v", st, err)
	}
	second := submit(t, q, "second", forever, jobs.Resources{CPUs: 1})
	if st, err = q.Status(t.Context(), []jobs.Handle{second}); err != nil || !strings.Contains(st["second"].Reason, "waits for 1 CPU and 0 MiB behind 1 job;") {
		t.Errorf("%+v, %v", st, err)
	}
	// What never begins takes no turn to say so.
	waits(hopeless, "never")
	await(t, q, never, jobs.StateRunning)

	waits(dir, "")
	for i := 0; ; i++ {
		st, err := q.Status(t.Context(), []jobs.Handle{child})
		if err == nil && strings.Contains(st["child"].Reason, "behind 2 jobs") {
			break
		}
		if i == patience {
			t.Fatalf("%+v, %v", st, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	third := submit(t, q, "third", forever, jobs.Resources{CPUs: 1})
	if err := q.Cancel(t.Context(), []jobs.Handle{big}); err != nil {
		t.Fatal(err)
	}
	await(t, q, second, jobs.StateRunning)
	if a, b := state(t, q, child), state(t, q, third); a != jobs.StatePending || b != jobs.StatePending {
		t.Errorf("the child is %s, and what came after it %s", a, b)
	}
	if err := q.Cancel(t.Context(), []jobs.Handle{second}); err != nil {
		t.Fatal(err)
	}
	await(t, q, child, jobs.StateRunning)
	if err := q.Cancel(t.Context(), []jobs.Handle{child}); err != nil {
		t.Fatal(err)
	}
	await(t, q, third, jobs.StateRunning)
}

func TestMemoryBounds(t *testing.T) {
	q := at(t, 8, 4*jobs.GiB)
	a := submit(t, q, "a", forever, jobs.Resources{Memory: 3 * jobs.GiB})
	b := submit(t, q, "b", forever, jobs.Resources{Memory: 2 * jobs.GiB})
	await(t, q, a, jobs.StateRunning)
	time.Sleep(200 * time.Millisecond)
	if s := state(t, q, b); s != jobs.StatePending {
		t.Error(s)
	}
}

// A process that is killed frees its share, running or waiting, and the next
// one to enter removes its file.
func TestCrashFreesTheShare(t *testing.T) {
	q := at(t, 1, jobs.GiB)
	first := submit(t, q, "first", forever, jobs.Resources{})
	second := submit(t, q, "second", forever, jobs.Resources{})
	third := submit(t, q, "third", forever, jobs.Resources{})
	await(t, q, first, jobs.StateRunning)
	alive, _, err := q.alive()
	if err != nil || len(alive) != 3 {
		t.Fatal(alive, err)
	}
	for _, e := range alive[:2] {
		p, err := os.FindProcess(e.PID)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	await(t, q, third, jobs.StateRunning)
	if s := state(t, q, second); s != "" {
		t.Error(s)
	}
	submit(t, q, "fourth", forever, jobs.Resources{})
	dir, _, _ := q.here()
	all, err := entries(dir)
	if err != nil || len(all) != 2 || all[0].Name != "third" || all[1].number <= all[0].number {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestTheJobIsTheWaiter(t *testing.T) {
	q := at(t, 1, jobs.GiB)
	t.Setenv("BERTH_TEST_LEAK", "secret")
	q.cfg.Environ = append(os.Environ(), "BERTH_TEST_LEAK=secret")
	out := filepath.Join(t.TempDir(), "out")
	h := submit(t, q, "env", fmt.Sprintf(`{ echo $$; env; ps -o sid= -p $$; } > %s.tmp; mv %s.tmp %s; exec sleep 60`, out, out, out), jobs.Resources{})
	var data []byte
	for range patience {
		var err error
		if data, err = os.ReadFile(out); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	alive, _, err := q.alive()
	if err != nil || len(alive) != 1 {
		t.Fatal(alive, err)
	}
	lines := strings.Fields(string(data))
	if pid := fmt.Sprint(alive[0].PID); len(lines) < 2 || lines[0] != pid || lines[len(lines)-1] != pid {
		t.Errorf("the job of process %s is no leader of its own session:\n%s", pid, data)
	}
	if strings.Contains(string(data), "secret") {
		t.Errorf("the caller's environment reached the job:\n%s", data)
	}
	_ = h
}

func TestRefused(t *testing.T) {
	q := at(t, 2, jobs.GiB)
	for name, r := range map[string]jobs.Resources{
		"cpus": {CPUs: 3}, "memory": {Memory: jobs.GiB + 1}, "nodes": {Nodes: 2}, "gpus": {GPUs: "1"}, "negative": {CPUs: -1},
	} {
		if h, err := q.Submit(t.Context(), jobs.Launch{Name: "x", Dir: t.TempDir(), Resources: r}, "/s"); jobs.KindOf(err) != jobs.KindRejected {
			t.Errorf("%s: %+v, %v", name, h, err)
		}
	}
	q.cfg.Node = "/no/such/program"
	if _, err := q.Submit(t.Context(), jobs.Launch{Name: "x", Dir: t.TempDir()}, "/s"); jobs.KindOf(err) != jobs.KindInfra {
		t.Error(err)
	}
	q.cfg.Node = "/bin/false"
	if _, err := q.Submit(t.Context(), jobs.Launch{Name: "x", Dir: t.TempDir()}, "/s"); jobs.KindOf(err) != jobs.KindInfra {
		t.Error(err)
	}
}

// Of a job on another host nothing can be said; one of an earlier boot is over.
func TestElsewhere(t *testing.T) {
	q := at(t, 1, jobs.GiB)
	_, here, err := q.here()
	if err != nil {
		t.Fatal(err)
	}
	handleAt := func(name string, change func(*location)) jobs.Handle {
		l := here
		change(&l)
		o, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		return jobs.Handle{Version: 1, Name: name, NativeID: "1", Opaque: o}
	}
	other := handleAt("other", func(l *location) { l.Host = "elsewhere" })
	inside := handleAt("inside", func(l *location) { l.NS = "1" })
	before := handleAt("before", func(l *location) { l.Boot = "old" })
	got, err := q.Status(t.Context(), []jobs.Handle{other, inside, before})
	if err != nil || len(got) != 2 || got["other"].State != "" || got["other"].Hint == "" || got["inside"].State != "" {
		t.Errorf("%+v, %v", got, err)
	}
	if err := q.Cancel(t.Context(), []jobs.Handle{before}); err != nil {
		t.Error(err)
	}
	if err := q.Cancel(t.Context(), []jobs.Handle{other}); err == nil || !strings.Contains(err.Error(), "elsewhere") {
		t.Error(err)
	}
}

func TestSecondOfOneNameDoesNotEnter(t *testing.T) {
	q := at(t, 1, jobs.GiB)
	submit(t, q, "one", forever, jobs.Resources{})
	dir, _, _ := q.here()
	w := waiter{dir: dir, entry: entry{Name: "one", CPUs: 1}, cpus: 1, argv: []string{"true"}}
	cmd := exec.CommandContext(t.Context(), q.cfg.Node, w.args()...)
	out, _ := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != waitTwice {
		t.Errorf("%v: %s", cmd.ProcessState, out)
	}
}

func TestWaiterArgs(t *testing.T) {
	w := waiter{dir: "/a b", entry: entry{Name: "x", CPUs: 2, Memory: 5}, cpus: 4, memory: 9, argv: []string{"bash", "--x"}}
	got, err := parseWaiter(w.args()[1:])
	if err != nil || fmt.Sprint(got) != fmt.Sprint(w) {
		t.Errorf("%+v, %v", got, err)
	}
	w.attempt, w.client = "/x/attempts/0001", "/bin/berth"
	if got, err = parseWaiter(w.args()[1:]); err != nil || fmt.Sprint(got) != fmt.Sprint(w) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range [][]string{nil, {"--queue", "rel", "--entry", "x", "--", "a"}, {"--queue", "/a", "--entry", "../x", "--", "a"}, {"--queue", "/a", "--entry", "x"}, {"--queue", "/a", "--entry", "x", "--cpus", "0", "--", "a"}, {"--what"}} {
		if _, err := parseWaiter(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestProcessAlive(t *testing.T) {
	if own, err := processStart(os.Getpid()); err != nil || !processAlive(os.Getpid(), own) || processAlive(os.Getpid(), own+1) {
		t.Error(own, err)
	}
}

func FuzzEntry(f *testing.F) {
	f.Add([]byte(`{"version":1,"name":"x","cpus":1,"pid":2,"started":3}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if e, ok := parseEntry(data); ok && (e.PID <= 0 || e.CPUs <= 0 || e.Memory < 0 || e.Name == "") {
			t.Errorf("%+v", e)
		}
	})
}
