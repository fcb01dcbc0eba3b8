package apptainer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/sys/run"
	"berth/jobs"
	"berth/test/fakes/siftest"

	"github.com/google/uuid"
)

// stagerOf is one whose container program unpacks into a file "unpacked", or
// fails when the file "broken" stands beside it.
func stagerOf(t *testing.T) (s Stager, sif string) {
	t.Helper()
	home, bin := t.TempDir(), t.TempDir()
	program(t, bin, "apptainer", `test ! -e `+bin+`/broken || { echo 'FATAL:   no space' >&2; exit 255; }
mkdir "$3"; echo "$4" >"$3/unpacked"`, 0o755)
	sif = filepath.Join(home, "x.sif")
	if err := os.WriteFile(sif, siftest.New(uuid.New(), nil), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SLURM_JOB_ID", "")
	return Stager{Home: home, Owner: home, Program: filepath.Join(bin, "apptainer"), On: run.Local{}, Progress: func(string) {}}, sif
}

func TestStager(t *testing.T) {
	s, sif := stagerOf(t)
	use := func(sum string, runs Runs) *Used {
		t.Helper()
		u, err := s.Stage(t.Context(), sif, sum, runs)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = u.Close() })
		return u
	}
	if u := use("", Runs{Driver: jobs.DriverFuse}); u.Way != jobs.ImageInPlace || u.Path != sif || u.Why != "it is on a disk of this node" || u.Failed != "" {
		t.Errorf("%+v", u)
	}
	always := Runs{Driver: jobs.DriverFuse, Stage: jobs.StageAlways}
	u := use("", always)
	if u.Way != jobs.ImageStaged || !strings.HasPrefix(u.Path, filepath.Join(s.Home, "images", "staged")+"/") || u.Reused {
		t.Errorf("%+v", u)
	}
	if u := use("", always); !u.Reused || !strings.Contains(u.String(), "there already") {
		t.Errorf("%+v", u)
	}
	// What is not what was recorded is not run, wherever it is.
	for _, runs := range []Runs{always, {Driver: jobs.DriverFuse}} {
		if u, err := s.Stage(t.Context(), sif, strings.Repeat("0", 64), runs); err == nil || jobs.CodeOf(err) != jobs.CodeConfig {
			t.Errorf("%+v, %v", u, err)
		}
	}
	// Where there is no place for copies the image is run where it is.
	s.Scratch = filepath.Join(s.Home, "missing")
	if u := use("", always); u.Way != jobs.ImageInPlace || u.Path != sif || !strings.Contains(u.Failed, "missing") {
		t.Errorf("%+v", u)
	}
	if u, err := s.Stage(t.Context(), sif, "", Runs{Driver: jobs.DriverKernel}); err == nil || jobs.HintOf(err) == "" {
		t.Errorf("%+v, %v", u, err)
	}
}
