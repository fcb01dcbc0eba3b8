// Package stubs reads what a task asks for by the names of Slurm's programs. Inside of
// its container these are stubs that send their words out; here they are read, by a
// table of the options that a task may use. Whatever is not in it is refused.
package stubs

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/jobs"
	"berth/slurm/options"
	"berth/slurm/site"
)

// Slurm implements [jobs.Stubs].
type Slurm struct{}

var _ jobs.Stubs = Slurm{}

// The programs.
const (
	sbatch  = options.Program
	srun    = "srun"
	squeue  = "squeue"
	scancel = "scancel"
)

// option is one that a task may use.
type option struct {
	long, short string
	flag        bool // it takes no value
	own         bool // it is berth's, and Slurm has none of this meaning
	of          []string
	// set takes its value over; "" is that of a flag.
	set func(w *jobs.Wish, value string) error
}

var submits = []string{sbatch, srun}

// table has all of them: what is not here is refused.
var table = []option{
	{long: "job-name", short: "J", of: submits, set: func(w *jobs.Wish, v string) error { w.Name = v; return nil }},
	{long: "time", short: "t", of: submits, set: setTime},
	{long: "cpus-per-task", short: "c", of: submits, set: func(w *jobs.Wish, v string) (err error) {
		w.Resources.CPUs, err = count(v)
		return err
	}},
	{long: "mem", of: submits, set: setMemory},
	{long: "gpus", short: "G", of: submits, set: func(w *jobs.Wish, v string) error { w.Resources.GPUs = v; return nil }},
	{long: "partition", short: "p", of: submits, set: func(w *jobs.Wish, v string) error { w.Partition = v; return nil }},
	{long: "ntasks", short: "n", of: submits, set: one},
	{long: "nodes", short: "N", of: submits, set: one},
	{long: "dependency", short: "d", of: submits, set: setAfter},
	{long: "output", short: "o", of: submits, set: func(w *jobs.Wish, v string) (err error) { w.Output, err = below(v); return err }},
	{long: "error", short: "e", of: submits, set: func(w *jobs.Wish, v string) (err error) { w.Error, err = below(v); return err }},
	{long: "network", own: true, of: submits, set: func(w *jobs.Wish, v string) error { w.Network = v; return nil }},
	{long: "allow", own: true, of: submits, set: func(w *jobs.Wish, v string) error { w.Allow = append(w.Allow, v); return nil }},
	{long: "scope", own: true, of: submits, set: func(w *jobs.Wish, v string) error { w.Scope = append(w.Scope, v); return nil }},
	{long: "image", own: true, of: submits, set: func(w *jobs.Wish, v string) error { w.Image = v; return nil }},
	{long: "wait", short: "W", flag: true, of: []string{sbatch}, set: func(w *jobs.Wish, _ string) error { w.Waits = true; return nil }},
	{long: "parsable", flag: true, of: []string{sbatch}, set: func(w *jobs.Wish, _ string) error { w.Bare = true; return nil }},
	{long: "wrap", of: []string{sbatch}, set: func(w *jobs.Wish, v string) error { w.Command.Shell = v; return nil }},
	{long: "jobs", short: "j", of: []string{squeue},
		set: func(w *jobs.Wish, v string) error { w.Jobs = append(w.Jobs, strings.Split(v, ",")...); return nil }},
	{long: "noheader", short: "h", flag: true, of: []string{squeue}, set: func(w *jobs.Wish, _ string) error { w.Bare = true; return nil }},
	{long: "me", flag: true, of: []string{squeue}, set: func(*jobs.Wish, string) error { return nil }},
}

// List implements [jobs.Stubs].
func (Slurm) List() []jobs.Stub {
	var out []jobs.Stub
	for _, name := range []string{sbatch, srun, squeue, scancel} {
		s := jobs.Stub{Name: name, Script: name == sbatch}
		for _, o := range table {
			if !slices.Contains(o.of, name) || o.flag {
				continue
			}
			s.Takes = append(s.Takes, "--"+o.long)
			if o.short != "" {
				s.Takes = append(s.Takes, "-"+o.short)
			}
		}
		if s.Script {
			s.NoScript = []string{"--wrap"}
		}
		out = append(out, s)
	}
	return out
}

// Wish implements [jobs.Stubs].
func (Slurm) Wish(stub string, words []string, script string) (jobs.Wish, error) {
	var w jobs.Wish
	for _, word := range words {
		if err := jobs.CheckText("an argument", strings.NewReplacer("\n", "", "\t", "").Replace(word)); err != nil {
			return w, usage("an argument holds a control character other than a line break or a tab")
		}
	}
	if stub == sbatch && script != "" {
		if err := directives(&w, script); err != nil {
			return w, err
		}
		w.Command.Shell = "" // of a wrap in the script
	}
	rest, err := read(stub, &w, words)
	if err != nil {
		return w, err
	}
	switch stub {
	case squeue:
		w.Verb = jobs.WishList
		if len(rest) > 0 {
			return w, usage("unexpected argument %.100q", rest[0])
		}
	case scancel:
		w.Verb, w.Jobs = jobs.WishCancel, rest
		if len(rest) == 0 {
			return w, usage("no job is named")
		}
	case srun:
		w.Command = jobs.Command{Argv: rest}
		w.Waits, w.Shows = true, true
		if len(rest) == 0 {
			return w, usage("no command is given to execute")
		}
	case sbatch:
		return w, batch(&w, rest, script)
	}
	return w, nil
}

// runScript has a command run what comes on its standard input, as a program of its own.
const runScript = `umask 077; f=$(mktemp "${TMPDIR:-/tmp}/script.XXXXXX") && cat >"$f" && chmod 700 "$f" && exec "$f" "$@" </dev/null`

// batch makes the command of a script, or leaves that of --wrap.
func batch(w *jobs.Wish, rest []string, script string) error {
	if w.Command.Shell != "" {
		if len(rest) > 0 || script != "" {
			return usage("script arguments are not permitted with --wrap option")
		}
		return nil
	}
	switch {
	case script == "":
		return usage("batch script is empty")
	case !strings.HasPrefix(script, "#!"):
		return usage("this does not look like a batch script: the first line must start with #! followed by the path to an interpreter")
	case strings.ContainsRune(script, 0):
		return usage("the batch script contains a NULL character")
	case strings.Contains(script, "\r\n"):
		return usage(`the batch script contains DOS line breaks (\r\n) instead of expected UNIX line breaks (\n)`)
	}
	name := "script"
	if len(rest) > 0 {
		name, rest = path.Base(rest[0]), rest[1:]
	}
	if w.Name == "" && jobs.CheckText("", name) == nil {
		w.Name = name
	}
	w.Script = script
	w.Command = jobs.Command{Argv: append([]string{"/bin/sh", "-c", runScript, sbatch}, rest...)}
	return nil
}

// read takes the options over, and returns what stands behind them.
func read(stub string, w *jobs.Wish, words []string) ([]string, error) {
	for len(words) > 0 {
		word := words[0]
		if word == "--" {
			return words[1:], nil
		}
		if len(word) < 2 || word[0] != '-' {
			return words, nil
		}
		words = words[1:]
		name, value, given := word[:2], strings.TrimPrefix(word[2:], "="), len(word) > 2
		if name == "--" {
			name, value, given = strings.Cut(word, "=")
		}
		o := find(stub, name)
		if o == nil {
			return nil, refused(stub, name)
		}
		switch {
		case o.flag && given && strings.HasPrefix(word, "--"):
			return nil, usage("option --%s takes no value", o.long)
		case o.flag && given: // several short ones in a word
			words = append([]string{"-" + value}, words...)
			value = ""
		case !o.flag && !given && len(words) == 0:
			return nil, usage("option --%s requires an argument", o.long)
		case !o.flag && !given:
			value, words = words[0], words[1:]
		}
		if !o.flag && o.long != "wrap" && (value == "" || jobs.CheckText("", value) != nil) {
			return nil, usage("option --%s has a value that is empty or holds a control character", o.long)
		}
		if err := o.set(w, value); err != nil {
			return nil, usage("option --%s: %v", o.long, err)
		}
	}
	return nil, nil
}

// find returns the option that a word such as "--time" or "-t" names.
func find(stub, name string) *option {
	for i := range table {
		if o := &table[i]; slices.Contains(o.of, stub) && ("--"+o.long == name || "-"+o.short == name) {
			return o
		}
	}
	return nil
}

// refused says why a task may not use an option.
func refused(stub, shown string) error {
	if long := options.Long(shown); long != "" {
		shown = "--" + long
	}
	name := strings.TrimPrefix(shown, "--")
	switch why := options.Why(name); {
	case why != "":
		return usage("option %.60q is not available inside a task: %s", shown, why)
	case name != shown && slices.ContainsFunc(table, func(o option) bool { return slices.Contains(o.of, stub) && strings.HasPrefix(o.long, name) }):
		return usage("option %.60q is an abbreviation: write its name in full", shown)
	}
	return usage("option %.60q is not available inside a task", shown)
}

// marker begins a line of a script that has options.
const marker = "#SBATCH"

// directives reads those lines, up to the first command.
func directives(w *jobs.Wish, script string) error {
	n := 0
	for line := range strings.Lines(script) {
		n++
		line = strings.TrimRight(line, "\n")
		rest, is := strings.CutPrefix(line, marker)
		switch text := strings.TrimSpace(line); {
		case !is && text != "" && text[0] != '#':
			return nil
		case !is || rest != "" && rest[0] != ' ' && rest[0] != '\t':
			continue
		}
		words, err := split(rest)
		if err == nil {
			var left []string
			left, err = read(sbatch, w, words)
			if err == nil && len(left) > 0 {
				err = usage("%.60q is no option", left[0])
			}
		}
		if err != nil {
			return usage("line %d of the script: %v", n, err)
		}
	}
	return nil
}

// split reads the words of such a line: both kinds of quotes, a backslash before any
// character, and a comment behind them.
func split(line string) ([]string, error) {
	var words []string
	var b strings.Builder
	in, quote := false, rune(0)
	next := false
	for _, r := range line {
		switch {
		case next:
			b.WriteRune(r)
			next = false
		case r == '\\':
			in, next = true, true
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			b.WriteRune(r)
		case r == '"' || r == '\'':
			in, quote = true, r
		case r == ' ' || r == '\t':
			if in {
				words = append(words, b.String())
				b.Reset()
			}
			in = false
		case r == '#' && !in:
			return words, nil
		case r < ' ' || r == 0x7f:
			return nil, usage("it holds a control character")
		default:
			in = true
			b.WriteRune(r)
		}
	}
	if quote != 0 || next {
		return nil, usage("a quote is not closed")
	}
	if in {
		words = append(words, b.String())
	}
	return words, nil
}

func usage(format string, args ...any) error {
	return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf(format, args...)}
}

func count(v string) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < 1 || n > 1<<20 {
		return 0, fmt.Errorf("%.40q is no number from 1", v)
	}
	return n, nil
}

func one(_ *jobs.Wish, v string) error {
	if v != "1" {
		return fmt.Errorf("%.40q: a job of a task has one task on one node", v)
	}
	return nil
}

func setTime(w *jobs.Wish, v string) error {
	d, ok := site.Limit(v)
	if !ok || d > 366*24*time.Hour {
		return fmt.Errorf("%.40q is no time limit: minutes, MM:SS, HH:MM:SS or D-HH:MM:SS, of at most a year", v)
	}
	w.Resources.Time = d
	return nil
}

// setMemory reads a size, in megabytes where it has no unit.
func setMemory(w *jobs.Wish, v string) error {
	number, unit := strings.TrimSuffix(strings.ToUpper(v), "B"), jobs.MiB
	for suffix, u := range map[string]jobs.Bytes{"K": 1 << 10, "M": jobs.MiB, "G": jobs.GiB, "T": 1 << 40} {
		if cut, is := strings.CutSuffix(number, suffix); is {
			number, unit = cut, u
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 1 || jobs.Bytes(n) > (1<<50)/unit {
		return fmt.Errorf("%.40q is no size, such as 4G", v)
	}
	w.Resources.Memory = jobs.Bytes(n) * unit
	return nil
}

var needs = map[string]jobs.Need{"afterok": jobs.NeedOK, "afterany": jobs.NeedAny, "afternotok": jobs.NeedNotOK}

// setAfter reads afterok:1:2,afterany:3.
func setAfter(w *jobs.Wish, v string) error {
	w.After = nil
	for part := range strings.SplitSeq(v, ",") {
		kind, list, _ := strings.Cut(part, ":")
		need, ok := needs[kind]
		if !ok || list == "" {
			return fmt.Errorf("%.60q is none of afterok:JOB, afterany:JOB and afternotok:JOB", part)
		}
		for job := range strings.SplitSeq(list, ":") {
			w.After = append(w.After, jobs.ChildAfter{Child: job, Need: need})
		}
	}
	return nil
}

// maxFile bounds the path of an output file, as the kernel does.
const maxFile = 4096

// below takes the path of an output file, which is one of the task's own tree.
func below(v string) (string, error) {
	if v == "/dev/null" {
		return "", nil
	}
	if len(v) > maxFile {
		return "", fmt.Errorf("%.100q is longer than %d bytes", v, maxFile)
	}
	if path.IsAbs(v) || slices.Contains(strings.Split(v, "/"), "..") {
		return "", fmt.Errorf("%.100q is not below the directory in which the task asks", v)
	}
	return v, nil
}

// Output implements [jobs.Stubs].
func (Slurm) Output(pattern string, c *jobs.Child) (string, error) {
	id, name := strconv.Itoa(c.Number), strings.ReplaceAll(c.Name, "/", "_")
	file, err := below(strings.NewReplacer("%%", "%", "%j", id, "%J", id, "%A", id, "%x", name).Replace(pattern))
	if err != nil {
		return "", usage("%v", err)
	}
	return file, nil
}

// inherited are the options that say where a job counts and stands in the queue. Every
// other may ask for more than a child counts, as --exclusive, --gres and --mem-per-cpu do.
var inherited = []string{"reservation", "wckey", "exclude", "nice"}

// Inherited implements [jobs.Stubs].
func (Slurm) Inherited(words []string) (out []string) {
	for _, w := range words {
		if name, _, ok := options.Split(w); ok && slices.Contains(inherited, name) {
			out = append(out, w)
		}
	}
	return out
}

// Says implements [jobs.Stubs].
func (Slurm) Says(stub string, number int, bare bool, err error) (stdout, stderr string) {
	switch {
	case err != nil:
		stderr = stub + ": error: " + jobs.Printable(err.Error()) + "\n"
		if h := jobs.HintOf(err); h != "" {
			stderr += stub + ": error: " + jobs.Printable(h) + "\n"
		}
		return "", stderr
	case bare:
		return strconv.Itoa(number) + "\n", ""
	case stub == sbatch:
		return fmt.Sprintf("Submitted batch job %d\n", number), ""
	}
	return "", ""
}

// states are Slurm's short words for states.
var states = map[jobs.State]string{
	jobs.StatePending: "PD", jobs.StateRunning: "R", jobs.StateCompleted: "CD", jobs.StateFailed: "F", jobs.StateCancelled: "CA",
	jobs.StateTimeout: "TO", jobs.StateOutOfMemory: "OOM",
}

// Queue implements [jobs.Stubs].
func (Slurm) Queue(rows []jobs.ChildRow, bare bool) string {
	var b strings.Builder
	if !bare {
		b.WriteString("             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n")
	}
	for _, r := range rows {
		st := states[r.State]
		if st == "" {
			st = "NF"
		}
		t := r.Ran.Truncate(time.Second)
		fmt.Fprintf(&b, "%18d %9.9s %8.8s %8.8s %2s %7d:%02d %6d %s\n", r.Number, cmp.Or(r.Partition, "n/a"),
			r.Name, r.User, st, int(t.Minutes()), int(t.Seconds())%60, 1, r.Node)
	}
	return b.String()
}
