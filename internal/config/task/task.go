package task

import (
	"path/filepath"
	"strings"

	"berth/internal/config/keys"
	"berth/internal/config/strict"
	"berth/jobs"
)

// maxName is how long a task's name may be, in characters.
const maxName = 200

// Load reads a task file.
func Load(path string) (jobs.Task, error) {
	data, err := strict.ReadFile(path, "task file")
	if err != nil {
		return jobs.Task{}, err
	}
	t, err := Parse(path, data)
	if err == nil {
		t.File, err = filepath.Abs(path)
	}
	return t, err
}

// Parse reads the content of a task file. The file's name stands in errors,
// and relative paths are relative to its directory.
func Parse(file string, data []byte) (jobs.Task, error) {
	doc, t, err := read(file, data)
	if err == nil {
		err = doc.Err()
	}
	if err != nil {
		return jobs.Task{}, err
	}
	return t, nil
}

// read reads a task file; what is wrong with its keys is said by the document.
func read(file string, data []byte) (*strict.Doc, jobs.Task, error) {
	doc, prompt, err := strict.Front(file, data)
	if err != nil {
		return nil, jobs.Task{}, err
	}
	root := doc.Root()
	t := jobs.Task{Prompt: prompt, Source: data}
	reserve(root)
	root.Need("name", `"fix the parser"`)
	name := root.Take("name")
	t.Name = name.Text()
	if len([]rune(t.Name)) > maxName {
		name.Failf("", "has more than %d characters", maxName)
	}

	t.Command, t.Agent = agent(root.Table("agent"))
	ws := root.Table("workspace")
	t.Ports, t.Workspace = ports(ws.Take("ports")), workspaceOf(ws)
	t.Further = further(root.Take("workspaces"), t.Workspace != nil)
	resources(root.Table("resources"), &t.Place)
	terminal(&t, root.Table("terminal"))
	network(root.Table("network"), &t.Place)
	t.Credentials = credentials(root.Take("credentials"))
	caps(root.Table("caps"), &t.Place)
	t.Submit = submit(root.Table("submit"))
	t.Slurm = keys.Slurm(root.Table("slurm"))
	for _, v := range root.Take("done").Items("commands") {
		if c := command(v); !c.Empty() {
			t.Done = append(t.Done, c)
		}
	}
	over := root.Take("done_over")
	if t.DoneOver = over.OneOf(jobs.DoneOverBefore, jobs.DoneOverTask); over.Given() && len(t.Done) == 0 {
		over.Failf("leave it out, or give done", "is for done commands, and there are none")
	}
	t.Retry = Retry(root.Take("retry"))
	t.Resume = resume(root.Take("resume"))
	t.After = after(root.Take("after"))
	t.Labels = labels(root.Take("labels"))
	t.Artifacts = patterns(root.Take("artifacts"))
	t.Results = results(root.Table("results"))
	return doc, t, nil
}

// maxFiles is above what is looked at in a tree.
const maxFiles = 2_000_000

func results(t *strict.Reader) jobs.ResultLimits {
	return jobs.ResultLimits{
		ArtifactFile:  keys.Size(t.Take("artifact_file")),
		ArtifactSize:  keys.Size(t.Take("artifact_size")),
		ArtifactFiles: t.Take("artifact_files").Count(maxFiles),
		BranchFile:    keys.Size(t.Take("branch_file")),
		BranchSize:    keys.Size(t.Take("branch_size")),
		BranchFiles:   t.Take("branch_files").Count(maxFiles),
	}
}

func agent(t *strict.Reader) (jobs.Command, *jobs.Agent) {
	t.Later("it is not built yet", "effort", "tools", "mcp")
	t.Refuse("stands in your configuration, as upstream of a table in [credentials]", "base_url")
	t.Refuse("is said by own_sandbox", "permissions")
	t.Refuse("is not needed: an agent goes on with its session by itself; berth retry --new-session begins one", "session")
	t.Refuse("stands in [caps]: max_turns, max_tokens, max_usd", "max_turns", "max_cost", "max_tokens", "max_usd", "max_budget_usd", "caps")
	t.Synonyms("command", "cmd", "run", "argv", "exec")
	t.Synonyms("use", "adapter", "agent", "name")
	t.Synonyms("own_sandbox", "sandbox")
	use, line := t.Take("use"), t.Take("command")
	model, own := t.Take("model"), t.Take("own_sandbox")
	if !use.Given() {
		for _, v := range []strict.Value{model, own} {
			if v.Given() {
				v.Failf(`add use, such as use = "claude"`, "is for an agent that berth knows, and [agent] names none")
			}
		}
		if !line.Given() {
			t.Need("command", `["my-agent", "--print"]`)
		}
		return command(line), nil
	}
	a := &jobs.Agent{Name: use.Text(), Model: model.Text()}
	if own.Given() {
		on := own.Bool()
		a.OwnSandbox = &on
	}
	return command(line), a
}

// command reads one string for the shell, or a list that is an argv.
func command(v strict.Value) jobs.Command {
	switch {
	case !v.Given():
		return jobs.Command{}
	case v.Is(strict.String):
		return jobs.Command{Shell: v.Script()}
	case !v.Is(strict.List):
		v.MustBeText("a string (for the shell) or a list of strings")
		return jobs.Command{}
	}
	var argv []string
	items := v.Items("words")
	for i, item := range items {
		word, ok := item.Raw()
		switch {
		case !ok || !item.CheckScript(word):
			return jobs.Command{}
		case i == 0 && strings.TrimSpace(word) == "":
			item.Failf("", "is empty: it names the program")
			return jobs.Command{}
		}
		argv = append(argv, word)
	}
	if len(argv) == 0 {
		v.Failf("", "is empty")
	}
	return jobs.Command{Argv: argv}
}
