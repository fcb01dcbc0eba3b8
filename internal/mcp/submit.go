package mcp

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/engine"
	"berth/internal/config/task"
	"berth/jobs"
)

// Label is on each job that was submitted by a client of this protocol.
const Label = "mcp"

// keyPrefix keeps the keys of clients apart from those of people and their scripts.
const keyPrefix = "mcp/"

// wrapAt is how long a line is that a person reads, in characters: nothing stands far to
// the right.
const wrapAt = 150

// A Submitter makes jobs of requests.
type Submitter struct {
	Engine *engine.Engine
	// Settle puts into a task what the configuration says and the task does not.
	Settle func(t *jobs.Task) (engine.Choice, []string, error)
}

// A Proposal is what a request would submit, as a person reads it.
type Proposal struct {
	Text  string // lines without control characters
	Level jobs.Level
	task  jobs.Task
	c     engine.Choice
}

// Digest is the SHA-256 of what is shown.
func (p *Proposal) Digest() string {
	sum := sha256.Sum256([]byte(p.Text))
	return hex.EncodeToString(sum[:])
}

// Propose plans a request, and submits nothing.
func (s *Submitter) Propose(ctx context.Context, r *Request) (*Proposal, error) {
	t, err := task.Parse(r.File, []byte(r.Text))
	if err != nil {
		return nil, err
	}
	if r.Given {
		t.File = r.File
	}
	c, notes, err := s.Settle(&t)
	if err != nil {
		return nil, err
	}
	t.Labels = append(t.Labels, Label)
	spec, err := s.Engine.Plan(ctx, t, c, false)
	if err != nil {
		return nil, err
	}
	p := &Proposal{Level: spec.Level, task: t, c: c}
	p.Text, err = s.show(ctx, spec, t, notes)
	return p, err
}

// Made is the job of a request; nil is that there is none.
func (s *Submitter) Made(r *Request) (*jobs.Record, error) {
	if r.Answer == nil || !r.Answer.Confirmed {
		return nil, nil //nolint:nilnil // there is none, and nothing is wrong
	}
	return s.Engine.JobOfKey(keyPrefix + r.Key)
}

// Submit submits a proposal. When what it would submit is not what was shown, nothing is
// submitted.
func (s *Submitter) Submit(ctx context.Context, r *Request, p *Proposal) (*jobs.Record, error) {
	rec, _, err := s.Engine.SubmitOnce(ctx, keyPrefix+r.Key, p.task, p.c, func(c engine.Choice) (*jobs.Spec, error) {
		spec, err := s.Engine.Plan(ctx, p.task, c, false)
		if err != nil {
			return nil, err
		}
		text, err := s.show(ctx, spec, p.task, nil)
		if err != nil {
			return nil, err
		}
		if !strings.HasSuffix(p.Text, text) {
			return nil, changed(r)
		}
		return spec, nil
	})
	return rec, err
}

// changed is the error of a request whose job would be another one by now.
func changed(r *Request) error {
	return &jobs.Error{Kind: jobs.KindAgain, Msg: "the job of the request " + r.ID + " is not the one any more that was shown",
		Hint: "berth mcp confirm " + r.ID + " shows it"}
}

// show writes what a person decides on. The job's id, which is another one each time, is
// zeros.
func (s *Submitter) show(ctx context.Context, spec *jobs.Spec, t jobs.Task, notes []string) (string, error) {
	script, err := s.Engine.Render(ctx, spec)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, n := range notes {
		fmt.Fprintf(&b, "note: %s\n", jobs.Printable(n))
	}
	for _, row := range rows(spec, t) {
		if row[1] != "" {
			fmt.Fprintf(&b, "%-12s %s\n", row[0], jobs.Printable(row[1]))
		}
	}
	part := func(title, text string) {
		if text != "" {
			fmt.Fprintf(&b, "\n--- %s ---\n%s", title, readable(text))
		}
	}
	part("command", commandText(spec.Command))
	part("prompt", t.Prompt)
	part("job script", script)
	id := spec.ID
	zeros := strings.NewReplacer("1", "0", "2", "0", "3", "0", "4", "0", "5", "0", "6", "0", "7", "0", "8", "0", "9", "0",
		"a", "0", "b", "0", "c", "0", "d", "0", "e", "0", "f", "0").Replace
	last, shard := id[max(0, len(id)-12):], "/"+id[max(0, len(id)-2):]+"/"
	return strings.NewReplacer(shard+id, "/00/"+zeros(id), id, zeros(id), last, zeros(last), jobs.Short(id), zeros(jobs.Short(id))).Replace(b.String()), nil
}

// readable is a text in lines without control characters, each of a width that a person
// sees whole: nothing stands far to the right.
func readable(text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		line = jobs.Printable(strings.ReplaceAll(line, "\t", "    "))
		for first := true; first || line != ""; first = false {
			part, n := line, 0
			for i := range line {
				if n == wrapAt {
					part = line[:i]
					break
				}
				n++
			}
			if !first {
				b.WriteString("    >> ")
			}
			b.WriteString(part + "\n")
			line = line[len(part):]
		}
	}
	return b.String()
}

// rows are what a job is, where it runs, what it is given, and what it may cost.
func rows(s *jobs.Spec, t jobs.Task) [][2]string {
	var binds, keys []string
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
	var done []string
	for _, c := range s.Done {
		done = append(done, commandText(c))
	}
	level := s.Containment()
	if s.Level == jobs.LevelNone {
		level += ": IT HAS YOUR OWN RIGHTS"
	}
	out := [][2]string{
		{"task", s.Name}, {"file", t.File},
		{"scheduler", s.Scheduler}, {"backend", s.Backend}, {"containment", level}, {"image", s.Image},
		{"network", reach(s)},
	}
	if s.Login != nil {
		out = append(out, [2]string{"cluster", s.Login.Host})
	}
	if s.SSH != nil {
		out = append(out, [2]string{"host", s.SSH.Host})
	}
	if s.Agent != nil {
		out = append(out, [2]string{"agent", strings.TrimSpace(s.Agent.Name + " " + s.Agent.Model)})
	}
	if w := s.Workspace; w != nil {
		out = append(out, [2]string{"repository", w.Repo}, [2]string{"scope", strings.Join(w.Scope, " ")})
	}
	return append(out, [][2]string{
		{"binds", strings.Join(binds, ", ")}, {"variables", strings.Join(s.Env, " ")}, {"from you", strings.Join(s.EnvNames, " ")},
		{"sockets", strings.Join(s.HostSockets, " ")}, {"credentials", strings.Join(keys, ", ")}, {"overlay", s.Overlay.Name}, {"done", strings.Join(done, "; ")},
		{"after", strings.Join(t.After, " ")}, {"options", options(s)}, {"resources", resources(s.Resources)}, {"caps", caps(s.Caps)}, {"cost", cost(s)},
	}...)
}

// reach is what a job can reach.
func reach(s *jobs.Spec) string {
	n := s.Reaches()
	words := append([]string{cmp.Or(n.Mode, jobs.NetworkOpen)}, n.Allow...)
	if len(n.Deny) > 0 {
		words = append(append(words, "but not"), n.Deny...)
	}
	if len(n.Opaque) > 0 {
		words = append(append(words, "not looked at"), n.Opaque...)
	}
	return strings.Join(words, " ")
}

// options are what is passed on to other programs as it is.
func options(s *jobs.Spec) string {
	out := slices.Clone(s.Slurm.Extra)
	if d := s.Docker; d != nil {
		out = append(out, d.ExtraArgs...)
		for _, v := range d.Volumes {
			out = append(out, "--volume "+v)
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
		if v := fmt.Sprint(list[i+1]); v != "0" && v != "" && v != "0s" {
			out = append(out, fmt.Sprint(list[i])+" "+v)
		}
	}
	return strings.Join(out, ", ")
}

func resources(r jobs.Resources) string {
	memory, size := "", ""
	if r.Memory > 0 {
		memory = r.Memory.String()
	}
	if r.Disk > 0 {
		size = r.Disk.String()
	}
	return named("cpus", r.CPUs, "memory", memory, "gpus", r.GPUs, "nodes", r.Nodes, "ntasks", r.Tasks, "disk", size, "time", r.Time)
}

func caps(c jobs.Caps) string {
	usd, output := "", ""
	if c.USD > 0 {
		usd = fmt.Sprintf("%.2f USD", float64(c.USD))
	}
	if c.Output > 0 {
		output = c.Output.String()
	}
	return named("max_usd", usd, "max_tokens", c.Tokens, "max_requests", c.Requests, "max_turns", c.Turns, "max_wall", c.Wall, "max_idle", c.Idle, "max_output", output,
		"models", strings.Join(c.Models, " "), "server_tools", strings.Join(c.Tools, " "))
}

// cost is the most that a job may use: of a cluster by what it asks for, of models by its
// caps.
func cost(s *jobs.Spec) string {
	attempts, each, more := 1, s.Resources.Time, ""
	if r := s.Retry; r != nil {
		attempts, each = max(1, r.Attempts), max(each, r.MaxTime)
		if attempts > 1 {
			more = fmt.Sprintf(" in %d attempts", attempts)
		}
		if r.Time > 0 && r.MaxTime == 0 {
			more += ", and more where an attempt is tried again with more time"
		}
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
	return strings.Join(out, "; ")
}

// textFile is the name that stands in errors of a task that came as a text; relative paths
// in it begin in dir.
func textFile(dir string) string { return filepath.Join(dir, "task") }
