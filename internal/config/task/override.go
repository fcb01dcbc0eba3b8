package task

import (
	"slices"

	"berth/internal/config/keys"
	"berth/internal/config/strict"
	"berth/jobs"
)

// Override puts flags of the command line over a task: each stands for a key
// and passes the same checks. Lists of extra options, labels, environment variables and
// rules of the network are added to the task's, other values replace them.
func Override(t *jobs.Task, flags []strict.Flag) error {
	doc := strict.Flags(flags)
	root := doc.Root()
	reserve(root)
	given := func(table, key string) bool {
		return slices.ContainsFunc(flags, func(f strict.Flag) bool { return f.Table == table && f.Key == key })
	}
	name := root.Take("name").Text()
	var over jobs.Task
	terminal(&over, root.Table("terminal"))
	resources(root.Table("resources"), &over.Place)
	network(root.Table("network"), &over.Place)
	caps(root.Table("caps"), &over.Place)
	for _, c := range credentials(root.Take("credentials")) {
		if !slices.ContainsFunc(t.Credentials, func(o jobs.Credential) bool { return o.Name == c.Name }) {
			t.Credentials = append(slices.Clone(t.Credentials), c)
		}
	}
	over.Slurm = keys.Slurm(root.Table("slurm"))
	again, goOn := Retry(root.Take("retry")), resume(root.Take("resume"))
	behind, marks := after(root.Take("after")), labels(root.Take("labels"))
	ws := root.Table("workspace")
	w := workspaceOf(ws)
	if w != nil && t.Workspace == nil && !given("workspace", "repo") {
		ws.Take("base").On(ws.Take("scope")).Failf("give --workspace DIR too", "needs a workspace")
	}
	if err := doc.Err(); err != nil {
		return err
	}
	if given("", "name") {
		t.Name = name
	}
	if again != nil {
		t.Retry = again
	}
	if goOn != nil {
		t.Resume = goOn
	}
	if behind != nil {
		t.After = behind
	}
	for _, l := range marks {
		if !slices.Contains(t.Labels, l) {
			t.Labels = append(t.Labels, l)
		}
	}
	if over.Image != "" || over.Template != "" { // one takes the place of the other
		t.Image, t.Reference, t.Template = over.Image, over.Reference, over.Template
	}
	if over.SSH != nil {
		t.SSH = over.SSH
	}
	if over.Network.Allow != nil {
		over.Network.Allow = slices.Concat(t.Network.Allow, over.Network.Allow)
	}
	keys.Over(&t.Place, over.Place)
	if w != nil {
		overrideWorkspace(t, *w, given)
	}
	return nil
}

// Place puts flags that describe an environment over a place.
func Place(p *jobs.Place, flags []strict.Flag) error {
	doc := strict.Flags(flags)
	tables := map[string]*strict.Reader{}
	for i := range keys.Fields {
		f := &keys.Fields[i]
		if f.Env == "" {
			continue
		}
		if tables[f.Table()] == nil {
			tables[f.Table()] = doc.Root().Table(f.Table())
		}
		v := tables[f.Table()].Take(f.Key())
		if f.Name == "terminal.bind" {
			f.Put(p, binds(v))
			continue
		}
		f.Take(v, p)
	}
	wildcards(tables["network"])
	return doc.Err()
}

func overrideWorkspace(t *jobs.Task, w jobs.Workspace, given func(table, key string) bool) {
	if t.Workspace == nil {
		t.Workspace = &jobs.Workspace{}
	}
	if given("workspace", "repo") {
		t.Workspace.Repo = w.Repo
	}
	if given("workspace", "base") {
		t.Workspace.Base = w.Base
	}
	if given("workspace", "scope") {
		t.Workspace.Scope = w.Scope
	}
}
