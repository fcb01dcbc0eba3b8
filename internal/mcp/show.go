package mcp

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"berth/jobs"
)

// wrapAt is how many columns a line has that a person reads: it is shorter than a terminal
// is wide, so that no line goes on, by itself, where another one would begin.
const wrapAt = 78

// inShort are the rows that stand at the end once more: a long text above scrolls away.
var inShort = []string{"scheduler", "cluster", "backend", "host", "containment", "network", "cost"}

// shown is what a person decides on. What the task's own text says stands behind "| ",
// and what goes on in the next line behind "> ": nothing in it looks like a row.
func shown(s *jobs.Spec, t jobs.Task, script string) string {
	var b, short strings.Builder
	for _, r := range rows(s, t) {
		if r[1] == "" {
			continue
		}
		line := row(r[0], r[1])
		b.WriteString(line)
		if slices.Contains(inShort, r[0]) {
			short.WriteString(line)
		}
	}
	part := func(title, text string) {
		if text != "" {
			fmt.Fprintf(&b, "\n--- %s ---\n%s", title, quoted(text))
		}
	}
	part("command", commandText(s.Command))
	for i, c := range s.Done {
		part(fmt.Sprintf("done command %d of %d", i+1, len(s.Done)), commandText(c))
	}
	if s.Resume != nil {
		part("hook at each checkpoint", commandText(s.Resume.Hook))
	}
	part("prompt", t.Prompt)
	part("job script", script)
	fmt.Fprintf(&b, "\n--- in short ---\n%s", short.String())
	return b.String()
}

// labelWidth is that of the first column.
const labelWidth = 13

// row is a label and its value, which goes on below itself.
func row(label, value string) string {
	var b strings.Builder
	for _, line := range wrapped(jobs.Escaped(value), wrapAt-labelWidth) {
		fmt.Fprintf(&b, "%-*s%s\n", labelWidth, label, line)
		label = ""
	}
	return b.String()
}

// quoted is a text in lines, each of which is marked.
func quoted(text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		mark := "| "
		for _, part := range wrapped(jobs.Escaped(strings.ReplaceAll(line, "\t", "    ")), wrapAt-len(mark)) {
			b.WriteString(mark + part + "\n")
			mark = "> "
		}
	}
	return b.String()
}

// wrapped are the parts of a line, which end behind a space where one is near.
func wrapped(line string, width int) (out []string) {
	from, n := 0, 0
	for i, r := range line {
		if n+columns(r) > width {
			end := i
			if blank := strings.LastIndexByte(line[from:i], ' '); blank > width/2 {
				end = from + blank + 1
			}
			out, from, n = append(out, line[from:end]), end, 0
			for _, r := range line[end:i] {
				n += columns(r)
			}
		}
		n += columns(r)
	}
	return append(out, line[from:])
}

// columns is how wide a character is at most.
func columns(r rune) int {
	if r < 0x80 {
		return 1
	}
	return 2
}

// fate is what becomes of a place.
func fate(f jobs.Fate) string {
	var out []string
	if f.PerTask {
		out = append(out, "it is of this task alone")
	}
	if f.Destroy {
		out = append(out, "it is destroyed")
	}
	if f.DestroyAfter > 0 {
		out = append(out, "at the latest after "+f.DestroyAfter.String())
	}
	return strings.Join(out, ", ")
}

// rows are what a job is, where it runs, what it is given, and what it may cost.
func rows(s *jobs.Spec, t jobs.Task) [][2]string {
	var binds, keys, after []string
	for _, m := range s.Mounts {
		mode := "read-only"
		if m.Writable {
			mode = "writable"
		}
		binds = append(binds, m.Source+" at "+m.Destination+" ("+mode+")")
	}
	for _, c := range s.Credentials {
		keys = append(keys, c.Name+" for "+c.Upstream)
	}
	for _, a := range s.After {
		after = append(after, a.String())
	}
	level := s.Containment()
	if s.Level == jobs.LevelNone {
		level += ": IT HAS YOUR OWN RIGHTS"
	}
	out := [][2]string{
		{"task", s.Name}, {"file", t.File}, {"template", t.Template},
		{"scheduler", s.Scheduler}, {"cluster", host(s.Login)}, {"target", s.Target}, {"backend", s.Backend}, {"host", host(s.SSH)},
		{"containment", level},
		{"image", named("", s.Image, "from", s.ImageRef, "digest", s.ImageDigest, "SHA-256", s.ImageSum,
			"directory", s.ImageDir, "copy of", s.ImageFrom)},
		{"network", reach(s.Reaches())}, {"by phase", phases(s.Network.Phases)}, {"afterwards", fate(s.Fate)},
	}
	if a := s.Agent; a != nil {
		own := ""
		if a.OwnSandbox != nil {
			own = strconv.FormatBool(*a.OwnSandbox)
		}
		out = append(out, [2]string{"agent", named("", a.Name, "model", a.Model, "from", a.From, "own sandbox", own)})
	}
	for _, w := range s.Workspaces() {
		if w.Name != "" {
			out = append(out, [2]string{"workspace", w.Name})
		}
		out = append(out, [][2]string{
			{"repository", w.Repo}, {"from commit", named("", w.Base, "of", w.BaseRef, "read-only", w.ReadOnly)}, {"branch", w.Branch},
			{"scope", strings.Join(w.Scope, " ")},
		}...)
	}
	return append(out, [][2]string{
		{"binds", strings.Join(binds, ", ")}, {"variables", strings.Join(s.Env, " ")}, {"from you", strings.Join(s.EnvNames, " ")},
		{"sockets", strings.Join(s.HostSockets, " ")}, {"credentials", strings.Join(keys, ", ")},
		{"overlay", named("", s.Overlay.Name, "keep", s.Overlay.Keep, "snapshot", s.Overlay.Snapshot, "size", s.Overlay.Size)},
		{"place", named("hostname", s.Hostname, "directory", s.Dir, "scratch", s.Scratch, "stage", s.Stage, "GPU", s.GPU, "fakeroot", s.Fakeroot)},
		{"after", strings.Join(after, " ")}, {"options", options(s)}, {"resources", resources(s.Resources)},
		{"tried again", again(s.Retry)}, {"resumed", resumed(s.Resume)}, {"asks berth", asks(s.Submit)},
		{"done over", s.DoneOver}, {"labels", strings.Join(s.Labels, " ")}, {"ports", strings.Join(words(s.Ports), " ")},
		{"artifacts", strings.Join(s.Artifacts, " ")},
		{"results", results(s.Results)}, {"caps", caps(s.Caps)}, {"cost", cost(s)},
	}...)
}

// host is how a machine is reached.
func host(h *jobs.SSHSpec) string {
	if h == nil {
		return ""
	}
	return named("", h.Host, "user", h.User, "port", h.Port, "key", h.Key, "options", strings.Join(h.Options, " "))
}

// reach is what a job can reach.
func reach(n jobs.Network) string {
	words := append([]string{cmp.Or(n.Mode, jobs.NetworkOpen)}, n.List()...)
	if len(n.Deny) > 0 {
		words = append(append(words, "but not"), n.Deny...)
	}
	if len(n.Opaque) > 0 {
		words = append(append(words, "not looked at"), n.Opaque...)
	}
	if n.Learn {
		words = append(words, "and every other name, which is recorded")
	}
	if more := named("transparent", n.Transparent, "via", n.Via, "most to a name", n.MaxUp,
		"most from a name", n.MaxDown, "longest connection", n.MaxTime); more != "" {
		words = append(words, "("+more+")")
	}
	return strings.Join(words, " ")
}

// phases are the networks of their own that parts of an attempt have.
func phases(p jobs.NetworkPhases) string {
	var out []string
	for i, n := range []jobs.NetworkPhase{p.Done, p.Verify, p.Build} {
		if reflect.ValueOf(n).IsZero() {
			continue
		}
		text := reach(jobs.Network{Mode: cmp.Or(n.Mode, "as above"), Allow: n.Allow, Deny: n.Deny, Opaque: n.Opaque})
		out = append(out, []string{"done commands", "verifiers", "build"}[i]+": "+text)
	}
	return strings.Join(out, "; ")
}

// options are what single schedulers and backends alone understand.
func options(s *jobs.Spec) string {
	out := slices.Clone(s.Slurm.Extra)
	add := func(text string) {
		if text != "" {
			out = append(out, text)
		}
	}
	add(named("partition", s.Slurm.Partition, "account", s.Slurm.Account, "qos", s.Slurm.QOS, "constraint", s.Slurm.Constraint, "mpi", s.Slurm.MPI))
	if d := s.Docker; d != nil {
		out = append(out, d.ExtraArgs...)
		for _, v := range d.Volumes {
			out = append(out, "--volume "+v)
		}
		add(named("program", d.Program, "user", d.User, "pids", d.Pids, "shm", d.Shm))
	}
	if x := s.External; x != nil {
		add(named("program", strings.Join(x.Program, " "), "snapshot", x.From, "life", x.Life))
		for _, k := range slices.Sorted(maps.Keys(x.Options)) {
			out = append(out, k+"="+x.Options[k])
		}
	}
	return strings.Join(out, " ")
}

func commandText(c jobs.Command) string {
	if c.Shell != "" {
		return c.Shell
	}
	words := make([]string, len(c.Argv))
	for i, w := range c.Argv {
		words[i] = strconv.Quote(w)
	}
	return strings.Join(words, " ")
}

// named joins names and values, and leaves out what is zero.
func named(list ...any) string {
	var out []string
	for i := 0; i+1 < len(list); i += 2 {
		if !reflect.ValueOf(list[i+1]).IsZero() {
			out = append(out, strings.TrimSpace(fmt.Sprint(list[i])+" "+fmt.Sprint(list[i+1])))
		}
	}
	return strings.Join(out, ", ")
}

// words are numbers as words.
func words(numbers []int) []string {
	out := make([]string, len(numbers))
	for i, n := range numbers {
		out[i] = strconv.Itoa(n)
	}
	return out
}

func resources(r jobs.Resources) string {
	return named("cpus", r.CPUs, "memory", r.Memory, "gpus", r.GPUs, "nodes", r.Nodes, "ntasks", r.Tasks, "disk", r.Disk, "time", r.Time)
}

// again is how often a job is tried again, and after what.
func again(r *jobs.Retry) string {
	if r == nil {
		return ""
	}
	return named("attempts", r.Attempts, "task", r.Task, "memory", r.Memory, "time", r.Time, "node", r.Node, "infrastructure", r.Infra,
		"codes", strings.Join(words(r.Codes), " "), "core_hours", r.CoreHours, "max_memory", r.MaxMemory, "max_time", r.MaxTime)
}

// resumed is how often a job goes on when its time is up.
func resumed(r *jobs.Resume) string {
	if r == nil {
		return ""
	}
	return named("attempts", r.Attempts, "before", r.Before, "every", r.Every, "min", r.Min, "core_hours", r.CoreHours)
}

// asks is what the task may have berth do.
func asks(s *jobs.Submit) string {
	if s == nil {
		return ""
	}
	if !s.Jobs() {
		return "no jobs"
	}
	text := s.Bounds()
	for _, i := range s.Images {
		text += "; image " +
			named("", i.Name, "is", i.Image, "from", i.ImageRef, "digest", i.ImageDigest, "SHA-256", i.ImageSum, "directory", i.ImageDir)
	}
	return text
}

func results(r jobs.ResultLimits) string {
	return named("artifact_file", r.ArtifactFile, "artifact_size", r.ArtifactSize, "artifact_files", r.ArtifactFiles,
		"branch_file", r.BranchFile, "branch_size", r.BranchSize, "branch_files", r.BranchFiles)
}

func caps(c jobs.Caps) string {
	usd := ""
	if c.USD > 0 {
		usd = fmt.Sprintf("%.2f USD", float64(c.USD))
	}
	return named("max_usd", usd, "max_tokens", c.Tokens, "max_requests", c.Requests, "max_turns", c.Turns,
		"max_wall", c.Wall, "max_idle", c.Idle, "max_output", c.Output,
		"models", strings.Join(c.Models, " "), "server_tools", strings.Join(c.Tools, " "))
}

// cost is the most that a job may use: of a cluster by what it asks for, of models by its
// caps, and what jobs of its own may use beside.
func cost(s *jobs.Spec) string {
	attempts, each, more := 1, s.Resources.Time, ""
	if r := s.Retry; r != nil {
		attempts, each = max(1, r.Attempts), max(each, r.MaxTime)
	}
	if r := s.Resume; r != nil {
		attempts += max(0, r.Attempts-1)
	}
	if attempts = min(attempts, jobs.MostAttempts); attempts > 1 {
		more = fmt.Sprintf(" in %d attempts", attempts)
		if s.Clustered() {
			more += ", and those that are preempted"
		}
	}
	if r := s.Retry; r != nil && r.Time > 0 && r.MaxTime == 0 {
		more += ", and more where an attempt is tried again with more time"
	}
	out := []string{"core-hours without a bound: it asks for no time limit"}
	if hours := each.Hours() * float64(attempts); s.Resources.Time > 0 {
		out[0] = fmt.Sprintf("up to %.2f core-hours", hours*float64(max(1, s.Resources.Cores())))
		if g := s.Resources.GPUs; g != "" {
			out[0] += fmt.Sprintf(", GPUs %s for %.2f hours", g, hours)
		}
		out[0] += more
	}
	if slices.ContainsFunc(s.Credentials, func(c jobs.Credential) bool { return c.Model() }) {
		text := "models: no cap in US dollars"
		if s.Caps.USD > 0 {
			text = fmt.Sprintf("models: up to %.2f USD%s", float64(s.Caps.USD), more)
		}
		out = append(out, text)
	}
	if c := s.Submit; c.Jobs() {
		text := fmt.Sprintf("beside, up to %d jobs of its own, with %.2f CPU-hours together", c.MaxJobs, c.MaxCPUTime.Hours())
		if c.GPUs > 0 {
			text += fmt.Sprintf(", up to %d GPUs each", c.GPUs)
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}
