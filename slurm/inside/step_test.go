package inside

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/sys/run"
	"berth/jobs"
)

func TestStep(t *testing.T) {
	got := strings.Join(Slurm{}.Step("berth-1-2", jobs.Resources{Tasks: 4, CPUs: 2, Memory: jobs.GiB}, jobs.SlurmOptions{MPI: "pmix"}, []string{"sh", "-c", "it's"}), " ")
	want := "srun --job-name=berth-1-2 --nodes=1 --ntasks=4 --cpus-per-task=2 --exact --mem=1024M --kill-on-bad-exit=1 --wait=0 --export=ALL --unbuffered --quiet --mpi=pmix -- sh -c it's"
	if got != want {
		t.Errorf("%s", got)
	}
	if got := strings.Join(Slurm{}.Step("a", jobs.Resources{Tasks: 1, Memory: jobs.GiB, GPUs: "2"}, jobs.SlurmOptions{}, nil), " "); !strings.Contains(got, " --cpus-per-task=1 ") || !strings.Contains(got, " --gres=none ") {
		t.Errorf("%s", got)
	}
}

// Only steps with the name are ended, and by their numbers.
func TestEndStep(t *testing.T) {
	d := t.TempDir()
	for name, text := range map[string]string{
		"squeue":  "#!/bin/sh\nprintf '%s\\n' '7.0 berth-1-2' '7.1 berth-1-20' '7.batch batch' '7.3 berth-1-2'\n",
		"scancel": "#!/bin/sh\necho \"$@\" >>" + d + "/said\n",
	} {
		if err := os.WriteFile(filepath.Join(d, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", d+":/usr/bin:/bin")
	for _, name := range []string{"berth-1-2", "berth-1-3"} {
		if err := (Slurm{}).EndStep(t.Context(), run.Local{}, "7", name); err != nil {
			t.Fatal(err)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(d, "said")); string(b) != "--signal=KILL 7.0 7.3\n" {
		t.Errorf("%q", b)
	}
}
