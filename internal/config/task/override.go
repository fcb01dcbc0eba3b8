package task

import (
	"slices"

	"berth/internal/config/keys"
	"berth/internal/config/strict"
	"berth/jobs"
)

// Override puts flags of the command line over a task: each stands for a key
// and passes the same checks. Lists of extra options and of environment
// variables are added to the task's, other values replace them.
func Override(t *jobs.Task, flags []strict.Flag) error {
	doc := strict.Flags(flags)
	root := doc.Root()
	reserve(root)
	given := func(table, key string) bool {
		return slices.ContainsFunc(flags, func(f strict.Flag) bool { return f.Table == table && f.Key == key })
	}
	name := root.Take("name").Text()
	var term jobs.Task
	terminal(&term, root.Table("terminal"))
	res := resources(root.Table("resources"))
	opts := keys.Slurm(root.Table("slurm"))
	again, goOn := retry(root.Take("retry")), resume(root.Take("resume"))
	behind := after(root.Take("after"))
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
	put(&t.Resources.CPUs, res.CPUs)
	put(&t.Resources.Memory, res.Memory)
	put(&t.Resources.Disk, res.Disk)
	put(&t.Resources.Time, res.Time)
	put(&t.Resources.GPUs, res.GPUs)
	put(&t.Resources.Nodes, res.Nodes)
	put(&t.Resources.Tasks, res.Tasks)
	put(&t.Backend, term.Backend)
	if term.Image != "" || term.Template != "" { // one takes the place of the other
		t.Image, t.Reference, t.Template = term.Image, term.Reference, term.Template
	}
	put(&t.Overlay.Name, term.Overlay.Name)
	put(&t.Overlay.Wait, term.Overlay.Wait)
	put(&t.Overlay.Snapshot, term.Overlay.Snapshot)
	put(&t.Overlay.Keep, term.Overlay.Keep)
	put(&t.Stage, term.Stage)
	if term.SSH != nil {
		t.SSH = term.SSH
	}
	if term.Mounts != nil {
		t.Mounts = term.Mounts
	}
	t.Env = withEnv(t.Env, term.Env)
	put(&t.Slurm.Partition, opts.Partition)
	put(&t.Slurm.Account, opts.Account)
	put(&t.Slurm.QOS, opts.QOS)
	put(&t.Slurm.Constraint, opts.Constraint)
	put(&t.Slurm.MPI, opts.MPI)
	t.Slurm.Extra = append(slices.Clone(t.Slurm.Extra), opts.Extra...)
	if w != nil {
		overrideWorkspace(t, *w, given)
	}
	return nil
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

// put replaces a value by one that was given.
func put[T comparable](dst *T, v T) {
	var zero T
	if v != zero {
		*dst = v
	}
}

// withEnv puts variables over those of the same name.
func withEnv(old, over []string) []string {
	out := slices.DeleteFunc(slices.Clone(old), func(kv string) bool {
		return slices.ContainsFunc(over, func(o string) bool { return nameOf(o) == nameOf(kv) })
	})
	return append(out, over...)
}
