package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/engine"
	"berth/internal/agents/adapters"
	"berth/internal/config"
	"berth/internal/config/strict"
	"berth/internal/config/task"
	"berth/internal/sys/disk"
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) taskCmd() *cobra.Command {
	return group("task",
		`A task file says what is to be done, for how long, and what has to be true at the end
(berth help task-file). berth run FILE runs one.`,
		`  berth task new fix-parser      # asks, and writes tasks/fix-parser.md
  berth task lint tasks/*.md
  berth task ls`, a.taskNewCmd(), a.taskLintCmd(), a.taskLsCmd())
}

func (a *app) taskLintCmd() *cobra.Command {
	var f taskFlags
	var all bool
	c := &cobra.Command{
		Use: "lint FILE...", Short: "find all that is wrong with task files; submit nothing",
		Long: `Find all that is wrong with task files, and what is likely to be: each finding is a line
"FILE:LINE: error: ..." or "FILE:LINE: warning: ...". Nothing is submitted, no scheduler
and no registry is asked, and neither the image nor its program needs to be here.

An error is what berth submit would refuse: an unknown key, with the nearest right one; a
cap that the agent's events cannot measure; a name that the configuration does not have.
A warning is what few mean: no done command, a prompt without a checklist ("Done when"),
an agent with an open network, or without a container, or that nothing ends, a scope
that names files which agents, git or CI obey, what looks like a secret.

Errors that belong to no key of their own have the line of the nearest one.
` + exitHelp + `0 no error (with --strict: and no warning), 2 there are some, 3 a file does
not exist.`,
		Example: `  berth task lint fix.md
  berth task lint --strict tasks/*.md
  berth task lint --json fix.md`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs a task file",
					Hint: "berth task ls lists those of a directory"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, files []string) error {
			cfg, err := a.config(cmd)
			if err != nil {
				return err
			}
			list := make([]lintJSON, 0, len(files))
			errs, warnings := 0, 0
			for _, file := range files {
				data, err := readTaskFile(file)
				if err != nil {
					return err
				}
				l := a.lint(cmd, &f, cfg, file, data)
				n := l.Errors()
				errs, warnings = errs+n, warnings+len(l.Found)-n
				list = append(list, lintJSON{File: file, Errors: n, Findings: append([]strict.Finding{}, l.Found...)})
			}
			if a.json {
				err = a.printJSON(map[string]any{"files": list, "errors": errs, "warnings": warnings})
			} else {
				err = a.printFindings(list)
			}
			if err != nil {
				return err
			}
			if errs > 0 || all && warnings > 0 {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("errors: %d, warnings: %d", errs, warnings)}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&all, "strict", false, "a warning counts as an error")
	f.addWhere(c)
	a.jsonFlag(c)
	return c
}

// lintJSON is what was found in one file.
type lintJSON struct {
	File     string           `json:"file"`
	Errors   int              `json:"errors"`
	Findings []strict.Finding `json:"findings"`
}

func (a *app) printFindings(list []lintJSON) error {
	for _, l := range list {
		for _, f := range l.Findings {
			place, word := l.File, "error"
			if f.Line > 0 {
				place = fmt.Sprintf("%s:%d", l.File, f.Line)
			}
			if f.Warning {
				word = "warning"
			}
			line := jobs.Printable(fmt.Sprintf("%s: %s: %s", place, word, f.Message))
			if f.Hint != "" {
				line += "\n  " + jobs.Printable(f.Hint)
			}
			if _, err := fmt.Fprintln(a.stdout, line); err != nil {
				return err
			}
		}
	}
	return nil
}

func readTaskFile(file string) ([]byte, error) {
	if err := jobs.CheckText("the task file's name", file); err != nil {
		return nil, err
	}
	return strict.ReadFile(file, "task file")
}

// lint finds what is wrong with a task file by itself, with what the configuration says,
// and by a plan that asks no scheduler.
func (a *app) lint(cmd *cobra.Command, f *taskFlags, cfg *config.Config, file string, data []byte) *task.Linted {
	l := task.Lint(file, data)
	if l.Errors() > 0 {
		return l
	}
	t, choice, _, err := f.settle(cmd, l.Task, cfg)
	if err != nil {
		l.Add(false, err.Error(), jobs.HintOf(err))
		return l
	}
	c := t.Caps // each by itself: a plan would say the first alone
	for _, one := range []jobs.Caps{{Turns: c.Turns}, {Requests: c.Requests}, {Tokens: c.Tokens}, {USD: c.USD, Models: c.Models}, {Tools: c.Tools}} {
		if err := one.Measurable(t.Credentials, t.Prices, t.Agent); err != nil {
			l.Add(false, err.Error(), jobs.HintOf(err))
		}
	}
	place := t.Place
	switch spec, err := a.planned(cmd.Context(), t, choice); {
	case err != nil && !slices.ContainsFunc(l.Found, func(f strict.Finding) bool { return f.Message == err.Error() }):
		l.Add(false, err.Error(), jobs.HintOf(err))
	case spec != nil:
		place = spec.Place
	}
	if t.Agent == nil {
		return l
	}
	if len(engine.Checklist(t.Prompt)) == 0 {
		l.Add(true, "the prompt has no checklist, by which agent "+t.Agent.Name+" and whoever reviews its work know what has to be true",
			`end it with a heading "## Done when" and a list: - [ ] TestUnclosedQuote passes`)
	}
	switch can := place.Can(); {
	case can.Bare:
		l.Add(true, "agent "+t.Agent.Name+" has no container around it: it has your own rights", "leave backend out of [terminal]")
	case place.Network.Settled().Open():
		l.Add(true, "agent "+t.Agent.Name+" has an open network: it reaches all that its machine reaches, and can send away all that it reads",
			`add [network] allow = ["pypi.org"], or mode = "none"; with credentials alone it reaches their servers only`)
	case len(t.Credentials) == 0 && len(place.Network.Settled().Allow) == 0:
		named := "NAME"
		if ad, err := adapters.Find(config.AgentsDir(), t.Agent.Name); err == nil && len(ad.Credentials) > 0 {
			named = ad.Credentials[0]
		}
		l.Add(true, "agent "+t.Agent.Name+" reaches nothing, its model neither: the task names no credential, and its network allows no name",
			fmt.Sprintf(`add credentials = [%q] before the first table, or [network] allow = ["api.example.com"]`, named))
	}
	return l
}

// planned is the job that a task would be. nil is that another machine would have to be
// asked.
func (a *app) planned(ctx context.Context, t jobs.Task, c engine.Choice) (*jobs.Spec, error) {
	if t.Login != nil {
		return nil, nil //nolint:nilnil // there is none, and nothing is wrong
	}
	e, err := a.planner()
	if err != nil {
		return nil, err
	}
	return e.Plan(ctx, t, c, true)
}

// tasksDir is where the task files of a repository are, from its top.
const tasksDir = "tasks"

func (a *app) taskLsCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "ls [DIR]", Short: "list the task files of a directory, each with its last job",
		Long: `List the task files of a directory, without those below it: tasks/ where there is one, else
the current directory. A Markdown file that does not begin with "+++" or "---" is none.
Columns: file, id and state of the last job that was submitted from it, when that was
submitted, its branch. A file that cannot be read as a task says "invalid" as its state.

Jobs are found by the path of their file: one that was moved begins without any.
` + exitHelp + `0 ok, also when a file is invalid, 3 no such directory, 5 the ledger could not
be read.`,
		Example: `  berth task ls
  berth task ls experiments --json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dir := "."
			if fi, err := os.Stat(tasksDir); err == nil && fi.IsDir() {
				dir = tasksDir
			}
			if len(args) > 0 {
				dir = args[0]
			}
			files, err := taskFiles(dir)
			if err != nil {
				return err
			}
			list, err := a.lastJobs(cmd, files)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"tasks": list})
			}
			rows := make([][]string, len(list))
			for i, t := range list {
				when := "-"
				if t.Job != nil {
					when = a.when(t.Job.Created)
				}
				rows[i] = []string{t.File, dash(t.id()), t.State, when, dash(t.branch())}
			}
			return a.table([]string{"FILE", "JOB", "STATE", "SUBMITTED", "BRANCH"}, rows)
		},
	}
	a.jsonFlag(c)
	return c
}

// taskJSON is a task file in every --json output. Fields are only ever added.
type taskJSON struct {
	File  string   `json:"file"`
	Name  string   `json:"name,omitempty"`
	State string   `json:"state"` // of its job; "new" is that it has none, "invalid" that it is no task
	Error string   `json:"invalid,omitempty"`
	Job   *jobJSON `json:"job,omitempty"` // the last one
}

func (t *taskJSON) id() string {
	if t.Job == nil {
		return ""
	}
	return t.Job.Short
}

func (t *taskJSON) branch() string {
	if t.Job == nil {
		return ""
	}
	return t.Job.Branch
}

// taskFiles are the Markdown files of a directory that begin with a fence.
func taskFiles(dir string) ([]string, error) {
	if err := jobs.CheckText("the directory's name", dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: "the task files of " + dir, Err: err}
	}
	var out []string
	for _, e := range entries {
		file := filepath.Join(dir, e.Name())
		if filepath.Ext(file) == ".md" && fenced(file) {
			out = append(out, file)
		}
	}
	return out, nil
}

func fenced(file string) bool {
	f, err := disk.OpenRegular(file)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 8)
	n, _ := f.Read(head)
	line := strings.TrimPrefix(string(head[:n]), "\ufeff")
	return strings.HasPrefix(line, "+++") || strings.HasPrefix(line, "---")
}

// lastJobs are the task files with the last job of each.
func (a *app) lastJobs(cmd *cobra.Command, files []string) ([]taskJSON, error) {
	e, err := a.engine()
	if err != nil {
		return nil, err
	}
	recs, err := e.Store.List()
	if recs == nil && err != nil {
		return nil, err
	}
	last := map[string]*jobs.Record{}
	for _, r := range recs {
		if file := r.Spec.TaskFile; file != "" && (last[file] == nil || r.Spec.Created.After(last[file].Spec.Created)) {
			last[file] = r
		}
	}
	var mine []*jobs.Record
	list := make([]taskJSON, len(files))
	at := map[string]int{}
	for i, file := range files {
		list[i] = taskJSON{File: file, State: "new"}
		t, err := task.Load(file)
		if list[i].Name = t.Name; err != nil {
			list[i].State = "invalid"
			list[i].Error, _, _ = strings.Cut(err.Error(), "\n")
		}
		if abs, err := filepath.Abs(file); err == nil && last[abs] != nil {
			mine, at[last[abs].Spec.ID] = append(mine, last[abs]), i
		}
	}
	views := e.Reconcile(cmd.Context(), mine)
	a.warn(views)
	for _, v := range views {
		j := viewJSON(v)
		t := &list[at[v.Spec.ID]]
		if t.Job = &j; t.State == "new" {
			t.State = stateText(j)
		}
	}
	slices.SortFunc(list, func(a, b taskJSON) int { return cmp.Compare(a.File, b.File) })
	return list, nil
}
