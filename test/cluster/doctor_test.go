//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"berth/internal/doctor"
)

// doctors are the sites of TestDoctor, the one without a container program too.
var doctors = []site{standard, old, newer, strict}

// TestDoctor: login and node are looked at in time, nothing is left, and the
// profile that comes of it can be used.
func TestDoctor(t *testing.T) {
	each(t, doctors, func(t *testing.T, s site) {
		crowd.RLock()
		t.Cleanup(crowd.RUnlock)
		d := s.dir(t)
		env := "export BERTH_HOME=" + d + "/state XDG_CONFIG_HOME=" + d + "/config; "
		here := s.look(t, env+"date +%s%N >"+d+"/from; berth doctor --json; code=$?; date +%s%N >"+d+"/to; exit $code", 0)[0]
		var from, to int64 // there: the way to the cluster is none of the doctor's
		if _, err := fmt.Sscan(s.ok(t, "cat "+d+"/from "+d+"/to"), &from, &to); err != nil {
			t.Fatal(err)
		}
		if took := time.Duration(to - from); took > 30*time.Second || here.TookMS > 27_000 {
			t.Errorf("it took %v", took)
		}
		for _, id := range []string{"scheduler", "slurm.programs", "slurm.controller", "state", "scratch", "namespaces"} {
			if f := here.Find(id); f.Status != doctor.OK && f.Status != doctor.Warn {
				t.Errorf("%+v", f)
			}
		}
		code := 0
		if s.image == "" {
			code = 1 // jobs need a container program on the node
		}
		places := s.look(t, env+"berth doctor --on-node --json --write-profile site", code)
		if len(places) != 2 || places[1].Where != "node" || places[1].Host == "login" {
			t.Fatalf("%d places", len(places))
		}
		node := places[1]
		if s.image != "" {
			for _, id := range []string{"apptainer.program", "overlay.kernel", "overlay.fuse", "overlay.ext3", "apptainer.fakeroot", "apptainer.network", "state", "scratch"} {
				if f := node.Find(id); f.Status != doctor.OK {
					t.Errorf("%+v", f)
				}
			}
		}
		nothingLeft(t, s, d)
		s.bare(t, "login", "ls -A /tmp | grep berth-doctor") // of the other tests, too
		script := s.ok(t, env+"berth render --profile site --memory 1GiB --image /x.sif -- true")
		if refused := s.profile == "strict"; strings.Contains(script, "#SBATCH --mem=") == refused {
			t.Errorf("the profile of a site that refuses --mem (%v) gives\n%s", refused, script)
		}
		if s.profile == "strict" {
			s.core(t, env, d)
		}
		// A job that does not start is cancelled.
		s.ok(t, "printf '[slurm]\\nextra = [\"--begin=now+3600\"]\\n' >"+d+"/config/berth/profiles/later.toml")
		s.want(t, env+"berth doctor --on-node --wait 1s --profile later >/dev/null", 75, "was cancelled")
		nothingLeft(t, s, d)
	})
}

// core is what every user does, on a site that berth knows from its doctor alone: the
// profile named site.
func (s site) core(t *testing.T, env, d string) {
	t.Helper()
	env += "export BERTH_HOME=" + d + "/core; cd " + d + "; flags='--profile site --image " + s.image + "'; "
	t.Cleanup(func() {
		s.sh(t, env+"berth env rm --force core; for j in $(berth ps --all | cut -f 1); do berth cancel $j; berth wait --timeout 2m $j; berth rm --force $j; done")
	})
	s.ok(t, env+"git init -q repo && cd repo && echo one >a && git add a && git -c user.name=a -c user.email=a@b.invalid commit -qm one")
	a := s.want(t, env+"cd repo && berth run $flags --workspace . --name core --memory 300MiB --retry on -- 'echo two >>a; echo said'", 0, "branch berth/core/[0-9a-f]+: 1 file")
	if a.out != "said\n" {
		t.Errorf("%q", a.out)
	}
	for range 2 {
		if got := s.ok(t, env+"berth exec --env core --scheduler slurm $flags -- 'n=$((n + 1)); echo $n >>/tmp/n; cat /tmp/n' 2>/dev/null"); !strings.HasPrefix(got, "1") {
			t.Errorf("%q", got)
		}
	}
	s.ok(t, env+"berth env rm --force core")
	id := s.ok(t, env+"berth submit $flags -- sleep 319")
	s.ok(t, env+"berth cancel "+id)
	s.want(t, env+"berth wait "+id, 130)
	s.ok(t, env+"berth rm --force $(berth ps --all | cut -f 1)")
}

// nothingLeft fails the test when a doctor has left something in its state
// directory, or a job: of that Slurm may know for a moment yet.
func nothingLeft(t *testing.T, s site, d string) {
	t.Helper()
	if left := s.ok(t, "find "+d+"/state -mindepth 1 2>/dev/null || true"); left != "" {
		t.Errorf("left: %s", left)
	}
	s.bare(t, "login", "squeue -u alice -h -o %j | grep '^berth-doctor'")
}

// look runs a doctor and returns what it has found.
func (s site) look(t *testing.T, text string, code int) []*doctor.Place {
	t.Helper()
	a := s.sh(t, text)
	var out struct {
		OK     bool            `json:"ok"`
		Places []*doctor.Place `json:"places"`
	}
	if err := json.Unmarshal([]byte(a.out), &out); err != nil || a.code != code || out.OK != (code == 0) {
		t.Fatalf("%s: exit %d, want %d, %v\n%s\n%s", text, a.code, code, err, a.out, a.err)
	}
	return out.Places
}
