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
		// A job that does not start is cancelled.
		s.ok(t, "printf '[slurm]\\nextra = [\"--begin=now+3600\"]\\n' >"+d+"/config/berth/profiles/later.toml")
		s.want(t, env+"berth doctor --on-node --wait 1s --profile later >/dev/null", 75, "was cancelled")
		nothingLeft(t, s, d)
	})
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
