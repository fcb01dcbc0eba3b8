//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// Binds of paths that need quoting, read-only unless said.
func TestBinds(t *testing.T) {
	each(t, modern, func(t *testing.T, s site) {
		d := s.dir(t)
		odd := d + `/it's "odd", a:b=c é`
		s.ok(t, "mkdir -p "+quote(odd)+" "+d+"/plain; echo seen >"+quote(odd+"/file"))
		s.ok(t, "cat >"+d+"/t.md <<'E'\n+++\nname = 'binds'\n[agent]\ncommand = '''\ncat /odd/file; touch /odd/new 2>/dev/null || echo odd is read-only\ntouch /plain/new && echo plain is writable\n'''\n[[terminal.bind]]\nsource = '''"+odd+"'''\ndestination = '/odd'\n[[terminal.bind]]\nsource = '"+d+"/plain'\ndestination = '/plain'\nwritable = true\n+++\nE")
		id := s.ok(t, "berth submit "+s.flags()+" --image "+s.image+" "+d+"/t.md")
		s.wait(t, id, 0)
		if out := s.ok(t, "berth logs "+id); out != "seen\nodd is read-only\nplain is writable" {
			t.Errorf("logs %q", out)
		}
	})
}

// A job that asks for GPUs gets Slurm's, and is told which.
func TestGPU(t *testing.T) {
	s := standard
	s.need(t)
	id := s.submit(t, "--gpus 1", `echo "devices: $CUDA_VISIBLE_DEVICES"`)
	st := s.wait(t, id, 0)
	if out := s.ok(t, "berth logs --stdout "+id); out != "devices: 0" && out != "devices: 1" {
		t.Errorf("logs %q", out)
	}
	if argv := s.ok(t, "cat "+st.Dir+"/argv.json"); !strings.Contains(argv, `"--nv"`) {
		t.Errorf("no --nv in %s", argv)
	}
}

// Several jobs of a user are one line each, asked for at once; a job of
// another user is not seen.
func TestPs(t *testing.T) {
	s := standard
	s.need(t)
	var ids []string
	for range 3 {
		ids = append(ids, s.submit(t, "--slurm --begin=now+1hour", "true"))
	}
	out := s.ok(t, "berth ps")
	for _, id := range ids {
		if !strings.Contains(out, id+"\tpending") {
			t.Errorf("%s is not in\n%s", id, out)
		}
	}
	if a := s.on(t, "login", "bob", "bash", "-c", "/mnt/share/bin/berth ps --all"); a.code != 0 || a.out != "" {
		t.Errorf("bob sees %+v", a)
	}
	s.ok(t, "berth cancel "+strings.Join(ids, " "))
	s.sh(t, "berth wait "+strings.Join(ids, " "))
	out = s.ok(t, "berth ps") // what the test before has killed may be open for a while
	for _, id := range ids {
		if strings.Contains(out, id) {
			t.Errorf("still listed: %s", out)
		}
	}
	s.ok(t, "berth rm "+strings.Join(ids, " "))
}

// The local scheduler with a real container, on a machine that happens to
// have a Slurm too: it survives the shell that started it.
func TestLocalScheduler(t *testing.T) {
	each(t, []site{standard, newer}, func(t *testing.T, s site) {
		d := s.dir(t)
		s.ok(t, "cp -r /mnt/share/examples/fix-the-test/. "+d+"/; cd "+d+" && ./make-repo repo")
		a := s.sh(t, "cd "+d+" && berth run --scheduler local --image "+s.image+" task.md")
		if a.code != 0 || !strings.Contains(a.err, "branch berth/fix-the-word-counter/") {
			t.Fatalf("%+v", a)
		}
		id := s.submit(t, "--scheduler local", "sleep 4; echo survived")
		s.wait(t, id, 0)
		if out := s.ok(t, "berth logs "+id); out != "survived" {
			t.Errorf("logs %q", out)
		}
		// No more at once than the machine has CPUs; the rest waits.
		n := s.ok(t, "nproc")
		var ids []string
		for range 2 {
			ids = append(ids, s.submit(t, "--scheduler local --cpus "+n, "sleep 316"))
		}
		s.state(t, ids[0], "running")
		time.Sleep(time.Second)
		if st := s.status(t, ids[1]); st.State != "pending" {
			t.Errorf("the second job is %s, want pending", st.State)
		}
		s.ok(t, "berth cancel "+ids[1])
		s.wait(t, ids[1], 130)
		s.ok(t, "berth cancel "+ids[0])
		s.wait(t, ids[0], 130)
		s.want(t, fmt.Sprintf("berth submit --scheduler local --image %s --cpus 9999 -- true", s.image), 2, "9999", "hint: ")
		s.bare(t, "login", remains)
	})
}

// The script that was submitted is the one that render shows, but for its ids,
// and shows the whole command line.
func TestRender(t *testing.T) {
	s := standard
	s.need(t)
	out := s.ok(t, "PATH=/mnt/share/bin:/usr/bin:/bin berth render --image /nowhere.sif --memory 1GiB --cpus 2 --time 1h --disk 2GiB --gpus 1 --nodes 1 --partition p --account a --qos q --constraint c -- true")
	for _, line := range []string{"#SBATCH --mem=1024M", "#SBATCH --cpus-per-task=2", "#SBATCH --time=", "#SBATCH --tmp=2048M", "gpu:1", "#SBATCH --nodes=1", "#SBATCH --partition=p", "#SBATCH --account=a", "#SBATCH --qos=q", "#SBATCH --constraint=c",
		"apptainer exec --containall --no-home --cleanenv --no-eval", "--overlay {overlay}", "{image}"} {
		if !strings.Contains(out, line) {
			t.Errorf("%q is not in\n%s", line, out)
		}
	}
}
