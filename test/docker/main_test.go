//go:build docker

package docker_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/backends/docker"
	"berth/internal/link/session"
	"berth/internal/sys/ids"
	"berth/internal/sys/run"
	"berth/jobs"
)

var (
	node  string // berth-node
	image string // a local image with bash
	home  string // the state directory of all tests
)

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "berth-docker-test-")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	home = filepath.Join(dir, "state")
	if node = os.Getenv("BERTH_TEST_NODE"); node == "" { // one that was built already
		node = filepath.Join(dir, "berth-node")
		cmd := exec.Command("go", "build", "-tags", "berthnode", "-o", node, "berth/cmd/berth-node")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "build berth-node: %v\n%s", err, out)
			return 1
		}
	}
	out, err := exec.Command("docker", "images", "--format", "{{.Repository}}:{{.Tag}}", "berth-testbed-base").Output()
	if err != nil || len(bytes.Fields(out)) == 0 {
		fmt.Fprintln(os.Stderr, "there is no image berth-testbed-base here, or no daemon; scripts/testbed up makes it:", err)
		return 1
	}
	image = strings.Fields(string(out))[0]
	code := m.Run()
	left, err := exec.Command("docker", "ps", "-aq", "--filter", "label=berth.home="+home).Output()
	if err != nil || len(left) > 0 {
		fmt.Fprintf(os.Stderr, "containers are left behind: %s %v\n", left, err)
		_ = exec.Command("docker", append([]string{"rm", "-f", "-v"}, strings.Fields(string(left))...)...).Run()
		code = 1
	}
	return code
}

// env is an environment and its keeper's side.
type env struct {
	t       *testing.T
	spec    *jobs.EnvSpec
	dir     string
	mu      sync.Mutex
	said    []string // progress
	opening *jobs.Opening
	proc    jobs.Process
	session *session.Session
	stderr  *safe
}

// safe is a buffer that may be read while it is written.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// plan makes an environment, which is removed with the test.
func plan(t *testing.T, change ...func(*jobs.EnvSpec)) *env {
	t.Helper()
	id, err := ids.New()
	must(t, err)
	e := &env{t: t, spec: &jobs.EnvSpec{
		Version: jobs.EnvVersion, ID: id, Name: "test", Persistent: true, User: "root", Home: home,
		Place: jobs.Place{
			Backend: jobs.BackendDocker, Image: image, Resources: jobs.Resources{CPUs: 1, Memory: 256 * jobs.MiB}, Network: jobs.Network{Mode: "none"},
		},
	}}
	for _, c := range change {
		c(e.spec)
	}
	e.dir = filepath.Join(home, "envs", id)
	must(t, os.MkdirAll(e.dir, 0o700))
	t.Cleanup(func() {
		e.stop()
		if err := (&docker.Backend{}).Remove(context.Background(), e.spec, run.Local{}); err != nil {
			t.Error(err)
		}
	})
	return e
}

// prepare is Open of the backend alone.
func (e *env) prepare() (*jobs.Opening, error) {
	return (&docker.Backend{}).Open(e.t.Context(), e.spec, jobs.OpenPlace{Dir: e.dir, Guest: node, Scratch: e.t.TempDir(), On: run.Local{}, Progress: func(s string) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.said = append(e.said, s)
	}})
}

// open opens the environment and speaks with its guest.
func (e *env) open() *env {
	e.t.Helper()
	o, err := e.prepare()
	must(e.t, err)
	e.start(o)
	return e
}

func (e *env) start(o *jobs.Opening) {
	e.t.Helper()
	inR, inW, err := os.Pipe()
	must(e.t, err)
	outR, outW, err := os.Pipe()
	must(e.t, err)
	e.opening, e.stderr = o, &safe{}
	e.proc, err = run.Local{}.Start(context.Background(), jobs.Cmd{Argv: o.Argv, Dir: "/", Env: o.Env, Stdin: inR, Stdout: outW, Stderr: e.stderr})
	must(e.t, err)
	_, _ = inR.Close(), outW.Close()
	e.session, err = session.Open(e.t.Context(), outR, inW, session.Options{StartTimeout: time.Minute, OwnPIDNamespace: o.OwnPIDNamespace, Home: o.Home})
	if err != nil {
		e.t.Fatalf("%v\n%s", err, e.stderr)
	}
	go func(s *session.Session) {
		for s.Ping() == nil {
			time.Sleep(time.Second)
		}
	}(e.session)
}

// stop ends it as a keeper does.
func (e *env) stop() {
	if e.session != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = e.session.Quit(ctx)
		_ = e.session.Close()
		e.session = nil
	}
	if e.opening != nil {
		if err := e.opening.End(context.Background()); err != nil {
			e.t.Error(err)
		}
		e.opening = nil
	}
	if e.proc != nil {
		_, _ = e.proc.Wait()
		e.proc = nil
	}
}

// sh runs a command and returns what it wrote to both, and its exit code.
func (e *env) sh(text string) (string, int) {
	e.t.Helper()
	return e.run(jobs.Command{Shell: text})
}

func (e *env) argv(words ...string) (string, int) {
	e.t.Helper()
	return e.run(jobs.Command{Argv: words})
}

func (e *env) run(c jobs.Command) (string, int) {
	e.t.Helper()
	out := &safe{}
	p, err := e.session.Start(session.StartRequest{Command: c}, out, out)
	must(e.t, err)
	watchdog := time.AfterFunc(5*time.Minute, func() { _ = p.Terminate(0) })
	defer watchdog.Stop()
	res, err := p.Wait()
	must(e.t, err)
	return strings.TrimSpace(out.String()), res.Exit.Code
}

// want runs a command that must exit 0 and write just this.
func (e *env) want(text, want string) {
	e.t.Helper()
	if got, code := e.sh(text); got != want || code != 0 {
		e.t.Errorf("%s: %q, exit %d; want %q", text, got, code, want)
	}
}

// ask asks docker, as the test's own.
func ask(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("docker %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// pause stops a container. Where runc freezes a cgroup of version 1 that makes
// processes meanwhile, or waits for a disk, it gives up at times, and thaws what
// it has frozen: then it is asked again.
func pause(t *testing.T, id string) {
	t.Helper()
	for range 20 {
		out, err := exec.Command("docker", "pause", id).CombinedOutput()
		if err == nil {
			return
		}
		if !strings.Contains(string(out), "unable to freeze") {
			t.Fatalf("docker pause %s: %v: %s", id, err, out)
		}
		time.Sleep(500 * time.Millisecond)
	}
	t.Fatalf("docker pause %s: unable to freeze, 20 times", id)
}

func (e *env) container() string { return e.opening.Argv[len(e.opening.Argv)-1] }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%v (hint: %s)", err, jobs.HintOf(err))
	}
}
