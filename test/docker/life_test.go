//go:build docker

package docker_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/backends/docker"
	"berth/internal/link/session"
	"berth/internal/sys/run"
	"berth/jobs"
)

// TestKeepsFiles stops and opens an environment, in each way in which it can
// have ended.
func TestKeepsFiles(t *testing.T) {
	e := plan(t)
	began := time.Now()
	e.open()
	t.Logf("a fresh container: %v", time.Since(began).Round(time.Millisecond))
	e.want("echo one >/opt/kept; echo lost >/tmp/x; cat /opt/kept", "one")
	id := e.container()
	began = time.Now()
	e.stop()
	t.Logf("its end: %v", time.Since(began).Round(time.Millisecond))

	began = time.Now()
	e.open()
	t.Logf("a stopped container: %v", time.Since(began).Round(time.Millisecond))
	e.want("cat /opt/kept; ls /tmp", "one")
	if e.container() != id || e.opening.Rebuilt != "" || len(e.opening.Notes) > 0 {
		t.Errorf("%+v", e.opening)
	}

	// A killed keeper: the program that holds the streams dies with it.
	_ = e.proc.Signal(syscall.SIGKILL)
	_, _ = e.proc.Wait()
	e.session, e.opening, e.proc = nil, nil, nil
	e.open()
	e.want("cat /opt/kept", "one")

	// Killed from outside.
	ask(t, "kill", id)
	_, _ = e.proc.Wait()
	e.stop()
	e.open()
	e.want("cat /opt/kept", "one")

	// Paused, renamed, and without a keeper.
	pause(t, id)
	_ = e.proc.Signal(syscall.SIGKILL)
	_, _ = e.proc.Wait()
	ask(t, "rename", id, "berth-renamed-"+e.spec.ID[28:])
	e.session, e.opening, e.proc = nil, nil, nil
	e.open()
	e.want("cat /opt/kept", "one")
	if e.container() != id || len(e.opening.Notes) != 1 {
		t.Errorf("%+v", e.opening)
	}

	// Removed by someone.
	ask(t, "rm", "-f", id)
	_, _ = e.proc.Wait()
	e.stop()
	e.open()
	e.want("cat /opt/kept 2>&1 || true", "cat: /opt/kept: No such file or directory")
	if !strings.Contains(e.opening.Rebuilt, "files are gone") {
		t.Errorf("%+v", e.opening)
	}
	e.stop()
	e.open()
	if e.opening.Rebuilt != "" {
		t.Errorf("told again: %+v", e.opening)
	}
}

// TestThrowAway: nothing is left of a container whose files do not persist.
func TestThrowAway(t *testing.T) {
	e := plan(t, func(s *jobs.EnvSpec) { s.Persistent = false }).open()
	e.want("echo one >/opt/kept; cat /opt/kept", "one")
	id := e.container()
	e.stop()
	if got := ask(t, "ps", "-aq", "--no-trunc", "--filter", "id="+id); got != "" {
		t.Error("the container is left")
	}
	e.open()
	e.want("ls /opt", "")
	if e.opening.Rebuilt != "" {
		t.Error(e.opening.Rebuilt)
	}
}

// TestForeign: a container that has the name but not the labels is no one's
// business, and neither is one of another state directory.
func TestForeign(t *testing.T) {
	e := plan(t)
	name := "berth-test-" + jobs.Short(e.spec.ID)
	for _, label := range []string{"berth.test=yes", "berth.env=" + e.spec.ID} {
		id := ask(t, "create", "--name", name, "--label", label, "--label", "berth.version=1", "--label", "berth.home=/elsewhere", "--label", fmt.Sprintf("berth.user=%d", os.Getuid()), image, "true")
		if _, err := e.prepare(); jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(jobs.HintOf(err), "rename") {
			t.Errorf("%v, hint %q", err, jobs.HintOf(err))
		}
		b := &docker.Backend{}
		must(t, b.Remove(t.Context(), e.spec, run.Local{}))
		if err := b.Reap(t.Context(), run.Local{}, jobs.Found{ID: e.spec.ID, Home: home, Ref: id}); err == nil {
			t.Error("a foreign container was reaped")
		}
		if got := ask(t, "inspect", "-f", "{{.Id}}", name); got != id {
			t.Errorf("the foreign container is gone: %s", got)
		}
		ask(t, "rm", id)
	}
}

// TestListAndReap finds what has no record, and removes it.
func TestListAndReap(t *testing.T) {
	began := time.Now()
	e := plan(t).open()
	b := &docker.Backend{}
	found := func() *jobs.Found {
		list, err := b.List(t.Context(), run.Local{})
		must(t, err)
		for _, f := range list {
			if f.ID == e.spec.ID {
				return &f
			}
		}
		return nil
	}
	f := found()
	if f == nil || !f.Running || f.Home != home || f.Name != "test" || f.What != "container" || f.Ref != e.container() || f.Created.Before(began.Add(-2*time.Second)) || f.Created.After(time.Now().Add(2*time.Second)) {
		t.Fatalf("%+v", f)
	}
	e.stop()
	if f = found(); f == nil || f.Running {
		t.Fatalf("%+v", f)
	}
	must(t, b.Reap(t.Context(), run.Local{}, *f))
	must(t, b.Reap(t.Context(), run.Local{}, *f)) // twice is once
	if found() != nil {
		t.Error("it is still there")
	}
}

// TestTreeIsKilled: what other users run inside, detached and deaf to TERM, is
// ended with its command.
func TestTreeIsKilled(t *testing.T) {
	e := plan(t).open()
	const bomb = `for i in 1 2 3; do (setsid su -s /bin/sh www-data -c "trap '' TERM HUP; setsid sleep 1001 & setsid sh -c 'trap \"\" TERM; (sleep 1001 &) ; while :; do sleep 1001; done' & wait" &) ; done; setsid sleep 1001 & sleep 1001`
	p, err := e.session.Start(session.StartRequest{Command: jobs.Command{Shell: bomb}}, nil, nil)
	must(t, err)
	n := ""
	for deadline := time.Now().Add(2 * time.Minute); n != "12" && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		n, _ = e.sh(`ps -eo user,args | grep -c '[s]leep 1001$'`)
	}
	who, _ := e.sh("ps -eo user,args | grep '[s]leep 1001$' | sort | uniq -c")
	t.Log("running:\n" + who)
	if !strings.Contains(who, "www-data") {
		t.Fatal("no process of another user")
	}
	must(t, p.Terminate(time.Second))
	_, err = p.Wait()
	must(t, err)
	// What has died is a zombie until the guest has seen it.
	left := ""
	for deadline := time.Now().Add(2 * time.Minute); left != "0" && time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		left, _ = e.sh("ps -eo pid,ppid,stat,user,args | grep '[s]leep 1001'; ps -eo stat | grep -c '^Z'")
	}
	if left != "0" {
		t.Errorf("left: %s", left)
	}
}

// TestReaps: the guest is the first process, and orphans become its children.
func TestReaps(t *testing.T) {
	e := plan(t).open()
	_, _ = e.sh(`for i in $(seq 100); do (sleep 0.1 &); done; sleep 0.5`)
	e.want(`while ps -eo stat,args | grep -q -e '^Z' -e '[s]leep 0.1'; do sleep 0.2; done; echo reaped`, "reaped")
	// It is deaf to signals, its own processes' too, and ends with "docker
	// stop" at once.
	e.want("kill -TERM 1; kill -KILL 1; kill -STOP 1; sleep 0.2; echo here", "here")
	ask(t, "kill", "--signal", "TERM", e.container())
	e.want("sleep 0.2; echo here", "here")
	began := time.Now()
	ask(t, "stop", "-t", "30", e.container())
	t.Logf("docker stop -t 30: %v", time.Since(began).Round(time.Millisecond))
}

// TestThroughput sends 100 MiB each way, of bytes that an attached terminal
// would take for orders.
func TestThroughput(t *testing.T) {
	e := plan(t).open()
	const size = 100 << 20
	began := time.Now()
	h := sha256.New()
	p, err := e.session.Start(session.StartRequest{Command: jobs.Command{Shell: "head -c 104857600 /dev/urandom | tee >(sha256sum | cut -d' ' -f1 >/tmp/sum); until [ -s /tmp/sum ]; do sleep 0.1; done"}}, h, nil)
	must(t, err)
	_, err = p.Wait()
	must(t, err)
	t.Logf("out: %.0f MB/s, random bytes and their sum inside included", size/1e6/time.Since(began).Seconds())
	e.want("cat /tmp/sum", hex.EncodeToString(h.Sum(nil)))
	began = time.Now()
	p, err = e.session.Start(session.StartRequest{Command: jobs.Command{Shell: "head -c 104857600 /dev/zero"}}, io.Discard, nil)
	must(t, err)
	_, err = p.Wait()
	must(t, err)
	t.Logf("out: %.0f MB/s", size/1e6/time.Since(began).Seconds())

	h = sha256.New()
	in := io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{16, 17}), size), h)
	began = time.Now()
	out := &safe{}
	p, err = e.session.Start(session.StartRequest{Command: jobs.Command{Shell: "sha256sum | cut -d' ' -f1"}, Stdin: in}, out, nil)
	must(t, err)
	_, err = p.Wait()
	must(t, err)
	t.Logf("in: %.0f MB/s", size/1e6/time.Since(began).Seconds())
	if strings.TrimSpace(out.String()) != hex.EncodeToString(h.Sum(nil)) {
		t.Error("other bytes arrived")
	}
}

// TestMounts: binds, read-only and not, with paths that need quoting, and
// volumes; the socket of the daemon by a link is refused.
func TestMounts(t *testing.T) {
	dir := t.TempDir()
	odd := filepath.Join(dir, `a,b:c "d'`)
	must(t, os.MkdirAll(odd, 0o755))
	must(t, os.WriteFile(filepath.Join(odd, "f"), []byte("there\n"), 0o644))
	must(t, os.Chmod(odd, 0o777))
	e := plan(t, func(s *jobs.EnvSpec) {
		s.Mounts = []jobs.Mount{{Source: odd, Destination: "/odd, place"}, {Source: odd, Destination: "/run"}}
		s.Docker = &jobs.DockerSpec{Volumes: []string{dir + ":/vol:ro", "/anonymous"}, ExtraArgs: []string{"--hostname", "inside", "--ulimit=nofile=100"}}
	}).open()
	e.want(`cat "/odd, place/f" /run/f; touch "/odd, place/g" 2>/dev/null; echo $?; ls /vol; touch /vol/x 2>/dev/null; echo $?; touch /anonymous/x; hostname; ulimit -n`,
		"there\nthere\n1\na,b:c \"d'\n1\ninside\n100")
	e = plan(t, func(s *jobs.EnvSpec) {
		s.Mounts = []jobs.Mount{{Source: odd, Destination: "/odd, place"}, {Source: odd, Destination: "/workspace", Writable: true}}
		s.Docker = &jobs.DockerSpec{User: "1234:1234"} // root has no writable bind
	}).open()
	e.want(`touch "/odd, place/g" 2>/dev/null; echo $?; touch /workspace/g; stat -c %u "/odd, place/g"`, "1\n1234")
	link := filepath.Join(dir, "link")
	must(t, os.Symlink("/var/run", link))
	for _, s := range []jobs.EnvSpec{
		{Place: jobs.Place{Mounts: []jobs.Mount{{Source: link, Destination: "/x"}}}}, {Place: jobs.Place{Docker: &jobs.DockerSpec{Volumes: []string{link + ":/x"}}}}, {Place: jobs.Place{Mounts: []jobs.Mount{{Source: "/", Destination: "/host"}}}},
	} {
		e := plan(t, func(to *jobs.EnvSpec) { to.Mounts, to.Docker = s.Mounts, s.Docker })
		if _, err := e.prepare(); jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "socket") {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

// TestHidden: the state directory is not visible below a bind or a volume, also
// after the container was stopped, and cannot be bound itself.
func TestHidden(t *testing.T) {
	dir := filepath.Dir(home)
	must(t, os.Chmod(dir, 0o755)) //nolint:gosec // root inside has no power over others' directories
	seen := filepath.Join(dir, "seen")
	must(t, os.WriteFile(seen, []byte("hello\n"), 0o644))
	e := plan(t, func(s *jobs.EnvSpec) {
		s.Mounts = []jobs.Mount{{Source: dir, Destination: "/x"}}
		s.Docker = &jobs.DockerSpec{Volumes: []string{dir + ":/v:ro"}}
	}).open()
	for range 2 {
		e.want("cat /x/seen /v/seen; ls -A /x/state /v/state; umount /x/state 2>/dev/null || echo held", "hello\nhello\n/v/state:\n\n/x/state:\nheld")
		e.stop()
		e.open()
	}
	for _, source := range []string{home, filepath.Join(home, "envs")} {
		e := plan(t, func(s *jobs.EnvSpec) { s.Mounts = []jobs.Mount{{Source: source, Destination: "/y"}} })
		if _, err := e.prepare(); jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), "berth's own directory") {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// TestHangingDaemon: a daemon that does not answer holds no one up.
func TestHangingDaemon(t *testing.T) {
	bin := t.TempDir()
	must(t, os.WriteFile(filepath.Join(bin, "docker"), []byte("#!/bin/sh\nexec sleep 1000\n"), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if got := (&docker.Backend{On: run.Local{}}).Check(ctx); got.Health != jobs.Unhealthy || !strings.Contains(got.Reason, "did not answer within 10s") {
		t.Errorf("%+v", got)
	}
}
