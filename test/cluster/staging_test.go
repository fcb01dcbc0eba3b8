//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"berth/jobs"
)

// explained is berth explain --json.
type explained struct {
	Version int `json:"schema_version"`
	Explain struct {
		Short, State, Reason string
		Image                struct {
			Path, Reference, Sha256, Stage string
			Used                           *jobs.ImageUse
		}
		Overlay struct {
			Driver, Why string
			Used        *jobs.OverlayUse
		}
	}
}

func (s site) explain(t *testing.T, id string) explained {
	t.Helper()
	var x explained
	out := s.ok(t, "berth explain --json "+id)
	if err := json.Unmarshal([]byte(out), &x); err != nil || x.Version == 0 || x.Explain.Short != id {
		t.Fatalf("%v\n%s", err, out)
	}
	return x
}

// staged are alice's copies on a node, and unstage removes them.
func (s site) staged(t *testing.T, node string) []string {
	t.Helper()
	return strings.Fields(s.on(t, node, "alice", "bash", "-c", "ls -d /tmp/berth-1000-images*/*/copy-* 2>/dev/null").out)
}

func (s site) unstage(t *testing.T) {
	t.Helper()
	for _, node := range []string{"c1", "c2"} {
		if a := s.on(t, node, "alice", "bash", "-c", "find /tmp -maxdepth 1 -name 'berth-1000-images*' -user alice -exec chmod -R u+w {} + -exec rm -rf {} +"); a.code != 0 {
			t.Fatal(a.err)
		}
	}
}

// An image is staged once on a node, whatever asks for it at the same time, and
// berth explain says where it was run from. On the site whose home directories
// are on a network file system that is so by itself.
func TestStaging(t *testing.T) {
	each(t, []site{standard, strict}, func(t *testing.T, s site) {
		d := s.dir(t)
		s.unstage(t)
		s.ok(t, "cp "+s.image+" "+d+"/x.sif; echo 'overlay = \"kernel\"' >"+d+"/kernel.toml")
		submit := func(node, flags string) string {
			return s.ok(t, fmt.Sprintf("berth submit %s --image %s/x.sif --slurm=--nodelist=%s -- %s", flags, d, node, quote("cat /etc/debian_version; sleep 1")))
		}
		way := func(id, node, way string, reused bool) *jobs.ImageUse {
			t.Helper()
			u := s.explain(t, id).Explain.Image.Used
			if u == nil || u.Way != way || u.Node != node || u.Reused != reused || u.Failed != "" || u.Why == "" {
				t.Fatalf("%s: %+v", id, u)
			}
			return u
		}
		kinds := map[string]string{jobs.ImageStaged: s.flags() + " --stage always"}
		if s.profile == "strict" {
			kinds[jobs.ImageStaged] = s.flags() // it is large, and on a network file system
		} else {
			kinds[jobs.ImageUnpacked] = "--memory 600MiB --profile " + d + "/kernel.toml"
		}
		for kind, flags := range kinds {
			t.Run(kind, func(t *testing.T) {
				s.unstage(t)
				var ids []string
				for range 4 {
					ids = append(ids, submit("c1", flags))
				}
				made := 0
				for _, id := range ids {
					s.wait(t, id, 0)
					u := s.explain(t, id).Explain.Image.Used
					if u == nil || u.Way != kind || u.Node != "c1" {
						t.Fatalf("%+v", u)
					}
					if !u.Reused {
						made++
					}
				}
				if got := s.staged(t, "c1"); made != 1 || len(got) != 1 {
					t.Errorf("made %d times: %q", made, got)
				}
				if got := s.staged(t, "c2"); len(got) > 0 {
					t.Errorf("on c2: %q", got)
				}
				other := submit("c2", flags)
				s.wait(t, other, 0)
				way(other, "c2", kind, false)
				again := submit("c2", flags)
				s.wait(t, again, 0)
				if u := way(again, "c2", kind, true); !strings.HasPrefix(u.Path, "/tmp/berth-1000-images/") {
					t.Errorf("%+v", u)
				}
				out := s.ok(t, "berth explain "+again)
				for _, line := range []string{"state\tcompleted", "image\t" + d + "/x.sif", "on\tc2", "driver\t", "because\t", "which was there already"} {
					if !strings.Contains(out, line) {
						t.Errorf("no %q in\n%s", line, out)
					}
				}
				if users := s.on(t, "c2", "alice", "bash", "-c", "ls /tmp/berth-1000-images/*/users").out; strings.TrimSpace(users) != "" {
					t.Errorf("users: %s", users)
				}
			})
		}
		never := submit("c1", s.flags()+" --stage never")
		s.wait(t, never, 0)
		if u := way(never, "c1", jobs.ImageInPlace, false); u.Path != d+"/x.sif" {
			t.Errorf("%+v", u)
		}
		s.unstage(t)
	})
}

// What a killed runner was staging is staged by the next one.
func TestStagingKilled(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	s.unstage(t)
	s.ok(t, "cp "+s.image+" "+d+"/x.sif; echo 'overlay = \"kernel\"' >"+d+"/kernel.toml")
	submit := func() string {
		return s.ok(t, "berth submit --retry off --memory 600MiB --profile "+d+"/kernel.toml --image "+d+"/x.sif --slurm=--nodelist=c1 -- true")
	}
	half := "compgen -G '/tmp/berth-1000-images/berth-1000-*/w/copy'"
	killed := submit()
	// There is half of it for a second or two, so that is watched on the node itself,
	// and what makes it gives way to who watches.
	a := s.on(t, "c1", "root", "bash", "-c", fmt.Sprintf(`for i in $(seq 6000); do pid=$(pgrep -o -u alice -f "berth-node[^ ]* runner --attempt %s") && break; sleep 0.05; done
		renice -n 19 -p "$pid" >/dev/null
		until %s; do kill -0 "$pid" || exit 1; sleep 0.005; done; kill -9 "$pid"`, s.status(t, killed).Dir, half))
	if a.code != 0 {
		t.Fatalf("%+v", a)
	}
	next := submit()
	s.wait(t, next, 0)
	if u := s.explain(t, next).Explain.Image.Used; u == nil || u.Way != jobs.ImageUnpacked || u.Reused {
		t.Errorf("%+v", u)
	}
	if got := s.staged(t, "c1"); len(got) != 1 {
		t.Errorf("%q", got)
	}
	s.wait(t, killed, 5)
	if a := s.on(t, "c1", "alice", "bash", "-c", half); a.code == 0 {
		t.Errorf("left: %s", a.out)
	}
	s.quiet(t)
	s.unstage(t)
}

// A directory that another user has made first, or a full disk, does not keep a
// job from running.
func TestStagingHindered(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	s.unstage(t)
	s.ok(t, "cp "+s.image+" "+d+"/x.sif")
	run := func(flags string) *jobs.ImageUse {
		t.Helper()
		id := s.ok(t, "berth submit --memory 600MiB --image "+d+"/x.sif --stage always --slurm=--nodelist=c1 "+flags+" -- true")
		s.wait(t, id, 0)
		u := s.explain(t, id).Explain.Image.Used
		if u == nil {
			t.Fatal("nothing is known of its image")
		}
		return u
	}
	if a := s.on(t, "c1", "bob", "bash", "-c", "mkdir -m 777 /tmp/berth-1000-images && ln -s /etc /tmp/berth-1000-images-x"); a.code != 0 {
		t.Fatal(a.err)
	}
	t.Cleanup(func() { s.on(t, "c1", "bob", "bash", "-c", "rm -r /tmp/berth-1000-images /tmp/berth-1000-images-x") })
	for _, reused := range []bool{false, true} {
		if u := run(""); u.Way != jobs.ImageStaged || u.Reused != reused || !strings.HasPrefix(u.Path, "/tmp/berth-1000-images-") {
			t.Errorf("%+v", u)
		}
	}
	if got := s.on(t, "c1", "bob", "bash", "-c", "ls -A /tmp/berth-1000-images").out; strings.TrimSpace(got) != "" {
		t.Errorf("bob sees %s", got)
	}
	// 60 MiB are not enough for an image of some 90.
	small := "/mnt/small-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if a := s.on(t, "c1", "root", "bash", "-c", "mkdir "+small+" && mount -t tmpfs -o size=60M,mode=1777 tmpfs "+small); a.code != 0 {
		t.Fatal(a.err)
	}
	t.Cleanup(func() { s.on(t, "c1", "root", "bash", "-c", "umount -l "+small+" && rmdir "+small) })
	s.ok(t, "echo 'scratch = \""+small+"\"' >"+d+"/small.toml; (echo 'overlay = \"kernel\"'; cat "+d+"/small.toml) >"+d+"/kernel.toml")
	if u := run("--profile " + d + "/small.toml"); u.Way != jobs.ImageInPlace || u.Path != d+"/x.sif" || !strings.Contains(u.Failed, "not enough room") {
		t.Errorf("%+v", u)
	}
	// The driver kernel takes an unpacked image: without one it is fuse.
	if u := run("--profile " + d + "/kernel.toml --stage auto"); u.Way != jobs.ImageInPlace || !strings.Contains(u.Failed, "not enough room") {
		t.Errorf("%+v", u)
	}
	s.quiet(t)
	s.unstage(t)
}
