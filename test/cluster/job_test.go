//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// modern are the sites with a container program.
var modern = []site{standard, newer, strict}

// every has the site without Apptainer, too.
var every = []site{standard, newer, strict, old}

func each(t *testing.T, sites []site, do func(t *testing.T, s site)) {
	t.Parallel()
	for _, s := range sites {
		if !s.asked() {
			continue
		}
		t.Run(s.version+"-"+s.profile, func(t *testing.T) {
			s.need(t)
			do(t, s)
			s.quiet(t)
		})
	}
}

// submit submits a command line in the site's place and returns the job's id.
func (s site) submit(t *testing.T, flags, command string) string {
	t.Helper()
	if !strings.Contains(flags, "--retry") {
		flags += " --retry off"
	}
	id := s.ok(t, fmt.Sprintf("berth submit %s %s %s -- %s", s.flags(), s.place(), flags, quote(command)))
	if !regexp.MustCompile(`^[0-9a-f]{8}$`).MatchString(id) {
		t.Fatalf("submit printed %q, want an id and nothing else", id)
	}
	return id
}

// place is where a job of the site runs: in its image, or where there is no
// Apptainer on the node itself.
func (s site) place() string {
	if s.image == "" {
		return "--backend local"
	}
	return "--image " + s.image
}

// flags are what the strict site needs: it refuses --mem.
func (s site) flags() string {
	if s.profile == "strict" {
		return "--profile /mnt/share/strict.toml"
	}
	return ""
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func TestCommand(t *testing.T) {
	each(t, modern, func(t *testing.T, s site) {
		id := s.submit(t, "", `echo out; echo err >&2; pwd; echo "$HOME"`)
		st := s.wait(t, id, 0)
		if st.State != "completed" || !st.Exit.Started || st.Exit.Code != 0 || st.Node == "" || st.NativeID == "" {
			t.Errorf("status %+v", st)
		}
		a := s.sh(t, "berth logs "+id)
		if a.out != "out\n/home/alice\n/home/alice\n" || a.err != "err\n" {
			t.Errorf("logs: stdout %q stderr %q", a.out, a.err)
		}
	})
}

func TestExits(t *testing.T) {
	s := standard
	s.need(t)
	for _, c := range []struct {
		name, command string
		flags         string
		code          int
		state         string
		exit, signal  int
		started       bool
		reason        string
	}{
		{name: "code", command: "exit 3", code: 1, state: "failed", exit: 3, started: true, reason: "exit code 3"},
		{name: "255", command: "exit 255", code: 1, state: "failed", exit: 255, started: true, reason: "exit code 255"},
		{name: "signal", command: "kill -SEGV $$", code: 1, state: "failed", exit: 139, signal: 11, started: true, reason: "signal 11"},
		{name: "missing", command: "no-such-command", code: 1, state: "failed", exit: 127, started: true},
		{name: "time", flags: "--time 10s", command: "sleep 313", code: 124, state: "timeout", exit: 143, signal: 15, started: true, reason: "time limit"},
		{name: "stubborn", flags: "--time 20s", command: `trap "" TERM; (setsid sh -c 'trap "" TERM; sleep 311' &); sleep 312; sleep 312`, code: 124, state: "timeout", exit: 137, signal: 9, started: true, reason: "time limit"},
		{name: "memory", flags: "--memory 100MiB", command: `python3 -c 'x = bytearray(400 << 20)'`, code: 1, state: "out_of_memory", exit: 137, signal: 9, started: true, reason: "memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			id := s.submit(t, c.flags, c.command)
			st := s.wait(t, id, c.code)
			if st.State != c.state || st.Exit.Code != c.exit || st.Exit.Signal != c.signal || st.Exit.Started != c.started || !strings.Contains(st.Reason, c.reason) {
				t.Errorf("got %s %+v %q; want %s code %d signal %d reason %q", st.State, st.Exit, st.Reason, c.state, c.exit, c.signal, c.reason)
			}
		})
	}
	t.Cleanup(func() { s.quiet(t) })
}

// A child that the kernel kills for memory while the command succeeds: Slurm
// calls the job OUT_OF_MEMORY, our record says completed, and notes it.
func TestChildOutOfMemory(t *testing.T) {
	s := standard
	s.need(t)
	id := s.submit(t, "--memory 100MiB", `python3 -c 'x = bytearray(400 << 20)'; echo "child: $?"; exit 0`)
	st := s.wait(t, id, 0)
	if st.State != "completed" || st.OOMKills < 1 || !strings.Contains(strings.Join(st.Notes, " "), "memory") {
		t.Errorf("status %+v", st)
	}
	// A command that failed after that failed for it, whatever it exited with.
	id = s.submit(t, "--memory 100MiB --retry off", `python3 -c 'x = bytearray(400 << 20)'; echo "child: $?"; exit 3`)
	if st := s.wait(t, id, 1); st.State != "out_of_memory" || st.OOMKills < 1 || st.Exit.Code != 3 || !strings.Contains(st.Hint, "memory") {
		t.Errorf("status %+v", st)
	}
	word := s.ok(t, "sleep 1; sacct -X -n -P -o State -j "+st.NativeID)
	if word != "OUT_OF_MEMORY" {
		t.Logf("Slurm calls it %s here", word)
	}
	s.quiet(t)
}

func TestCancel(t *testing.T) {
	each(t, modern, func(t *testing.T, s site) {
		id := s.submit(t, "", `trap 'echo got TERM; exit 0' TERM; echo ready; while :; do sleep 0.2; done`)
		s.state(t, id, "running")
		waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "berth logs "+id).out, "ready") })
		s.ok(t, "berth cancel "+id)
		st := s.wait(t, id, 130)
		if st.State != "cancelled" || st.Reason != "cancelled" {
			t.Errorf("status %+v", st)
		}
		if out := s.ok(t, "berth logs "+id); !strings.Contains(out, "got TERM") {
			t.Errorf("the command did not get TERM before its end:\n%s", out)
		}
		s.ok(t, "berth cancel "+id) // twice is no error
		waitFor(t, patience, func() bool {
			return s.ok(t, "squeue -h -j "+st.NativeID+" -t running,completing 2>/dev/null || true") == ""
		})
	})
}

func TestCancelPending(t *testing.T) {
	s := standard
	s.need(t)
	id := s.submit(t, "--slurm --begin=now+1hour", "true")
	st := s.status(t, id)
	if st.State != "pending" {
		t.Errorf("state %s, want pending", st.State)
	}
	s.ok(t, "berth cancel "+id)
	st = s.wait(t, id, 130)
	if st.State != "cancelled" || !strings.Contains(st.Reason, "before it started") {
		t.Errorf("status %+v", st)
	}
	s.ok(t, "berth rm "+id)
	s.want(t, "berth status "+id, 3, `no job "`+id)
}

// What a task must not see, and must be able to do.
func TestContainment(t *testing.T) {
	each(t, modern, func(t *testing.T, s site) {
		d := s.dir(t)
		s.ok(t, "echo canary-in-home > ~/canary; echo x > "+d+"/mine")
		id := s.ok(t, fmt.Sprintf("export API_KEY=canary-key APPTAINER_BIND=/etc/slurm:/leak SINGULARITY_BIND=/etc/slurm:/leak2 APPTAINERENV_LEAK=canary-env http_proxy=http://user:canary-pass@proxy; berth submit %s --image %s --name containment -- %s", s.flags(), s.image, quote(`
			echo "canary: $(cat ~/canary 2>&1)"
			env
			ls -d /leak /leak2 /home/*/canary /etc/slurm /run/munge 2>/dev/null
			cat /proc/self/status | grep NoNewPrivs
			git config --global user.name agent && git config --global user.name
			rm -r /usr/share/doc/gzip && mkdir /usr/share/doc/gzip && ls -A /usr/share/doc/gzip | wc -l
			mv /etc/apt /etc/apt2 && ls -d /etc/apt2
			dd if=/dev/zero of=/tmp/big bs=1M count=100 2>/dev/null && ls -s /tmp/big
		`)))
		s.wait(t, id, 0)
		out := s.ok(t, "berth logs "+id)
		for _, leak := range []string{"canary-in-home", "canary-key", "canary-env", "canary-pass", "/leak", "/etc/slurm", "/run/munge", "SLURM_CONF", "SSH_"} {
			if strings.Contains(out, leak) {
				t.Errorf("%q is seen inside:\n%s", leak, out)
			}
		}
		for _, good := range []string{"NoNewPrivs:\t1", "\nagent\n", "\n0\n", "/etc/apt2", "/tmp/big"} {
			if !strings.Contains(out, good) {
				t.Errorf("%q does not work inside:\n%s", good, out)
			}
		}
	})
}

// A named overlay keeps what a task installs; two tasks do not write it at once.
func TestOverlay(t *testing.T) {
	each(t, modern, func(t *testing.T, s site) {
		kinds := []string{"fuse", "ext3"}
		if s.profile == "strict" {
			kinds = []string{"ext3"}
			st := s.wait(t, s.ok(t, "berth submit --image "+s.image+" --overlay directory -- true"), 78)
			if !strings.Contains(st.Reason, "network file system") || !strings.Contains(st.Hint, "ext3") {
				t.Errorf("a directory over sshfs: %+v", st)
			}
		}
		for _, kind := range kinds {
			name := fmt.Sprintf("test-%s-%d", kind, time.Now().UnixNano())
			first := "--overlay " + name
			if kind == "ext3" {
				first += " --disk 300MiB"
			}
			// A package that replaces a directory of the image.
			id := s.submit(t, first, `
				set -e
				mkdir -p /tmp/p/DEBIAN /tmp/p/usr/share/doc/gzip /tmp/p/usr/local/bin
				printf 'Package: thing\nVersion: 1\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n' >/tmp/p/DEBIAN/control
				printf '#!/bin/sh\necho thing works\n' >/tmp/p/usr/local/bin/thing; chmod 755 /tmp/p/usr/local/bin/thing
				echo new >/tmp/p/usr/share/doc/gzip/thing
				dpkg-deb -b /tmp/p /tmp/thing.deb >/dev/null
				rm -r /usr/share/doc/gzip
				dpkg --force-not-root --log=/tmp/dpkg.log -i /tmp/thing.deb 2>&1
				ls -A /usr/share/doc/gzip`)
			s.wait(t, id, 0)
			id = s.submit(t, "--overlay "+name, `thing; ls -A /usr/share/doc/gzip; sleep 315`)
			s.state(t, id, "running")
			waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "berth logs "+id).out, "thing works") })
			second := s.submit(t, "--overlay "+name, "true")
			st := s.wait(t, second, 75)
			if !strings.Contains(st.Reason, "in use") {
				t.Errorf("the second writer: %+v", st)
			}
			s.ok(t, "berth cancel "+id)
			s.wait(t, id, 130)
			if out := s.ok(t, "berth logs "+id); out != "thing works\nthing" {
				t.Errorf("%s overlay on the second run: %q", kind, out)
			}
		}
	})
}

// The example, twice at the same time: branches, untouched working tree.
func TestExample(t *testing.T) {
	each(t, modern, func(t *testing.T, s site) {
		d := s.dir(t)
		s.ok(t, fmt.Sprintf("cp -r /mnt/share/examples/fix-the-test/. %s/; cd %s && ./make-repo repo && cd repo && git checkout -q -b mine && echo unsaved >>README.md && echo staged >new.txt && git add new.txt && echo untracked >other.txt", d, d))
		before := s.ok(t, "cd "+d+"/repo && git status --porcelain=v2 --branch && git diff && git diff --cached && cat .git/HEAD && sha256sum .git/index .git/config && ls -A .git .git/hooks")
		ids := strings.Fields(s.ok(t, fmt.Sprintf("cd %s && for i in 1 2; do berth submit %s --image %s task.md 2>>notes & done; wait", d, s.flags(), s.image)))
		if len(ids) != 2 {
			t.Fatalf("ids %q", ids)
		}
		for _, id := range ids {
			st := s.wait(t, id, 0)
			if !st.Taken || st.Branch != "berth/fix-the-word-counter/"+id || st.Result.Files != 1 || len(st.Artifacts) != 1 {
				t.Errorf("status %+v", st)
			}
			diff := s.ok(t, fmt.Sprintf("cd %s/repo && git diff --stat HEAD %s && git show %s:wordcount.py | grep -c 'pairs\\[:n\\]'", d, st.Branch, st.Branch))
			if !strings.Contains(diff, "wordcount.py") || !strings.HasSuffix(diff, "\n1") {
				t.Errorf("the branch does not fix the mistake:\n%s", diff)
			}
			if parent := s.ok(t, "cd "+d+"/repo && git rev-parse "+st.Branch+"^"); parent != st.Result.Base {
				t.Errorf("the branch's parent is %s, want the base %s", parent, st.Result.Base)
			}
			if out := s.ok(t, "cat "+filepath.Join(st.Dir, "artifacts/report.txt")); !strings.Contains(out, "lines of the failure") {
				t.Errorf("artifact: %q", out)
			}
			if out := s.ok(t, "berth logs "+id); !strings.Contains(out, "Find the mistake") || !strings.Contains(out, "working in /work") {
				t.Errorf("logs: %s", out)
			}
		}
		after := s.ok(t, "cd "+d+"/repo && git status --porcelain=v2 --branch && git diff && git diff --cached && cat .git/HEAD && sha256sum .git/index .git/config && ls -A .git .git/hooks")
		if before != after {
			t.Errorf("the user's repository changed:\n%s\n---\n%s", before, after)
		}
		for _, secret := range []string{"Find the mistake"} {
			if a := s.sh(t, "grep -l "+quote(secret)+" "+s.status(t, ids[0]).Dir+"/script.sh"); a.code == 0 {
				t.Errorf("the job script holds the prompt")
			}
		}
	})
}

// A task that is hostile to whoever looks at its work tree.
func TestHostileTree(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	s.ok(t, "cd "+d+" && /mnt/share/examples/fix-the-test/make-repo repo")
	id := s.submit(t, "--workspace "+d+"/repo", `
		printf '#!/bin/sh\ntouch `+d+`/ran-on-host\n' >evil; chmod +x evil
		for h in pre-commit post-checkout post-merge reference-transaction; do cp evil .git/hooks/$h; done
		git config core.fsmonitor /work/evil; git config filter.x.clean /work/evil; git config diff.external /work/evil
		echo '* filter=x diff=x' >.gitattributes
		mkdir sub; git init -q sub; git -C sub config core.fsmonitor /work/evil; echo data >sub/file
		ln -s `+d+`/repo outside; mkfifo pipe; mkdir -m 0500 locked; exit 0`)
	st := s.wait(t, id, 9) // what git obeys, and a link that leaves the tree, are in no scope that does not name them
	if !slices.Equal(st.Result.OutOfScope, []string{".gitattributes", "outside"}) {
		t.Errorf("outside the scope: %q", st.Result.OutOfScope)
	}
	if got := s.ok(t, "ls "+d); got != "repo" {
		t.Errorf("something ran on the host: %s", got)
	}
	names := s.ok(t, "cd "+d+"/repo && git ls-tree -r --name-only "+st.Branch)
	for _, want := range []string{"evil", "sub/file", "outside", ".gitattributes"} {
		if !strings.Contains("\n"+names+"\n", "\n"+want+"\n") {
			t.Errorf("%s is not on the branch:\n%s", want, names)
		}
	}
	s.quiet(t)
}

func TestOutcomes(t *testing.T) {
	s := newer
	s.need(t)
	d := s.dir(t)
	s.ok(t, "cd "+d+" && /mnt/share/examples/fix-the-test/make-repo repo")
	ws := "--workspace " + d + "/repo "
	t.Run("no change", func(t *testing.T) {
		st := s.wait(t, s.submit(t, ws, "true"), 7)
		if st.State != "completed" || st.Branch != "" {
			t.Errorf("status %+v", st)
		}
	})
	t.Run("out of scope", func(t *testing.T) {
		st := s.wait(t, s.submit(t, ws+"--scope wordcount.py", "echo >>README.md; echo >>wordcount.py"), 9)
		if st.State != "completed" || len(st.Result.OutOfScope) != 1 || st.Result.OutOfScope[0] != "README.md" || !st.Taken {
			t.Errorf("status %+v", st)
		}
	})
	t.Run("failed with changes", func(t *testing.T) {
		st := s.wait(t, s.submit(t, ws, "echo half >half; exit 4"), 1)
		if st.State != "failed" || !st.Taken || st.Result.Files != 1 {
			t.Errorf("status %+v", st)
		}
	})
	t.Run("done fails", func(t *testing.T) {
		s.ok(t, "cat >"+d+"/done.md <<'E'\n---\nname: done fails\nagent:\n  command: echo new >new; echo ignored >x.pyc; printf '*.pyc\\n' >.gitignore\nworkspace:\n  repo: repo\ndone:\n  - test -f new\n  - test -f x.pyc\n---\nE")
		id := s.ok(t, "berth submit --image "+s.image+" "+d+"/done.md")
		st := s.wait(t, id, 1)
		if st.State != "failed" || !strings.Contains(st.Reason, "test -f x.pyc") || !st.Taken {
			t.Errorf("status %+v", st)
		}
	})
}

func TestErrors(t *testing.T) {
	s := newer
	s.need(t)
	d := s.dir(t)
	image := "--image " + s.image
	for _, c := range []struct {
		name, text string
		code       int
		stderr     []string
	}{
		{"missing image", "berth submit --image /nowhere/x.sif -- true", 3, []string{"error: .*/nowhere/x.sif does not exist", "hint: .*a reference such as docker://"}},
		{"not an image", "berth submit --image /etc/hosts -- true", 78, []string{"/etc/hosts is not a SIF", "hint:"}},
		{"no image", "berth submit -- true", 2, []string{"names no image", "hint:.*--image"}},
		{"partition", "berth submit " + image + " --partition nope -- true", 2, []string{"partition", "hint:.*main"}},
		{"account", "berth submit " + image + " --account nope -- true", 2, []string{"account", "hint:.*lab"}},
		{"task file", "printf '+++\\nname = \"x\"\\n[agent]\\ncomand = \"true\"\\n+++\\n' >" + d + "/t.md; berth submit " + image + " " + d + "/t.md", 2, []string{`t.md:4: .*comand.*did you mean .*command`}},
		{"no task", "berth submit /nowhere.md", 3, []string{"/nowhere.md"}},
		{"no workspace", "berth submit " + image + " --workspace /tmp -- true", 2, []string{"/tmp", "git"}},
		{"no job", "berth status ffffffff", 3, []string{`no job "ffffffff"`, "hint: berth ps"}},
		{"bad flag", "berth submit --imagine x -- true", 2, []string{"imagine", "hint: did you mean: --image"}},
		{"bad verb", "berth sumbit", 2, []string{"sumbit", "did you mean: berth submit"}},
		{"bad size", "berth submit " + image + " --memory 4GB -- true", 2, []string{"--memory.*4GiB"}},
		{"unset variable", "berth submit " + image + " --env NOT_SET_HERE -- true", 2, []string{"NOT_SET_HERE", "hint: export"}},
		{"too much", "berth submit " + image + " --memory 900GiB -- true", 2, []string{"hint:"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Jobs of the test before may leave the queue meanwhile.
			const list = "squeue -h --me -o %i; find ~/.local/state/berth/jobs -mindepth 2 -maxdepth 2 2>/dev/null || true"
			before := strings.Fields(s.ok(t, list))
			a := s.want(t, c.text, c.code, c.stderr...)
			if a.out != "" {
				t.Errorf("stdout is not empty: %q", a.out)
			}
			for _, what := range strings.Fields(s.ok(t, list)) {
				if !slices.Contains(before, what) {
					t.Errorf("something was left: %s", what)
				}
			}
		})
	}
}

// The image is gone when the job starts.
func TestImageGone(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	s.ok(t, "cp "+s.image+" "+d+"/x.sif")
	id := s.ok(t, "berth submit --retry off --image "+d+"/x.sif --slurm --begin=now+1hour -- true; rm "+d+"/x.sif")
	s.release(t, id)
	st := s.wait(t, id, 5)
	if st.State != "error" || !strings.Contains(st.Reason, "does not exist on c") || st.Hint == "" {
		t.Errorf("status %+v", st)
	}
	s.quiet(t)
}

// While Slurm is down, what runs goes on, and questions say that they could
// not be asked.
func TestSlurmDown(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	id := s.submit(t, "--bind "+d+":/d", "until [ -e /d/go ]; do sleep 0.2; done; echo survived")
	s.state(t, id, "running")
	if a := s.on(t, "ctl", "root", "/usr/local/sbin/tb-slurmctld", "stop"); a.code != 0 {
		t.Fatal(a.err)
	}
	start := func() {
		if a := s.on(t, "ctl", "root", "/usr/local/sbin/tb-slurmctld", "start"); a.code != 0 {
			t.Fatal(a.err)
		}
	}
	defer start()
	before := s.ok(t, "find ~/.local/state/berth/jobs -mindepth 2 -maxdepth 2 | wc -l")
	s.want(t, "berth submit --image "+s.image+" -- true", 5, "error: ", "hint: ")
	if after := s.ok(t, "find ~/.local/state/berth/jobs -mindepth 2 -maxdepth 2 | wc -l"); after != before {
		t.Errorf("a refused submission left a record: %s, then %s", before, after)
	}
	s.ok(t, "touch "+d+"/go")
	st := s.wait(t, id, 0) // the record is enough
	if st.State != "completed" {
		t.Errorf("status %+v", st)
	}
	start()
	waitFor(t, patience, func() bool { _, err := s.healthy(t); return err == nil })
	s.quiet(t)
}

// kill -9 of the runner ends the container, and the next verb says what
// happened.
func TestRunnerKilled(t *testing.T) {
	s := newer
	s.need(t)
	id := s.submit(t, "", "setsid sleep 311 & sleep 311")
	st := s.state(t, id, "running")
	waitFor(t, patience, func() bool {
		return s.on(t, st.Node, "root", "pgrep", "-u", "alice", "-f", "sleep 311").code == 0
	})
	s.on(t, st.Node, "root", "bash", "-c", "pkill -9 -u alice -f 'berth-node.* runner'")
	deadline := time.Now().Add(patience)
	for s.on(t, st.Node, "root", "pgrep", "-u", "alice", "-f", "sleep 311").code == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the container lives on without its runner")
		}
		time.Sleep(200 * time.Millisecond)
	}
	st = s.wait(t, id, 5)
	if st.State != "lost" || !strings.Contains(st.Reason, "without a record") {
		t.Errorf("status %+v", st)
	}
	// Its scratch directory goes when the next job of the same user starts.
	s.wait(t, s.submit(t, "--slurm --nodelist="+st.Node, "true"), 0)
	s.quiet(t)
}

func TestRun(t *testing.T) {
	s := newer
	s.need(t)
	a := s.want(t, "berth run --image "+s.image+" -- 'echo one; echo two >&2; exit 3'", 1)
	if a.out != "one\n" || !strings.Contains(a.err, "two\n") {
		t.Errorf("stdout %q stderr %q", a.out, a.err)
	}
	s.want(t, "berth run --exit-code --image "+s.image+" -- 'exit 3'", 3)
	d := s.dir(t)
	a = s.want(t, "cd "+d+"; berth run --image "+s.image+" -- 'sleep 314' 2>said & until grep -q 'berth: running' "+d+"/said; do sleep 0.2; done; kill -INT $!; wait $!; code=$?; cat "+d+"/said >&2; exit $code", 130, "berth logs -f [0-9a-f]{8}")
	id := regexp.MustCompile(`job ([0-9a-f]{8})`).FindStringSubmatch(a.err)[1]
	if st := s.status(t, id); st.Final {
		t.Errorf("ctrl-C ended the job: %+v", st)
	}
	s.ok(t, "berth cancel "+id)
	s.wait(t, id, 130)
	s.quiet(t)
}

func TestSecret(t *testing.T) {
	s := newer
	s.need(t)
	d := s.dir(t)
	id := s.ok(t, "export TOKEN=secret-$RANDOM$RANDOM; echo $TOKEN >"+d+"/token; berth submit --retry off --image "+s.image+" --bind "+d+":/d --env TOKEN --slurm --begin=now+1hour -- 'echo ${#TOKEN}; until [ -e /d/go ]; do sleep 0.2; done'")
	st := s.status(t, id)
	secret := s.ok(t, "cat "+d+"/token")
	if perm := s.ok(t, "stat -c %a "+st.Dir+"/env"); perm != "600" {
		t.Errorf("the passed values have mode %s", perm)
	}
	s.release(t, id)
	s.state(t, id, "running")
	for _, node := range []string{"c1", "c2", "login"} {
		// From a file: the search has a command line, too.
		if a := s.on(t, node, "root", "bash", "-c", "grep -alFf "+d+"/token /proc/[0-9]*/cmdline 2>/dev/null"); a.code == 0 || a.out != "" {
			t.Errorf("the secret stands in a command line on %s: %s", node, a.out)
		}
	}
	s.ok(t, "touch "+d+"/go")
	s.wait(t, id, 0)
	if out := s.ok(t, "berth logs "+id); out != fmt.Sprint(len(secret)) {
		t.Errorf("the task saw %q, want the length of the secret", out)
	}
	if a := s.sh(t, "grep -rl "+secret+" ~/.local/state/berth; scontrol write batch_script "+st.NativeID+" - 2>/dev/null | grep -c "+secret); strings.TrimSpace(a.out) != "0" && strings.TrimSpace(a.out) != "" {
		t.Errorf("the secret was kept: %s", a.out)
	}
	s.quiet(t)
}

func TestJSON(t *testing.T) {
	s := standard
	s.need(t)
	id := s.submit(t, "", "true")
	s.wait(t, id, 0)
	for _, verb := range []string{"ps --all", "status", "status " + id, "wait " + id} {
		var v struct {
			Schema int `json:"schema_version"`
			Jobs   []status
		}
		if out := s.ok(t, "berth "+verb+" --json"); json.Unmarshal([]byte(out), &v) != nil || v.Schema != 1 || len(v.Jobs) == 0 {
			t.Errorf("berth %s --json: %s", verb, out)
		}
	}
	a := s.want(t, "berth status --json ffffffff", 3)
	var e struct {
		Error struct {
			Message string
			Code    int `json:"exit_code"`
		}
	}
	if json.Unmarshal([]byte(a.out), &e) != nil || e.Error.Code != 3 {
		t.Errorf("error as JSON: %q, stderr %q", a.out, a.err)
	}
}

// On a cluster without a container program, the local backend runs through
// Slurm, when it is named.
func TestOldSlurm(t *testing.T) {
	s := old
	s.need(t)
	id := s.ok(t, "berth submit --backend local --name 'old one' --time 2m -- 'echo hello from $(hostname); exit 0'")
	st := s.wait(t, id, 0)
	if out := s.ok(t, "berth logs "+id); !strings.HasPrefix(out, "hello from ") {
		t.Errorf("logs %q", out)
	}
	if len(st.Notes) == 0 || !strings.Contains(st.Notes[0], "no containment") {
		t.Errorf("the lack of containment is not said: %v", st.Notes)
	}
	id = s.ok(t, "berth submit --image /etc/hosts --backend local -- 'setsid sleep 311 & sleep 311'")
	s.state(t, id, "running")
	s.ok(t, "berth cancel "+id)
	s.wait(t, id, 130)
	id = s.ok(t, "cp /bin/true ~/not.sif; berth submit --backend local -- 'kill -9 $$'")
	s.wait(t, id, 1)
	s.quiet(t)
}

// The strict site: --mem is refused, and a hint says which profile line repairs
// it.
func TestStrictSite(t *testing.T) {
	s := strict
	s.need(t)
	s.want(t, "berth submit --image "+s.image+" --memory 100MiB -- true", 2, "error: ", `hint: .*forbid`)
	id := s.submit(t, "--memory 100MiB", "true")
	st := s.wait(t, id, 0)
	if !strings.Contains(strings.Join(st.Notes, " "), "--mem is not sent") {
		t.Errorf("notes %q", st.Notes)
	}
	s.quiet(t)
}

// release starts a job now that was submitted with --begin.
func (s site) release(t *testing.T, id string) {
	t.Helper()
	s.ok(t, "scontrol update JobId="+s.status(t, id).NativeID+" StartTime=now")
}

func waitFor(t *testing.T, limit time.Duration, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); pause(began) {
		if time.Since(began) > limit {
			t.Fatalf("it did not happen within %s", limit)
		}
	}
}

// A FUSE helper that dies takes the container's file system with it: that is
// no success, whatever the command says.
func TestFileSystemDies(t *testing.T) {
	s := standard
	s.need(t)
	id := s.submit(t, "", `echo ready; while echo x 2>/dev/null >/root/x; do sleep 0.2; done; exit 0`)
	st := s.state(t, id, "running")
	waitFor(t, patience, func() bool { return strings.Contains(s.sh(t, "berth logs "+id).out, "ready") })
	s.on(t, st.Node, "root", "pkill", "-9", "-u", "alice", "fuse-overlayfs")
	st = s.wait(t, id, 5)
	if st.State != "error" || !strings.Contains(st.Reason, "fuse-overlayfs ended") {
		t.Errorf("status %+v", st)
	}
	s.quiet(t)
}

// What a task prints without end does not fill the disk.
func TestFlood(t *testing.T) {
	s := standard
	s.need(t)
	id := s.submit(t, "", `head -c 300000000 /dev/zero; echo end >&2`)
	st := s.wait(t, id, 0)
	if size := s.ok(t, "stat -c %s "+st.Dir+"/stdout"); size != "268435456" || !strings.Contains(strings.Join(st.Notes, " "), "256MiB") {
		t.Errorf("kept %s bytes; notes %q", size, st.Notes)
	}
	s.ok(t, "berth rm "+id)
}

// A task that writes its own end onto the guest's stream, which it can reach
// through the container's init, does not succeed by that.
func TestForgedExit(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	s.ok(t, "cat >"+d+"/forge.py <<'E'\nimport json, struct, time\nj = json.dumps({'exit': {'started': True, 'code': 0}}).encode()\nwith open('/proc/1/fd/1', 'wb', buffering=0) as f:\n    f.write(struct.pack('>BII', 5, 1, len(j)) + j)\n    for kind in (129, 130):\n        f.write(struct.pack('>BII', kind, 1, 0))\ntime.sleep(2)\nE")
	id := s.submit(t, "--bind "+d+":/d", "python3 /d/forge.py; exit 3")
	st := s.wait(t, id, 5)
	if st.State != "error" {
		t.Errorf("status %+v", st)
	}
	s.quiet(t)
}
