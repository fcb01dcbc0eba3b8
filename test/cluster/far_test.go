//go:build cluster

package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// link is the only way from a client on this machine to sshd on the login node:
// a port here that can be cut and repaired.
type link struct {
	t    *testing.T
	to   string
	port string

	mu    sync.Mutex
	down  bool
	conns map[net.Conn]bool
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	k := &link{t: t, to: to, port: port, conns: map[net.Conn]bool{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go k.carry(c)
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		k.cut()
	})
	return k
}

func (k *link) carry(c net.Conn) {
	d, err := net.Dial("tcp", k.to)
	if err != nil {
		_ = c.Close()
		return
	}
	k.mu.Lock()
	for _, x := range []net.Conn{c, d} {
		k.conns[x] = true
	}
	if k.down {
		_, _ = c.Close(), d.Close()
	}
	k.mu.Unlock()
	go func() {
		_, _ = io.Copy(d, c)
		_ = d.Close()
	}()
	_, _ = io.Copy(c, d)
	_ = c.Close()
	k.mu.Lock()
	delete(k.conns, c)
	delete(k.conns, d)
	k.mu.Unlock()
}

func (k *link) cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.down = true
	for c := range k.conns {
		_ = c.Close()
	}
}

func (k *link) mend() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.down = false
}

// saying is what a program that runs has said so far.
type saying struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *saying) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *saying) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// client is a user on this machine, which has no Slurm.
type client struct {
	t     *testing.T
	dir   string
	berth string
	login []string // flags
}

func newClient(t *testing.T, s site, k *link) *client {
	t.Helper()
	if path, err := exec.LookPath("sbatch"); err == nil {
		t.Fatalf("this machine has a Slurm of its own: %s", path)
	}
	c := &client{t: t, berth: filepath.Join(root(t), "dist", "berth")}
	if _, err := os.Stat(c.berth); err != nil {
		t.Fatalf("%v: run scripts/build", err)
	}
	dir, err := os.MkdirTemp("", "bfar") //nolint:usetesting // short: the paths of sockets are bounded
	if err != nil {
		t.Fatal(err)
	}
	c.dir = dir
	t.Cleanup(func() {
		sockets, _ := filepath.Glob(dir + "/run/berth/*.ssh")
		for _, path := range sockets {
			_ = exec.Command("ssh", "-o", "ControlPath="+path, "-O", "exit", "x").Run()
		}
		_ = os.RemoveAll(dir)
	})
	for name, text := range map[string]string{
		"key":   s.on(t, "login", "alice", "cat", "/home/alice/.ssh/id_ed25519").out,
		"known": s.on(t, "login", "alice", "cat", "/etc/ssh/ssh_known_hosts").out,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir+"/run", 0o700); err != nil {
		t.Fatal(err)
	}
	c.login = []string{"--login", "alice@127.0.0.1:" + k.port, "--ssh-key", dir + "/key"}
	for _, o := range []string{"UserKnownHostsFile=" + dir + "/known", "HostKeyAlias=login", "IdentitiesOnly=yes", "IdentityAgent=none"} {
		c.login = append(c.login, "--ssh-option", o)
	}
	return c
}

// command is a berth of this client; a verb that submits gets the login.
func (c *client) command(args ...string) *exec.Cmd {
	c.t.Helper()
	switch args[0] {
	case "submit", "run", "render":
		args = append(append([]string{args[0]}, c.login...), args[1:]...)
	}
	// Not ended with the test: clean-up runs commands too.
	ctx, stop := context.WithTimeout(context.WithoutCancel(c.t.Context()), longest)
	c.t.Cleanup(stop)
	cmd := exec.CommandContext(ctx, c.berth, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir, "BERTH_HOME=" + c.dir + "/state", "XDG_RUNTIME_DIR=" + c.dir + "/run", "TOKEN=s3cr3t-canary"}
	return cmd
}

func (c *client) run(args ...string) answer {
	c.t.Helper()
	var out, errs bytes.Buffer
	cmd := c.command(args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) {
		c.t.Fatalf("%v: %v", args, err)
	}
	return answer{out: out.String(), err: errs.String(), code: cmd.ProcessState.ExitCode()}
}

func (c *client) ok(args ...string) string {
	c.t.Helper()
	a := c.run(args...)
	if a.code != 0 {
		c.t.Fatalf("berth %v: exit code %d\nstdout: %s\nstderr: %s", args, a.code, a.out, a.err)
	}
	return strings.TrimSpace(a.out)
}

func (c *client) status(id string) status {
	c.t.Helper()
	var got struct{ Jobs []status }
	if err := json.Unmarshal([]byte(c.ok("status", "--json", id)), &got); err != nil || len(got.Jobs) != 1 {
		c.t.Fatalf("status of %s: %v", id, err)
	}
	return got.Jobs[0]
}

// killSSH kills each ssh of this client, as a laptop that loses its network for
// good does.
func (c *client) killSSH() {
	c.t.Helper()
	out, _ := exec.CommandContext(c.t.Context(), "pgrep", "-f", "^ssh.*"+c.dir+"/run").Output()
	for _, pid := range strings.Fields(string(out)) {
		_ = exec.CommandContext(c.t.Context(), "kill", "-KILL", pid).Run()
	}
}

func (c *client) git(dir string, args ...string) string {
	c.t.Helper()
	cmd := exec.CommandContext(c.t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b.invalid"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (c *client) repo() string {
	c.t.Helper()
	dir := filepath.Join(c.dir, "repo")
	if err := os.Mkdir(dir, 0o700); err != nil {
		c.t.Fatal(err)
	}
	c.git(dir, "init", "-q", "-b", "main")
	if err := os.WriteFile(dir+"/a", []byte("one\n"), 0o600); err != nil {
		c.t.Fatal(err)
	}
	c.git(dir, "add", "a")
	c.git(dir, "commit", "-q", "-m", "one")
	return dir
}

// TestFar is a cluster from a machine without Slurm, through its login node.
func TestFar(t *testing.T) {
	s := standard
	s.need(t)
	ip := s.on(t, "login", "root", "hostname", "-i")
	k := newLink(t, net.JoinHostPort(strings.Fields(ip.out)[0], "22"))
	c := newClient(t, s, k)
	var ids []string
	t.Cleanup(func() {
		k.mend()
		c.run(append([]string{"cancel"}, ids...)...)
		c.run(append([]string{"wait", "--timeout", "2m"}, ids...)...)
		if a := c.run(append([]string{"rm", "--force"}, ids...)...); a.code != 0 {
			t.Errorf("rm: %+v", a)
		}
		for _, id := range ids {
			if a := s.sh(t, "berth status "+id); a.code != 3 {
				t.Errorf("left on the login node: %+v", a)
			}
		}
		s.on(t, "login", "alice", "bash", "-c", "rm -rf ~/.local/state/berth/repos")
	})

	t.Run("branch", func(t *testing.T) {
		c.t = t
		repo := c.repo()
		id := c.ok("submit", "--image", s.image, "--workspace", repo, "--env", "TOKEN", "--", `echo two >>a; echo "$TOKEN" | wc -c; echo err >&2`)
		ids = append(ids, id)
		if a := c.run("wait", id); a.code != 0 || !strings.Contains(a.err, "branch berth/echo/"+id+": 1 file") {
			t.Fatalf("%+v", a)
		}
		if got := c.git(repo, "show", "berth/echo/"+id+":a"); got != "one\ntwo" {
			t.Errorf("%q", got)
		}
		if a := c.run("logs", id); a.out != "14\n" || a.err != "err\n" {
			t.Errorf("%+v", a)
		}
		// The record there is whole, and shown there, too.
		there := s.status(t, id)
		if here := c.status(id); here.ID != there.ID || here.State != "completed" || there.State != "completed" || here.NativeID != there.NativeID || !here.Taken {
			t.Errorf("here %+v\nthere %+v", here, there)
		}
		if a := s.sh(t, "grep -rl s3cr3t-canary ~/.local/state/berth/jobs "+there.Dir); a.out != "" {
			t.Errorf("the secret is in %s", a.out)
		}
		// Another commit, another job: the copy there has the first one.
		c.git(repo, "commit", "-q", "--allow-empty", "-m", "two")
		id = c.ok("submit", "--image", s.image, "--workspace", repo, "--", `git log --oneline | wc -l`)
		ids = append(ids, id)
		if a := c.run("wait", id); a.code != 7 {
			t.Errorf("%+v", a)
		}
		if got := c.ok("logs", id); got != "2" {
			t.Errorf("%q", got)
		}
	})

	t.Run("cancel", func(t *testing.T) {
		c.t = t
		id := c.ok("submit", "--image", s.image, "--", "sleep 314")
		ids = append(ids, id)
		for end := time.Now().Add(patience); c.status(id).State != "running"; time.Sleep(200 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%+v", c.status(id))
			}
		}
		if got := c.ok("ps"); !strings.HasPrefix(got, id+"\trunning") {
			t.Errorf("%q", got)
		}
		c.ok("cancel", id)
		if a := c.run("wait", id); a.code != 130 {
			t.Errorf("%+v", a)
		}
		c.ok("rm", id)
		if a := s.sh(t, "berth status "+id); a.code != 3 {
			t.Errorf("its record is left on the login node: %+v", a)
		}
		ids = ids[:len(ids)-1]
	})

	t.Run("link", func(t *testing.T) {
		c.t = t
		d := s.dir(t)
		id := c.ok("submit", "--image", s.image, "--bind", d+":/d", "--", "echo begin; until [ -e /d/go ]; do sleep 0.2; done; echo end")
		ids = append(ids, id)
		logs, wait := c.command("logs", "-f", id), c.command("wait", id)
		var out bytes.Buffer
		var said, waited saying
		pipe, w := io.Pipe()
		logs.Stdout, logs.Stderr, wait.Stderr = w, &said, &waited
		for _, p := range []*exec.Cmd{logs, wait} {
			if err := p.Start(); err != nil {
				t.Fatal(err)
			}
		}
		go func() {
			_ = logs.Wait()
			_ = w.Close()
		}()
		var first [1]byte
		if _, err := io.ReadFull(pipe, first[:]); err != nil {
			t.Fatal(err)
		}
		out.Write(first[:])
		k.cut()
		if a := c.run("status", id); a.code != 0 || !strings.Contains(a.out, "state\trunning") || !strings.Contains(a.out, "as of\t") || !strings.Contains(a.err, "last known state") || !strings.Contains(a.err, "hint: ") {
			t.Errorf("without a link: %+v", a)
		}
		for _, text := range []*saying{&said, &waited} { // both have noticed
			waitFor(t, patience, func() bool { return strings.Contains(text.String(), "trying again, the job goes on") })
		}
		k.mend()
		s.ok(t, "touch "+d+"/go")
		_, _ = io.Copy(&out, pipe)
		err := wait.Wait()
		if out.String() != "begin\nend\n" || err != nil {
			t.Errorf("logs %q, %v", out.String(), err)
		}
	})

	t.Run("another attempt", func(t *testing.T) {
		c.t = t
		id := c.ok("submit", "--retry", "on", "--memory", "200MiB", "--time", "5m", "--image", s.image, "--env", "TOKEN", "--",
			`python3 -c 'b = bytearray(250 << 20); import time; time.sleep(3); print(len(b))'; r=$?; echo "$TOKEN" | wc -c; exit $r`)
		ids = append(ids, id)
		k.cut() // no one here, and no one there
		job := fmt.Sprintf("~/.local/state/berth/jobs/*/*%s/attempts", id)
		waitFor(t, patience, func() bool { return s.ok(t, "grep -l '\"accept\"' "+job+"/*/decision.json 2>/dev/null || true") != "" })
		k.mend()
		if a := c.run("wait", id); a.code != 0 {
			t.Fatalf("%+v\n%s", a, c.run("explain", id).out)
		}
		var x struct{ Explain tried }
		if err := json.Unmarshal([]byte(c.ok("explain", "--json", id)), &x); err != nil || len(x.Explain.Attempts) != 2 {
			t.Fatalf("%v, %+v", err, x)
		}
		if d := x.Explain.Attempts[0].Decision; d == nil || d.Class != "memory" || d.Verb != "retry" || !strings.Contains(d.By, "the runner") {
			t.Errorf("%+v", d)
		}
		if a := c.run("logs", id); a.out != "262144000\n14\n" {
			t.Errorf("%+v", a)
		}
		if left := s.ok(t, "ls "+job+"/0001/env 2>/dev/null || true"); left != "" {
			t.Errorf("the secret is left in %s", left)
		}
	})

	t.Run("cancelled between attempts", func(t *testing.T) {
		c.t = t
		// The next attempt has to wait, as the site is to blame.
		id := c.ok("submit", "--retry", "on", "--time", "5m", "--image", s.image, "--", "echo begun; sleep 315")
		ids = append(ids, id)
		waitFor(t, patience, func() bool { return c.status(id).State == "running" && c.run("logs", id).out == "begun\n" })
		s.ok(t, "scontrol requeue "+c.status(id).NativeID)
		waitFor(t, patience, func() bool { return strings.Contains(c.ok("explain", id), "attempt 1") })
		c.ok("cancel", id)
		if a := c.run("wait", id); a.code != 130 {
			t.Errorf("%+v", a)
		}
		if a := s.sh(t, "berth status --json "+id); !strings.Contains(a.out, `"cancelled"`) {
			t.Errorf("there: %+v", a)
		}
		waitFor(t, patience, func() bool {
			return s.ok(t, "squeue --noheader --user alice --format %j | grep -e -"+id+" || true") == ""
		})
	})

	t.Run("mid-submit", func(t *testing.T) {
		c.t = t
		for i, pause := range []time.Duration{0, 60 * time.Millisecond, 150 * time.Millisecond} {
			before := c.run("ps", "--all").out
			had := s.ok(t, "ls -d ~/.local/state/berth/jobs/*/* | wc -l")
			name := fmt.Sprintf("cut%d-%d", i, time.Now().UnixMilli()) // the accounting remembers earlier runs
			cmd := c.command("submit", "--retry", "on", "--name", name, "--image", s.image, "--", "echo once")
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			// The record is there, and sbatch is next, or runs, or has ended.
			waitFor(t, patience, func() bool { return s.ok(t, "ls -d ~/.local/state/berth/jobs/*/* | wc -l") != had })
			time.Sleep(pause)
			c.killSSH()
			_ = cmd.Wait()
			// Whatever it said, the ledger here has the job, and finds it.
			var id string
			for line := range strings.Lines(c.ok("ps", "--all")) {
				if !strings.Contains(before, line[:8]) && strings.Contains(line, name) {
					id, _, _ = strings.Cut(line, "\t")
				}
			}
			if id == "" {
				if n := s.ok(t, "sacct --noheader -X --user alice --format JobName%60 | grep -c berth-"+name+" || true"); n != "0" {
					t.Errorf("%s jobs that nobody here knows; berth said %s", n, errs.String())
				}
				continue
			}
			ids = append(ids, id)
			if a := c.run("wait", "--timeout", "5m", id); a.code != 0 {
				t.Errorf("round %d: %+v; submit said %q %q", i, a, out.String(), errs.String())
			}
			var n string // the accounting hears of it later than we
			waitFor(t, patience, func() bool {
				n = s.ok(t, "sacct --noheader -X --user alice --format JobName%60 | grep -c berth-"+name+" || true")
				return n != "0"
			})
			if n != "1" {
				t.Errorf("round %d: %s jobs in Slurm", i, n)
			}
		}
	})

	t.Run("two clients", func(t *testing.T) {
		c.t = t
		other := newClient(t, s, k)
		var wg sync.WaitGroup
		for i, one := range []*client{c, other} {
			wg.Go(func() {
				a := one.run("run", "--image", s.image, "--", "echo mine")
				if a.code != 0 || a.out != "mine\n" {
					t.Errorf("client %d: %+v", i, a)
				}
			})
		}
		wg.Wait()
		for _, one := range []*client{c, other} {
			list := strings.Split(one.ok("ps", "--all"), "\n")
			last, _, _ := strings.Cut(list[len(list)-1], "\t")
			one.ok("rm", last)
		}
	})
	c.t = t
}
