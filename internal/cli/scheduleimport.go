package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/config/strict"
	"berth/internal/config/task"
	"berth/internal/queue/schedule"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// importedSchedule is an item of a list of schedules.
type importedSchedule struct {
	line   int
	name   string
	when   string
	zone   string
	prompt string
	model  string
	file   string   // a task file
	words  []string // a command
	dir    string
	repeat int
	over   string
	paused bool
	left   []string // keys that are left out, with their reasons
	why    string   // why it is not imported
}

// Keys of Hermes' that say something berth does otherwise: the schedule is imported, and
// this is said.
var scheduleLeft = map[string]string{
	"deliver": "berth tells you of a job's end by [notify] of the configuration", "origin": "it is Hermes' own",
	"provider": "the task's agent has one", "base_url": "the task's agent has one",
	"reasoning_effort": "it is the agent's", "skills": "they are the agent's", "skill": "they are the agent's", "enabled_toolsets": "they are the agent's",
	"continuity": "each run is a job of its own",
}

// Keys without which a task would not be the same: the schedule is not imported.
var scheduleNeeds = map[string]string{
	"context_from": "it takes the output of another schedule: a task that runs after another is berth submit --after",
}

// What Hermes records of its own runs, and names of its own: nothing is lost with it.
var scheduleOwn = strings.Fields("id created_at updated_at next_run_at last_run_at " +
	"last_status last_error last_delivery_error state paused_at paused_reason schedule_display display completed")

func (a *app) scheduleImportCmd() *cobra.Command {
	var f taskFlags
	var o scheduleFlags
	var agent string
	var dry bool
	c := &cobra.Command{
		Use: "import [flags] FILE", Short: "take over schedules from a YAML list, such as Hermes has",
		Long: `Take over the schedules of a YAML file with a list "schedules", or of the jobs.json of
Hermes' cron. What becomes of each, and which of its keys are left out, is said.

    schedules:
      - name: nightly
        schedule: every day at 3am      # or cron, "in 30m", "every 2h", an ISO time
        prompt: Read the logs of today and write a summary.
        workdir: /home/ada/project

In place of prompt there may be file (a task file) or command. Of a prompt a task file is
made, for the agent of --agent, on a clone of workdir where that is a git repository; the
flags of berth submit say where it runs, for all of them. One whose name is taken is left
out, so that a file can be imported again.
` + exitHelp + `0 all are there, 2 the file is wrong, 3 it does not exist, 11 some could not
be taken over.`,
		Example: `  berth schedule import --dry-run ~/.hermes/cron/jobs.json
  berth schedule import --agent claude --image agents.sif schedules.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			list, err := readSchedules(args[0])
			if err != nil {
				return err
			}
			e, d, err := a.schedules()
			if err != nil {
				return err
			}
			flags, err := submitWords(new(app).scheduleImportCmd(), a.args)
			if err != nil {
				return err
			}
			flags = slices.DeleteFunc(flags[:len(flags)-1],
				func(w string) bool { return strings.HasPrefix(w, "--dry-run=") || strings.HasPrefix(w, "--agent=") })
			code, rows, out := error(nil), [][]string{}, []any{}
			for _, i := range list {
				result, err := a.importSchedule(d, &o, i, agent, flags, dry)
				if err != nil {
					result, code = "not imported", exitCode(jobs.CodePartial)
					i.left = append([]string{err.Error()}, i.left...)
				}
				rows = append(rows, []string{i.name, result, dash(strings.Join(i.left, "; "))})
				out = append(out, map[string]any{"name": i.name, "result": result, "remarks": append([]string{}, i.left...)})
			}
			if a.json {
				err = a.printJSON(map[string]any{"schedules": out})
			} else {
				err = a.table([]string{"NAME", "RESULT", "REMARKS"}, rows)
			}
			if !dry && err == nil {
				err = a.hasten(cmd.Context(), e)
			}
			return cmp.Or(err, code)
		},
	}
	o.addHow(c.Flags())
	f.add(c)
	c.Flags().StringVar(&agent, "agent", "", "the agent `NAME` works on prompts (berth agent ls)")
	c.Flags().BoolVar(&dry, "dry-run", false, "say what would be done, and do nothing")
	a.jsonFlag(c)
	return c
}

// importSchedule records one schedule.
func (a *app) importSchedule(d schedule.Dir, o *scheduleFlags, i *importedSchedule, agent string, flags []string, dry bool) (string, error) {
	if i.why != "" {
		return "", errors.New(i.why)
	}
	how := *o
	how.zone, how.overlap, how.repeat = cmp.Or(i.zone, o.zone), cmp.Or(i.over, o.overlap), max(i.repeat, o.repeat)
	s, err := how.schedule(a)
	if err == nil {
		err = schedule.Set(&s, i.when)
	}
	if err != nil {
		return "", err
	}
	s.Name, s.Dir = i.name, cmp.Or(i.dir, s.Dir)
	if fi, err := os.Stat(s.Dir); err != nil || !fi.IsDir() {
		return "", fmt.Errorf("the directory %s does not exist", s.Dir)
	}
	var text []byte
	s.Words = slices.Clone(flags)
	switch {
	case i.prompt != "":
		if agent == "" {
			return "", errors.New("a prompt is for an agent: --agent NAME, one of berth agent ls")
		}
		text = i.task(agent, s.Dir)
		if _, err := task.Parse(s.Name+".md", text); err != nil {
			return "", err
		}
	case i.file != "":
		path := i.file
		if !filepath.IsAbs(path) {
			path = filepath.Join(s.Dir, path)
		}
		if _, err := task.Load(path); err != nil {
			return "", err
		}
		s.Words = append(s.Words, path)
	default:
		s.Words = append(append(s.Words, "--name="+i.name, "--"), i.words...)
	}
	there, err := d.Find(s.Name)
	var kept []byte
	if err == nil {
		if kept, err = there.Task(); err != nil {
			return "", err
		}
	}
	same := func() bool {
		then := s // as it would have been made when the other one was
		then.Created = there.Created
		if cmp.Or(i.zone, o.zone) == "" {
			then.Zone = there.Zone // it is that of wherever the user was
		}
		if schedule.Set(&then, i.when) != nil {
			return false
		}
		return there.Cron == then.Cron && there.Every == then.Every && there.At.Equal(then.At) && there.Zone == then.Zone &&
			there.Overlap == then.Overlap && there.Repeat == then.Repeat && there.Dir == then.Dir &&
			bytes.Equal(kept, text) && (text != nil || endsWith(there.Words, s.Words[len(flags):])) // the text of a prompt, and else the words
	}
	switch {
	case err == nil && same():
		return "there already", nil
	case err == nil:
		return "", fmt.Errorf("there is another schedule of that name: berth schedule show %[1]s; berth schedule rm %[1]s", s.Name)
	case jobs.KindOf(err) != jobs.KindNotFound:
		return "", err
	case dry:
		return "would be added", nil
	}
	if err := d.Create(s, text); err != nil {
		return "", err
	}
	if !i.paused {
		return "added", nil
	}
	made, err := d.Find(s.Name)
	if err == nil {
		_, err = made.SetPaused(true, a.now())
	}
	return "added, paused", err
}

// endsWith reports whether words end so: what comes before are flags of when it was added.
func endsWith(words, end []string) bool {
	return len(words) >= len(end) && slices.Equal(words[len(words)-len(end):], end)
}

// task is the text of a task file for a prompt.
func (i *importedSchedule) task(agent, dir string) []byte {
	text := fmt.Sprintf("+++\nname = %q\n\n[agent]\nuse = %q\n", i.name, agent)
	if i.model != "" {
		text += fmt.Sprintf("model = %q\n", i.model)
	}
	if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil && i.dir != "" {
		text += fmt.Sprintf("\n[workspace]\nrepo = %q\n", dir)
	}
	return []byte(text + "+++\n\n" + strings.TrimSpace(i.prompt) + "\n")
}

// readSchedules reads a list of schedules: "schedules", or "jobs" as Hermes calls it.
func readSchedules(file string) (list []*importedSchedule, err error) {
	data, err := strict.ReadFile(file, "the file of schedules")
	if err != nil {
		return nil, err
	}
	doc, err := strict.DecodeYAML(file, data) // JSON is YAML, too
	if err != nil {
		return nil, err
	}
	root := doc.Root()
	items := root.Take("schedules")
	if jobs := root.Take("jobs"); !items.Given() {
		items = jobs
	}
	for _, name := range root.Names() {
		root.Take(name)
	}
	if !items.Given() {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: file + ": there is no list \"schedules\"", Hint: "berth schedule import --help shows one"}
	}
	names := map[string]bool{}
	for n, v := range items.Items("schedules") {
		if !v.Is(strict.Table) {
			v.MustBe("a mapping")
			continue
		}
		i := readSchedule(v)
		if i.name = jobs.Slug(cmp.Or(i.name, fmt.Sprintf("schedule-%d", n+1))); names[i.name] {
			i.name = fmt.Sprintf("%s-%d", i.name, n+1)
		}
		names[i.name] = true
		list = append(list, i)
	}
	return list, doc.Err()
}

func readSchedule(v strict.Value) *importedSchedule {
	i := &importedSchedule{line: v.Line()}
	t := v.Table()
	script, bare := "", false
	for _, key := range t.Names() {
		v := t.Take(key)
		if v.Is(strict.Null) || slices.Contains(scheduleOwn, key) {
			continue
		}
		switch key {
		case "name":
			i.name = v.Text()
		case "schedule", "cron", "when":
			i.when = whenOf(v)
		case "every":
			i.when = "every " + v.Source()
		case "at", "in":
			if i.when = v.Source(); key == "in" {
				i.when = "in " + i.when
			}
		case "zone", "timezone", "tz":
			i.zone = v.Text()
		case "model":
			i.model = v.Text()
		case "prompt", "task":
			i.prompt = v.Script()
		case "file", "task_file":
			i.file = v.Text()
		case "command":
			i.words = wordsOf(v)
		case "script":
			script = v.Script()
		case "no_agent":
			bare = v.Bool()
		case "workdir", "dir", "cwd":
			i.dir = v.Text()
		case "repeat":
			i.repeat = repeatOf(v)
		case "overlap", "concurrencyPolicy":
			i.over = strings.ToLower(v.Text())
		case "paused":
			i.paused = i.paused || v.Bool()
		case "enabled":
			i.paused = i.paused || !v.Bool()
		default:
			switch why := scheduleNeeds[key]; {
			case empty(v):
			case why != "":
				i.why = key + ": " + why
			default:
				i.left = append(i.left, key+" is left out: "+cmp.Or(scheduleLeft[key], "berth has no such key"))
			}
		}
	}
	switch {
	case script != "" && bare:
		i.words, i.prompt = []string{script}, ""
	case script != "":
		i.why = "script: it decides before each run whether the agent is woken; a task with a done command, or a script that submits, does that"
	case i.prompt == "" && i.file == "" && len(i.words) == 0 && i.why == "":
		i.why = "there is no prompt, file or command"
	}
	if i.when == "" {
		i.why = cmp.Or(i.why, "it says no times: schedule")
	}
	return i
}

// whenOf reads text, or what Hermes records of a schedule.
func whenOf(v strict.Value) string {
	if !v.Is(strict.Table) {
		return v.Text()
	}
	t := v.Table()
	kind, parts := "", map[string]string{}
	for _, name := range t.Names() {
		item := t.Take(name)
		if name == "kind" {
			kind = item.Text()
		} else if !item.Is(strict.Table) && !item.Is(strict.List) {
			parts[name] = item.Source()
		}
	}
	switch kind {
	case "cron":
		return parts["expr"]
	case "interval":
		return "every " + parts["minutes"] + "m"
	case "once":
		return cmp.Or(parts["run_at"], parts["at"])
	}
	return cmp.Or(parts["expr"], parts["display"])
}

func repeatOf(v strict.Value) (n int) {
	if !v.Is(strict.Table) {
		return v.Count(1 << 20)
	}
	t := v.Table()
	for _, name := range t.Names() {
		if item := t.Take(name); name == "times" && !item.Is(strict.Null) {
			n = item.Count(1 << 20)
		}
	}
	return n
}

func wordsOf(v strict.Value) []string {
	if v.Is(strict.List) {
		return v.Texts("words")
	}
	if s := v.Script(); s != "" {
		return []string{s}
	}
	return nil
}

// empty reports whether a value says nothing.
func empty(v strict.Value) bool {
	switch v.Kind() {
	case strict.List:
		return len(v.Items("values")) == 0
	case strict.Table:
		t := v.Table()
		for _, name := range t.Names() {
			t.Take(name)
		}
		return len(t.Names()) == 0
	case strict.String, strict.Bool, strict.Null, strict.Int, strict.Number, strict.Date:
	}
	return v.Source() == "" || v.Source() == "false"
}
