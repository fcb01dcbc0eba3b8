//go:build faults

package faults

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/jobs"
)

// TestStateFull, cases 13, 16 and 17: the file system of the state directory is
// full, has no more files, is read-only, or is gone. What cannot be recorded is
// refused in plain words, nothing is left half made, and afterwards all works.
func TestStateFull(t *testing.T) {
	begin(t)
	for _, c := range []struct{ name, mount, spoil, mend, words string }{
		{name: "space", mount: "-o size=64m", spoil: "dd if=/dev/zero of=filler bs=4k 2>/dev/null; true", mend: "rm filler", words: "no space left"},
		{name: "files", mount: "-o size=64m,nr_inodes=200", spoil: "for i in $(seq 300); do : >filler-$i || break; done 2>/dev/null; true", mend: "rm filler-*", words: "no space left"},
		{name: "read-only", mount: "-o size=64m", spoil: "mount -o remount,ro .", mend: "mount -o remount,rw .", words: "read-only"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := "/mnt/full-" + c.name
			ok(t, "login", "root", "mkdir -p "+d+" && mount -t tmpfs "+c.mount+" tmpfs "+d+" && install -d -o alice -m 700 "+d+"/berth")
			// The local queue's last process ends a moment after its job.
			t.Cleanup(func() {
				ok(t, "login", "root", "for i in $(seq 300); do umount "+d+" && exec rmdir "+d+"; sleep 0.2; done 2>/dev/null; exit 1")
			})
			berth := "export BERTH_HOME=" + d + "/berth; berth "
			submit := berth + "submit --scheduler local --backend local -- "
			first := ok(t, "login", "alice", submit+"'echo one'")
			ok(t, "login", "alice", berth+"wait --timeout 3m "+first)
			ok(t, "login", "root", "cd "+d+" && "+c.spoil)
			a := sh(submit + "'echo two'")
			if a.code != 5 && a.code != 78 || a.out != "" || !strings.Contains(strings.ToLower(a.err), c.words) || !strings.Contains(a.err, "hint: ") {
				t.Errorf("while it is full: %+v", a)
			}
			if a := sh(berth + "status --json " + first); a.code != 0 || !strings.Contains(a.out, `"completed"`) {
				t.Errorf("what was recorded: %+v", a)
			}
			ok(t, "login", "root", "cd "+d+" && "+c.mend)
			if n := sh(berth + "ps --all --json | jq '.jobs | length'").out; n != "1" {
				t.Errorf("a refused submission has left a record: %s", n)
			}
			if a := sh("find " + d + "/berth -name '.new-*'"); a.out != "" {
				t.Errorf("half made: %s", a.out)
			}
			ok(t, "login", "alice", berth+"wait --timeout 3m $("+strings.TrimPrefix(submit, "export BERTH_HOME="+d+"/berth; ")+"'echo three')")
		})
	}
	t.Run("gone", func(t *testing.T) {
		d := files + "/gone"
		ok(t, "login", "alice", "mkdir -p "+d+" "+files+"/there && sshfs -o StrictHostKeyChecking=yes login:"+files+"/there "+d+" && mkdir -m 700 "+d+"/berth")
		t.Cleanup(func() {
			ok(t, "login", "alice", "fusermount3 -u "+d+" || fusermount -u "+d+"; rm -rf "+files+"/there "+d)
		})
		berth := "export BERTH_HOME=" + d + "/berth; berth "
		ok(t, "login", "alice", berth+"wait --timeout 3m $(berth submit --scheduler local --backend local -- 'echo one')")
		// It is gone when no one holds the mount any more, a moment after it was killed.
		ok(t, "login", "root", "pkill -9 -x sshfs")
		ok(t, "login", "alice", "for i in $(seq 1200); do ls "+d+" 2>&1 | grep -q 'not connected' && exit 0; sleep 0.1; done; exit 1")
		for _, verb := range []string{"ps", "submit --scheduler local --backend local -- true"} {
			if a := onFor(time.Minute, "login", "alice", berth+verb); a.code != 5 && a.code != 78 || !strings.Contains(a.err, "not connected") {
				t.Errorf("berth %s without its files: %+v", verb, a)
			}
		}
	})
}

// TestStateFullWhileRunning, case 13 on the cluster: the state directory is full
// when a job ends, and for some time after that. Its end is recorded when there
// is space again, or the job is tried again: nothing is taken for what it is not.
func TestStateFullWhileRunning(t *testing.T) {
	if strictSite {
		t.Skip("the file system there is the login node's")
	}
	begin(t)
	id := submit(t, "--retry on "+onlyOnce(t), gate("full"))
	st := running(t, id)
	f := fault{host: "login"}
	kinds["fill state directory"].do(f)
	t.Cleanup(func() { kinds["fill state directory"].undo(f) })
	open(t, "full")
	eventually(t, 2*time.Minute, "the command has ended", func() bool { return on(st.Node, "root", "pgrep -u alice -f once/full").code == 1 })
	time.Sleep(4 * time.Second)
	kinds["fill state directory"].undo(f)
	ends(t, 4*time.Minute, id, jobs.StateCompleted)
	invariants(t)
}

// TestArtifactsFull, case 13 when a job ends: the file system of the state directory
// has no room for some of its artifacts, and then none for the kept work tree
// either. What came back, what is kept, and what is lost is told.
func TestArtifactsFull(t *testing.T) {
	if strictSite {
		t.Skip("the file system there is the login node's")
	}
	begin(t)
	ok(t, "login", "alice", "cat >"+files+"/full.md <<'E'\n---\nname: full\nagent:\n  command: mkdir out && head -c 40M /dev/urandom >out/large && head -c 1M /dev/urandom >out/small && cat out/* | sha256sum && echo out/ >.gitignore\nworkspace:\n  repo: repo\nartifacts: [\"out/\"]\n---\nE")
	empty := func() { ok(t, "login", "root", "rm -f /mnt/state/filler") }
	t.Cleanup(empty)
	// full runs the job with so many MiB left, of which a twentieth of 1 GiB is
	// not for artifacts.
	full := func(left int) (id string, rec *jobs.Record, told string) {
		ok(t, "login", "root", fmt.Sprintf("cd /mnt/state && rm -f filler && fallocate -l $(($(df --output=avail -B1 . | tail -n 1) - (%d << 20))) filler", left))
		a := sh("berth run --profile " + fast + " --image " + image + " " + files + "/full.md")
		m := regexp.MustCompile(`job ([0-9a-f]{8}) submitted`).FindStringSubmatch(a.err)
		if m == nil {
			t.Fatalf("%+v", a)
		}
		ack(t, m[1])
		rec = ends(t, time.Minute, m[1], jobs.StateCompleted)
		if x := rec.Current().Exit; a.code != jobs.CodePartial || x.Code != jobs.CodePartial || rec.Current().N != 1 {
			t.Errorf("with %d MiB left: exit code %d\n%s\n%s", left, a.code, a.err, tell(rec))
		}
		return m[1], rec, a.err
	}
	// says checks that the verbs that tell of a job's end say all this.
	says := func(id, run string, words ...string) {
		t.Helper()
		for verb, text := range map[string]string{"run": run, "wait": sh("berth wait " + id).err, "status": sh("berth status " + id).out, "explain": sh("berth explain " + id).out} {
			for _, w := range words {
				if !strings.Contains(text, w) {
					t.Errorf("berth %s does not say %q:\n%s", verb, w, text)
				}
			}
		}
	}
	noSpace := func(rec *jobs.Record, names ...string) {
		t.Helper()
		x := rec.Current().Exit
		if len(x.LeftOut) != 1 || x.LeftOut[0].Of != jobs.OfArtifacts || x.LeftOut[0].Kind != "no_space" || !slices.Equal(x.LeftOut[0].Names, names) || x.Kept == nil || x.Kept.Dir == "" {
			t.Errorf("the record: %+v, kept %+v", x.LeftOut, x.Kept)
		}
	}
	collect := func(id string, code int, missing string) {
		t.Helper()
		if a := sh("berth collect " + id); a.code != code || !regexp.MustCompile(missing).MatchString(a.out) || missing == "" && strings.Contains(a.out, "not here") {
			t.Errorf("collect: %+v, want code %d and %q", a, code, missing)
		}
	}
	sums := func(id string) string {
		return ok(t, "login", "alice", "cd $(berth status --json "+id+" | jq -r '.jobs[0].dir')/artifacts/out && cat $(ls) | sha256sum && ls")
	}

	id, rec, told := full(80)
	noSpace(rec, "out/large")
	if x := rec.Current().Exit; x.Kept.Files != 0 || !slices.Equal(x.Artifacts, []string{"out/small"}) || x.Result == nil || !x.Result.Taken {
		t.Errorf("%+v, kept %+v, %+v", x.Artifacts, x.Kept, x.Result)
	}
	says(id, told, "artifacts: 1 path for which there was no space (40.0 MiB): out/large", "berth collect "+id+" brings them")
	collect(id, jobs.CodePartial, `not here\s+out/large: needs 40.* are left, of which 51.2 MiB are kept free`)
	empty()
	collect(id, 0, "")
	if got, want := sums(id), sh("berth logs "+id).out+"\nlarge\nsmall"; got != want {
		t.Errorf("collected %q, want %q", got, want)
	}

	id, rec, told = full(30)
	noSpace(rec, "out/large", "out/small")
	if k := rec.Current().Exit.Kept; k.Files != 1 || k.Bytes != 40<<20 || !strings.Contains(k.Error, "out/large") || !strings.Contains(k.Error, "no space left") {
		t.Errorf("kept: %+v", k)
	}
	says(id, told, "artifacts: 2 paths for which there was no space (41.0 MiB): out/large, out/small", "1 path of 40.0 MiB", "out/large: cannot be copied: no space left on device")
	empty()
	collect(id, jobs.CodePartial, `not here\s+1 path of 40.0 MiB`)
	if got := sums(id); !strings.HasSuffix(got, "\nsmall") {
		t.Errorf("collected %q", got)
	}
	invariants(t)
}

// TestPlanted, case 49: another user has put links where berth makes its
// directories, and a state directory that others may write is refused.
func TestPlanted(t *testing.T) {
	begin(t)
	for _, h := range []string{"login", "c1", "c2"} {
		ok(t, h, "bob", `mkdir -p /tmp/victim && echo mine >/tmp/victim/file && chmod -R 777 /tmp/victim
for n in berth-1000 berth-1000-images; do [ -e /tmp/$n ] || ln -s /tmp/victim /tmp/$n; done`)
		t.Cleanup(func() {
			ok(t, h, "root", "for n in berth-1000 berth-1000-images; do [ ! -L /tmp/$n ] || rm /tmp/$n; done; rm -rf /tmp/victim")
		})
	}
	var ids []string
	for _, n := range nodes {
		ids = append(ids, submit(t, "--retry on --stage always --slurm --nodelist="+n, "echo ready; echo x >/tmp/x"))
	}
	for _, id := range ids {
		ends(t, 2*time.Minute, id, jobs.StateCompleted)
	}
	for _, h := range []string{"login", "c1", "c2"} {
		if a := on(h, "root", "find /tmp/victim -mindepth 1 -printf '%f '; cat /tmp/victim/file"); a.out != "file mine" {
			t.Errorf("written through the link on %s: %q", h, a.out)
		}
	}
	for _, mode := range []string{"777", "770", "755"} {
		d := fmt.Sprintf("%s/open-%s", files, mode)
		ok(t, "login", "alice", "mkdir -p "+d+" && chmod "+mode+" "+d)
		if a := sh("BERTH_HOME=" + d + " berth submit --scheduler local --backend local -- true"); a.code != 78 || !strings.Contains(a.err, "hint: ") {
			t.Errorf("a state directory of mode %s: %+v", mode, a)
		}
	}
}

// TestCanary, case 50: while a job runs, another user looks at all command lines
// and environments that there are to be seen, and finds nothing. What every test
// leaves behind is looked through after it.
func TestCanary(t *testing.T) {
	begin(t)
	// Who looks ends when the file is gone, and has it open, so as not to make it
	// again.
	for _, h := range hosts {
		ok(t, h, "root", "install -o bob -m 600 /home/alice/.canary /tmp/pattern")
		ok(t, h, "bob", `: >/tmp/seen; (setsid bash -c 'while [ -e /tmp/seen ]; do grep -laF -f /tmp/pattern /proc/[0-9]*/cmdline /proc/[0-9]*/environ; scontrol show job | grep -F -f /tmp/pattern; sleep 0.3; done' >>/tmp/seen 2>/dev/null </dev/null &)`)
	}
	t.Cleanup(func() {
		for _, h := range hosts {
			on(h, "root", "rm -f /tmp/seen /tmp/pattern")
		}
	})
	ok(t, "login", "alice", "berth overlay create --driver ext3 --size 64MiB --image "+image+" canary")
	id := submit(t, "--retry on --workspace "+files+"/repo --overlay canary "+onlyOnce(t), "echo ready; echo ${#CANARY}; echo x >>file; until [ -e /once/canary ]; do sleep 0.3; done")
	running(t, id)
	ok(t, "login", "alice", "berth exec --job "+id+" -- true; touch "+files+"/once/canary")
	ends(t, 2*time.Minute, id, jobs.StateCompleted)
	for _, h := range hosts {
		if a := on(h, "root", "cat /tmp/seen"); a.code != 0 || a.out != "" {
			t.Errorf("seen on %s: %+v", h, a)
		}
		on(h, "root", "rm -f /tmp/seen /tmp/pattern")
	}
	if out := sh("berth logs " + id).out; out != "ready\n33" {
		t.Errorf("the task saw %q", out)
	}
	invariants(t)
}
