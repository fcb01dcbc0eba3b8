package slurm

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/internal/sys/pattern"
	"berth/jobs"
	"berth/templates"
)

// Render returns the job script. It fails with kind usage when a value cannot
// be written into a "#SBATCH" line, when a comment would be read as one, or when
// an extra option is berth's own.
func (*Scheduler) Render(l jobs.Launch) (string, error) {
	if err := checkComments(l.Comment); err != nil {
		return "", err
	}
	lines, err := header(l)
	if err != nil {
		return "", err
	}
	return templates.Script(l, templates.Head{
		Lines: lines,
		// Else an inner srun would start with the job's own near-empty
		// environment (srun(1), --export).
		Env:   append([]string{"SLURM_EXPORT_ENV=ALL"}, l.Env...),
		Unset: []string{"SLURM_EXIT_ERROR"}, // set for sbatch only; Slurm carries it into the job
	})
}

// option is one line of the header; an empty value is a bare option.
type option struct{ name, value string }

// needed are options without which berth does not work; a profile may not
// forbid them.
var needed = []string{"job-name", "chdir", "export", "array"}

func header(l jobs.Launch) ([]string, error) {
	if l.Name == "" || strings.Trim(l.Name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		// squeue and sacct print names between separators.
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("job name %q is not made of a-z, 0-9 and '-'", l.Name)}
	}
	if !path.IsAbs(l.Dir) {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("directory %q of the attempt is not absolute", l.Dir)}
	}
	if strings.Contains(l.Dir, `\`) {
		// In a log's name a backslash means "no replacements" and is dropped,
		// once in 22.05 and 24.11, more often in 26.05: no spelling is right
		// everywhere.
		return nil, &jobs.Error{Kind: jobs.KindUsage,
			Msg:  fmt.Sprintf("directory %q of the attempt holds a backslash, which Slurm cannot take in the name of a log", l.Dir),
			Hint: "set BERTH_HOME to a directory without one"}
	}
	words := l.Slurm.Extra
	if l.Aside {
		l.Slurm.Constraint = ""
		words = slices.DeleteFunc(slices.Clone(words), func(o string) bool {
			name, _, _ := strings.Cut(o, "=")
			return name != "--reservation" && name != "--wckey"
		})
	}
	extra, dependency, err := extras(words)
	if err != nil {
		return nil, err
	}
	opts := []option{
		{"job-name", l.Name},
		{"comment", "berth:" + l.Attempt},
		{"chdir", l.Dir},
		{"output", logOf(l)},
		{"open-mode", "append"},
		{requeue(l), ""},
	}
	held := behind(l) + dependency
	if l.Elements > 0 {
		// Elements share a name, which singleton lets run one by one.
		opts = append(opts, option{"array", array(l)})
		held = strings.TrimPrefix(held, ",")
	} else {
		// Two submissions of one attempt never run side by side.
		held = "singleton" + held
	}
	if held != "" {
		opts = append(opts, option{"dependency", held}, option{"kill-on-invalid-dep", "yes"})
	}
	opts = append(opts, option{"export", exportValue(l.Profile.Versions.Slurm)})
	if l.Warn > 0 {
		opts = append(opts, option{"signal", signal(l.Warn)})
	}
	asked, err := resources(l)
	if err != nil {
		return nil, err
	}
	opts = append(append(opts, asked...), extra...)
	// Of an option that is given twice the last one counts.
	if l.Wait > 0 {
		// Relative, as the clocks of this machine and of Slurm's may differ.
		opts = append(opts, option{"begin", fmt.Sprintf("now+%d", int64((l.Wait+time.Second-1)/time.Second))})
	}
	if exclude := l.Exclude; len(exclude) > 0 {
		for _, o := range extra {
			if o.name == "exclude" {
				exclude = append(exclude[:len(exclude):len(exclude)], o.value)
			}
		}
		opts = append(opts, option{"exclude", strings.Join(exclude, ",")})
	}

	var lines []string
	for _, o := range opts {
		if err := jobs.CheckText("--"+o.name, o.value); err != nil {
			return nil, err
		}
		switch {
		case !slices.Contains(l.Profile.Forbid, o.name):
			lines = append(lines, "#SBATCH "+directive(o))
		case slices.Contains(needed, o.name):
			return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the profile forbids --" + o.name + ", which berth needs",
				Hint: "remove it from the profile's forbid"}
		default:
			lines = append(lines, "# --"+o.name+" is not sent: the profile forbids it")
		}
	}
	return lines, nil
}

// logOf is where the log of a job goes, and those of several elements beside each
// other, by their numbers.
func logOf(l jobs.Launch) string {
	name := cmp.Or(l.Log, jobs.SchedulerLog)
	if l.Elements == 0 {
		return logPattern(path.Join(l.Dir, name))
	}
	end := path.Ext(name)
	return logPattern(path.Join(l.Dir, strings.TrimSuffix(name, end))) + "-%a" + end
}

// array numbers the elements, and bounds how many run at a time.
func array(l jobs.Launch) string {
	s := "1-" + strconv.Itoa(l.Elements)
	if l.AtOnce > 0 && l.AtOnce < l.Elements {
		s += "%" + strconv.Itoa(l.AtOnce)
	}
	return s
}

// behind holds the job back until others have ended. Not afterok: what ended
// may be tried again, and Slurm never starts what hangs on it then (sbatch(1),
// "--dependency").
func behind(l jobs.Launch) string {
	var ids []string
	for _, h := range l.Behind {
		if isID(h.NativeID) && !slices.Contains(ids, h.NativeID) {
			ids = append(ids, h.NativeID)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return ",afterany:" + strings.Join(ids, ":")
}

// requeue is one of the two: what is usual differs from site to site
// (slurm.conf(5), JobRequeue).
func requeue(l jobs.Launch) string {
	if l.Requeue {
		return "requeue"
	}
	return "no-requeue"
}

// signal asks for USR2 to the batch process alone. Slurm counts whole seconds,
// up to 65535, and may send it a minute early (sbatch(1), --signal).
func signal(before time.Duration) string {
	return fmt.Sprintf("B:USR2@%d", min(int64((before+time.Second-1)/time.Second), 65535))
}

func resources(l jobs.Launch) ([]option, error) {
	r, site := l.Resources, l.Slurm
	var opts []option
	add := func(name, value string) { opts = append(opts, option{name, value}) }
	if r.CPUs < 0 || r.Nodes < 0 || r.Tasks < 0 || r.Memory < 0 || r.Disk < 0 || r.Time < 0 {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "a resource is negative"}
	}
	if r.Nodes > 0 {
		add("nodes", strconv.Itoa(r.Nodes))
	}
	if r.Tasks > 0 {
		add("ntasks", strconv.Itoa(r.Tasks))
	}
	if r.CPUs > 0 {
		add("cpus-per-task", strconv.Itoa(r.CPUs))
	}
	if r.Memory > 0 {
		add("mem", strconv.FormatInt(r.Memory.MiB(), 10)+"M")
	}
	if r.Disk > 0 {
		add("tmp", strconv.FormatInt(r.Disk.MiB(), 10)+"M")
	}
	if r.Time > 0 {
		add("time", Minutes(r.Time))
	}
	if r.GPUs != "" {
		o, err := gpus(r.GPUs, l.Profile.Forbid)
		if err != nil {
			return nil, err
		}
		opts = append(opts, o)
	}
	for _, o := range []option{{"partition", site.Partition}, {"account", site.Account}, {"qos", site.QOS}, {"constraint", site.Constraint}} {
		if o.value != "" {
			opts = append(opts, o)
		}
	}
	return opts, nil
}

var gpuPattern = pattern.Lazy(`^([A-Za-z][A-Za-z0-9_.-]*:)?[1-9][0-9]*$`)

// gpus asks with --gres, which counts per node and which every version and
// selection plugin knows; --gpus counts per job and may spread one job's GPUs
// over two nodes. A profile that forbids "gres" gets --gpus.
func gpus(asked string, forbid []string) (option, error) {
	for one := range strings.SplitSeq(asked, ",") {
		if !gpuPattern().MatchString(one) {
			return option{}, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q is not a number of GPUs", asked),
				Hint: `write for example "2" or "a100:2"`}
		}
	}
	if slices.Contains(forbid, "gres") {
		return option{"gpus", asked}, nil
	}
	return option{"gres", "gpu:" + strings.ReplaceAll(asked, ",", ",gpu:")}, nil
}

// Minutes writes a limit as sbatch's --time takes it, "HH:MM:00" or
// "D-HH:MM:00", rounded up: Slurm counts in whole minutes (sbatch(1), --time).
func Minutes(d time.Duration) string {
	m := int64((d + time.Minute - 1) / time.Minute)
	clock := fmt.Sprintf("%02d:%02d:00", m/60%24, m%60)
	if days := m / (24 * 60); days > 0 {
		return fmt.Sprintf("%d-%s", days, clock)
	}
	return clock
}

// logPattern writes a path for --output, which is a pattern: "%" begins a
// replacement and "%%" is itself (sbatch(1), "filename pattern").
func logPattern(p string) string { return strings.ReplaceAll(p, "%", "%%") }
