package apptainer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
	"berth/test/fakes/siftest"

	"github.com/google/uuid"
)

// attempting opens the place of an attempt of a job with this image and layer.
func attempting(home, scratch, node, program, sif, name, driver string) (*opener, *jobs.Spec) {
	s := &jobs.Spec{Place: jobs.Place{Image: sif, Overlay: jobs.OverlaySpec{Name: name, Driver: driver}}}
	e := s.Environment(jobs.AttemptInfo{}, home)
	e.Overlay = jobs.OverlaySpec{}
	return &opener{b: &Backend{On: run.Local{}}, program: program, anywhere: true, spec: e,
		at: jobs.OpenPlace{Dir: home, Guest: node, Scratch: scratch, On: run.Local{}, Progress: func(string) {}}}, s
}

// A job's driver is tried on its node: where directories cannot be layers, one
// that wants them ends before its task starts, with a way out, and ext3 works.
func TestAttemptReady(t *testing.T) {
	bin, home, scratch := t.TempDir(), t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin+":/usr/sbin:/usr/bin:/bin")
	asked := filepath.Join(scratch, "asked")
	// As one that is setuid, where there are no user namespaces.
	program(t, bin, "apptainer", `echo x >>`+asked+`
for w; do case "$w" in *.ext3) exit 0;; esac; done
echo 'FATAL:   only root user can use sandbox as overlay' >&2; exit 255`, 0o755)
	sif := filepath.Join(scratch, "x.sif")
	if err := os.WriteFile(sif, siftest.New(uuid.New(), nil), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, driver, says, hint string }{
		{"", jobs.DriverFuse, "the overlay driver fuse is not available on ", "berth doctor --on-node --write-profile"},
		{"", jobs.DriverKernel, "the overlay driver kernel is not available on ", "berth doctor --on-node --write-profile"},
		{"deps", jobs.DriverFuse, "only root user can use sandbox", "berth overlay convert deps --driver ext3"},
		{"", jobs.DriverExt3, "", ""},
		{"deps", jobs.DriverExt3, "", ""},
		{"", "magic", "no overlay driver magic", "kernel, fuse and ext3"},
	} {
		dir := filepath.Join(scratch, "overlay")
		if c.name != "" {
			dir = filepath.Join(home, "overlays", c.name)
		}
		a, s := attempting(home, scratch, "/bin/false", filepath.Join(bin, "apptainer"), sif, c.name, c.driver)
		used, driver, err := a.ready(t.Context(), s, dir)
		if c.says == "" {
			if err != nil || driver != c.driver || used.Path != sif || used.Way != jobs.ImageInPlace || used.Failed != "" || used.Close() != nil {
				t.Errorf("%+v: %+v, %v", c, used, err)
			}
			before, _ := os.ReadFile(asked)
			if _, _, err := a.ready(t.Context(), s, dir); err != nil {
				t.Errorf("again: %v", err)
			}
			if after, _ := os.ReadFile(asked); len(after) != len(before) || len(before) == 0 {
				t.Errorf("%+v was tried again", c)
			}
			continue
		}
		if err == nil || jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(err.Error(), c.says) || !strings.Contains(jobs.HintOf(err), c.hint) {
			t.Errorf("%+v: %v (%s)", c, err, jobs.HintOf(err))
		}
	}
	if left, _ := filepath.Glob(filepath.Join(home, "*", ".probe-*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func TestOverKernel(t *testing.T) {
	scratch := t.TempDir()
	o := &opener{program: "/apptainer", at: jobs.OpenPlace{Scratch: t.TempDir()}}
	in := jobs.Invocation{Guest: "/n", Place: jobs.Place{Overlay: jobs.OverlaySpec{Driver: jobs.DriverKernel}, Mounts: []jobs.Mount{{Source: scratch, Destination: "/work"}}}}
	argv, err := o.line(in, lineOf{lower: "/lower", layer: "/layer", scratch: scratch, guest: "/n", covers: []jobs.Mount{{Source: "/dev/null", Destination: "/work/s"}}})
	line := strings.Join(argv, " ")
	merged := filepath.Join(scratch, "merged")
	if err != nil || !strings.HasPrefix(line, "/n overlay-mount --lower /lower --upper /layer/upper --work /layer/work --merged "+merged+" ") ||
		!strings.Contains(line, " -- /apptainer exec ") || !strings.HasSuffix(line, "destination=/work/s,readonly --writable "+merged+" "+GuestPath+" guest") ||
		!strings.Contains(line, " --dir /work ") || !strings.Contains(line, " --file "+GuestPath+" ") {
		t.Errorf("%v: %s", err, line)
	}
	if fi, err := os.Stat(merged); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", fi, err)
	}
}

// Where the image cannot be unpacked, a layer that is thrown away is written by
// fuse; one that is kept has its driver.
func TestNotUnpacked(t *testing.T) {
	s, sif := stagerOf(t) // its image has no root file system
	bin := filepath.Dir(s.Program)
	program(t, bin, "apptainer", "exit 0", 0o755)
	for _, name := range []string{"", "deps"} {
		a, job := attempting(s.Home, t.TempDir(), "/bin/true", s.Program, sif, name, jobs.DriverKernel)
		used, driver, err := a.ready(t.Context(), job, filepath.Join(s.Home, "overlays", "x"))
		switch {
		case name != "":
			if err == nil || !strings.Contains(err.Error(), "no root file system") || jobs.HintOf(err) == "" {
				t.Errorf("%+v, %v", used, err)
			}
		case err != nil || driver != jobs.DriverFuse || used.Path != sif || !strings.Contains(used.Failed, "no root file system"):
			t.Errorf("%+v, %s, %v", used, driver, err)
		}
	}
}

// A node that has too much to do refuses nothing: the attempt ends for its sake,
// and may be tried again, also there.
func TestAttemptSlowNode(t *testing.T) {
	was := probeTime
	t.Cleanup(func() { probeTime = was })
	bin, scratch := t.TempDir(), t.TempDir()
	t.Setenv("PATH", bin+":/usr/sbin:/usr/bin:/bin")
	program(t, bin, "apptainer", "sleep 300 & wait", 0o755)
	program(t, bin, "berth-node", "sleep 300 & wait", 0o755) // which mounts, for kernel
	sif := filepath.Join(scratch, "x.sif")
	if err := os.WriteFile(sif, siftest.New(uuid.New(), nil), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, driver string }{{"", jobs.DriverExt3}, {"", jobs.DriverFuse}, {"", jobs.DriverKernel}, {"deps", jobs.DriverExt3}, {"deps", jobs.DriverFuse}} {
		home := t.TempDir()
		dir := filepath.Join(scratch, "overlay")
		if c.name != "" {
			dir = filepath.Join(home, "overlays", c.name)
		}
		a, s := attempting(home, scratch, filepath.Join(bin, "berth-node"), filepath.Join(bin, "apptainer"), sif, c.name, c.driver)
		probeTime = 200 * time.Millisecond
		_, _, err := a.ready(t.Context(), s, dir)
		if jobs.KindOf(err) != jobs.KindInfra || !strings.Contains(err.Error(), "could not be tried on ") || jobs.HintOf(err) != hintCut {
			t.Errorf("%+v: %v (%s)", c, err, jobs.HintOf(err))
		}
		if kept, _ := filepath.Glob(filepath.Join(home, "probes", "*")); len(kept) > 0 {
			t.Errorf("%+v: kept: %q", c, kept)
		}
	}
}
