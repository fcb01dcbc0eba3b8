package slurm_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/jobs"
	"berth/slurm"
)

func head(t *testing.T, l jobs.Launch) string {
	t.Helper()
	text, err := slurm.New(nil, slurm.Config{}).Render(l)
	if err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), "bash", "-n")
	check.Stdin = strings.NewReader(text)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("bash -n: %v\n%s\n%s", err, out, text)
	}
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if rest, ok := strings.CutPrefix(line, "#SBATCH "); ok {
			lines = append(lines, rest)
		} else if strings.HasPrefix(line, "# --") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

func TestHeader(t *testing.T) {
	l := launch()
	l.Dir = `/home/a b/it's "x" #1 %j/日本`
	l.Resources = jobs.Resources{CPUs: 4, Memory: 1, Disk: 5*jobs.GiB + 1, Time: 90*time.Minute + time.Second, GPUs: "a100:2,1", Nodes: 1, Tasks: 3}
	l.Slurm = jobs.SlurmOptions{Partition: "main", Account: "re search", QOS: "normal", Constraint: "[a|b]", Extra: []string{"--exclusive", "--nice=100", "--dependency=afterok:1"}}
	l.Profile.Forbid = []string{"mem", "comment"}
	l.Profile.Versions.Slurm = "22.05.8"
	want := strings.TrimSpace(`
--job-name=berth-fix-0123456789ab
# --comment is not sent: the profile forbids it
--chdir="/home/a b/it's \"x\" #1 %j/日本"
--output="/home/a b/it's \"x\" #1 %%j/日本/scheduler.log"
--open-mode=append
--no-requeue
--dependency=singleton,afterok:1
--kill-on-invalid-dep=yes
--export=NONE
--nodes=1
--ntasks=3
--cpus-per-task=4
# --mem is not sent: the profile forbids it
--tmp=5121M
--time=01:31:00
--gres=gpu:a100:2,gpu:1
--partition=main
--account="re search"
--qos=normal
--constraint="[a|b]"
--exclusive
--nice=100`)
	if got := head(t, l); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// What berth asks for beside the task's options: a job is held back and kept from
// nodes, with those that the user excludes, and one that looks after another is
// charged as that is and has nothing else of it.
func TestHeaderOfFurtherAttempts(t *testing.T) {
	l := launch()
	l.Wait, l.Exclude, l.Slurm.Extra = 29500*time.Millisecond, []string{"c1", "c2"}, []string{"--exclude=c9", "--begin=tomorrow", "--reservation=r", "--exclusive"}
	script := head(t, l)
	lines := strings.Split(script, "\n")
	if last := slices.Index(lines, "--begin=now+30"); last < slices.Index(lines, "--begin=tomorrow") || !slices.Contains(lines, "--exclude=c1,c2,c9") {
		t.Error(script)
	}
	l.Aside, l.Wait, l.Exclude, l.Slurm = true, 0, nil, jobs.SlurmOptions{Account: "a", Constraint: "big", Extra: []string{"--exclusive", "--reservation=r", "--wckey=w"}}
	script = head(t, l)
	for _, o := range []string{"--account=a", "--reservation=r", "--wckey=w"} {
		if !strings.Contains(script+"\n", o+"\n") {
			t.Errorf("without %s:\n%s", o, script)
		}
	}
	if strings.Contains(script, "--constraint") || strings.Contains(script, "--exclusive") || strings.Contains(script, "--begin") {
		t.Error(script)
	}
}

func TestHeaderDefaults(t *testing.T) {
	l := launch()
	l.Resources = jobs.Resources{}
	got := head(t, l)
	for _, want := range []string{"--export=NIL", "--comment=berth:" + l.Attempt, "--dependency=singleton"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in:\n%s", want, got)
		}
	}
	for _, no := range []string{"--mem", "--time", "--cpus", "--tmp", "--gres", "--partition", "--nodes"} {
		if strings.Contains(got, no) {
			t.Errorf("%s was not asked for:\n%s", no, got)
		}
	}
	l.Resources.GPUs, l.Profile.Forbid = "2", []string{"gres"}
	if got := head(t, l); !strings.Contains(got, "--gpus=2") {
		t.Error(got)
	}
}

func TestRenderRefuses(t *testing.T) {
	for name, spoil := range map[string]func(*jobs.Launch){
		"separator in the name":     func(l *jobs.Launch) { l.Name = "berth|x" },
		"no name":                   func(l *jobs.Launch) { l.Name = "" },
		"relative directory":        func(l *jobs.Launch) { l.Dir = "x" },
		"backslash in directory":    func(l *jobs.Launch) { l.Dir = `/a\b` },
		"line break in directory":   func(l *jobs.Launch) { l.Dir = "/a\n#SBATCH --array=1-9" },
		"line break in partition":   func(l *jobs.Launch) { l.Slurm.Partition = "a\n#SBATCH --array=1-9" },
		"directive in a comment":    func(l *jobs.Launch) { l.Comment = []string{"SBATCH --array=1"} },
		"directive of PBS":          func(l *jobs.Launch) { l.Comment = []string{" PBS -J 1-9"} },
		"extra of berth's own":      func(l *jobs.Launch) { l.Slurm.Extra = []string{"--output=x"} },
		"extra, own and abbreviate": func(l *jobs.Launch) { l.Slurm.Extra = []string{"--outp=x"} },
		"extra short":               func(l *jobs.Launch) { l.Slurm.Extra = []string{"-p x"} },
		"extra array":               func(l *jobs.Launch) { l.Slurm.Extra = []string{"--array=1-2"} },
		"extra two options":         func(l *jobs.Launch) { l.Slurm.Extra = []string{"--nice --array=1"} },
		"extra alternatives":        func(l *jobs.Launch) { l.Slurm.Extra = []string{"--dependency=afterok:1?afterok:2"} },
		"gpus":                      func(l *jobs.Launch) { l.Resources.GPUs = "many" },
		"gpus type alone":           func(l *jobs.Launch) { l.Resources.GPUs = "a100" },
		"negative":                  func(l *jobs.Launch) { l.Resources.CPUs = -1 },
		"needed option forbidden":   func(l *jobs.Launch) { l.Profile.Forbid = []string{"job-name"} },
	} {
		t.Run(name, func(t *testing.T) {
			l := launch()
			spoil(&l)
			if s, err := slurm.New(nil, slurm.Config{}).Render(l); err == nil {
				t.Errorf("rendered:\n%s", s)
			} else if k := jobs.KindOf(err); k != jobs.KindUsage && k != jobs.KindConfig {
				t.Errorf("kind %d: %v", k, err)
			}
		})
	}
}

func TestMinutes(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Second: "00:01:00", time.Minute: "00:01:00", 61 * time.Second: "00:02:00", 24 * time.Hour: "1-00:00:00",
		24*time.Hour - time.Second: "1-00:00:00", 30*time.Hour + 5*time.Minute: "1-06:05:00", 400 * 24 * time.Hour: "400-00:00:00",
	} {
		if got := slurm.Minutes(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}
