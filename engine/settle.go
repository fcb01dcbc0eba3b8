package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth/internal/sys/pattern"
	"berth/internal/workspace"
	"berth/jobs"
)

// settleLimits refuses a limit that the chosen places cannot hold.
func (e *Engine) settleLimits(s *jobs.Spec) error {
	s.Resources.GPUs = s.Profile.GPUs(s.Resources.GPUs)
	if !s.Clustered() {
		if s.Resources.GPUs != "" {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: "[resources] gpus: the local scheduler does not hand out GPUs",
				Hint: "remove gpus, or use --scheduler slurm"}
		}
		if s.Resources.Nodes > 1 {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: "[resources] nodes: the local scheduler has one node",
				Hint: "remove nodes, or use --scheduler slurm"}
		}
		if s.Resources.Tasks > 1 {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: "[resources] ntasks: the local scheduler places no tasks side by side",
				Hint: "remove ntasks, or use --scheduler slurm"}
		}
	}
	if err := settleTasks(s); err != nil || !s.Clustered() {
		return err
	}
	if mode := s.Reaches().Mode; mode != "" && s.Resources.Tasks > 1 {
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg: fmt.Sprintf("network mode %q does not go with ntasks = %d: the ranks find each other over the network of their nodes",
				mode, s.Resources.Tasks),
			Hint: `leave ntasks out, or make the mode "open"`}
	}
	if s.Resources.GPUs != "" && slices.Contains(s.Profile.Forbid, "gres") && slices.Contains(s.Profile.Forbid, "gpus") {
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "[resources] gpus is not available: the profile " + s.Profile.Name + " forbids --gres and --gpus",
			Hint: "remove gpus from the task"}
	}
	for _, k := range []struct {
		option, key string
		set, held   bool // held: the runner holds it itself
	}{
		{"mem", "memory", s.Resources.Memory != 0, true},
		{"tmp", "disk", s.Resources.Disk != 0, true},
		{"time", "time", s.Resources.Time != 0, true},
		{"cpus-per-task", "cpus", s.Resources.CPUs != 0, false},
		{"nodes", "nodes", s.Resources.Nodes != 0, false},
		{"ntasks", "ntasks", s.Resources.Tasks != 0, false},
	} {
		if !k.set || !slices.Contains(s.Profile.Forbid, k.option) {
			continue
		}
		if !k.held {
			return &jobs.Error{Kind: jobs.KindConfig,
				Msg:  "[resources] " + k.key + " is not available: the profile " + s.Profile.Name + " forbids --" + k.option,
				Hint: "remove " + k.key + " from the task"}
		}
		s.Notes = append(s.Notes,
			"--"+k.option+" is not sent to the scheduler: the profile "+s.Profile.Name+" forbids it; the runner watches [resources] "+k.key)
	}
	return nil
}

// settleMost records what the site gives to a job at most, so that whoever decides
// about a further attempt, in whatever place, asks for no more than that. A site
// that does not say refuses it later.
func (e *Engine) settleMost(ctx context.Context, s *jobs.Spec) {
	if s.Retry == nil || s.Retry.Memory == 0 && s.Retry.Time == 0 {
		return
	}
	sc, _, err := e.schedulerOf(s)
	if b, ok := sc.(jobs.Cluster); ok && err == nil {
		const patience = 10 * time.Second
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		r := *s.Retry
		if r.Most, err = b.Most(ctx, s.Slurm); err == nil {
			s.Retry = &r
		}
	}
}

// settleTasks refuses what tasks side by side cannot have, and says what is not
// meant by several nodes.
func settleTasks(s *jobs.Spec) error {
	n, nodes := s.Resources.Tasks, s.Resources.Nodes
	refuse := func(kind jobs.Kind, msg, hint string) error {
		return &jobs.Error{Kind: kind, Msg: fmt.Sprintf("[resources] ntasks = %d: %s", n, msg), Hint: hint}
	}
	switch {
	case n > 0 && nodes > n:
		return refuse(jobs.KindUsage, fmt.Sprintf("fewer tasks than nodes (%d)", nodes), "leave nodes out, or ask for as many tasks as nodes")
	case n <= 1:
		if nodes > 1 {
			s.Notes = append(s.Notes,
				fmt.Sprintf("the command runs once, on the first of the %d nodes; [resources] ntasks = %d runs it on each", nodes, nodes))
		}
		if s.Slurm.MPI != "" {
			s.Slurm.MPI = "" // a profile's
		}
		return nil
	case s.Overlay.Name != "":
		return refuse(jobs.KindConfig, "the tasks would all write the overlay "+s.Overlay.Name+", which takes one writer",
			"leave overlay out: every task gets a layer of its own, which is thrown away")
	case !s.Can().Steps():
		return refuse(jobs.KindConfig, "the backend "+s.Backend+" cannot be placed by the scheduler", "use --backend singularity")
	}
	return nil
}

// settleEnv splits the task's environment into values, which are recorded, and
// names, whose values are taken from the caller and never recorded.
func (e *Engine) settleEnv(s *jobs.Spec, t jobs.Task, dry bool) error {
	s.Env = nil
	for _, kv := range t.Env {
		if strings.Contains(kv, "=") {
			s.Env = append(s.Env, kv)
			continue
		}
		if _, ok := e.Getenv(kv); !ok && !dry {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "the task takes " + kv + " from your environment, where it is not set",
				Hint: "export " + kv + "=..."}
		}
		s.EnvNames = append(s.EnvNames, kv)
	}
	return nil
}

func (e *Engine) settleWorkspace(ctx context.Context, s *jobs.Spec, t jobs.Task) error {
	w, err := e.workspaceOf(ctx, s, t.Workspace)
	if err != nil {
		return err
	}
	s.Workspace, s.Further = w, nil
	for i := range t.Further {
		one := &t.Further[i]
		w, err := e.workspaceOf(ctx, s, one)
		if err != nil {
			return &jobs.Error{Kind: jobs.KindOf(err), Msg: "workspace " + one.Name, Err: err, Hint: jobs.HintOf(err)}
		}
		for _, o := range s.Workspaces() {
			if o.GitDir == w.GitDir { // a merge moves one target in it
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "workspace " + one.Name + ": its repository is that of another workspace: " +
					w.GitDir, Hint: "one workspace is enough for both"}
			}
		}
		if w.Name = one.Name; jobs.CheckWorkspaceName(w.Name) != nil {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("a workspace beside the first has the name %q", w.Name),
				Hint: "a-z, 0-9, - and _"}
		}
		s.Further = append(s.Further, *w)
	}
	if len(s.Further) == 0 {
		return nil
	}
	have, err := e.git.Line(ctx, workspace.Call{GitDir: s.Workspace.GitDir,
		Args: []string{"ls-tree", "--full-tree", "--name-only", s.Workspace.Base, "--", jobs.FurtherDir}})
	if err != nil {
		return repoError(err)
	}
	if have != "" {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the repository " + s.Workspace.Repo + " has a path " + jobs.FurtherDir +
			", where the other workspaces would stand", Hint: "make another one the first, in [workspace]"}
	}
	return nil
}

// workspaceOf settles one repository.
func (e *Engine) workspaceOf(ctx context.Context, s *jobs.Spec, w *jobs.Workspace) (*jobs.WorkspaceSpec, error) {
	src, err := e.git.Resolve(ctx, w.Repo, w.Base)
	if err != nil {
		return nil, repoError(err)
	}
	out := workspaceSpec(src, jobs.BranchName(s.Slug, s.ID), w.Scope)
	out.Ignore = e.git.GlobalIgnore(ctx, e.Getenv)
	if src.Modified || src.Untracked {
		of := "the working tree"
		if w.Name != "" {
			of += " of workspace " + w.Name
		}
		s.Notes = append(s.Notes, of+" has uncommitted changes, which the task does not see: it starts from commit "+src.Base[:12])
	}
	return out, nil
}

// settleFurther refuses several workspaces where they are not built.
func settleFurther(s *jobs.Spec) error {
	if len(s.Further) == 0 {
		return nil
	}
	no := func(with, hint string) error {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "[[workspaces]] is not available with " + with, Hint: hint}
	}
	switch {
	case s.Login != nil:
		return no("--login", "submit it on "+s.Login.Host+", where the repositories are")
	case s.Can().OtherHost:
		return no("the backend "+s.Backend, "a backend of this machine or its cluster has them")
	case s.Resources.Tasks > 1:
		return no("ntasks above 1", "leave ntasks out")
	case s.Resume != nil:
		return no("[resume]", "leave resume out: each attempt begins from the commits of the job")
	case s.Submit.Jobs():
		return no("[submit] max_jobs", "leave max_jobs out: jobs of a task have one workspace")
	}
	return nil
}

var envName = pattern.Lazy(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checkSpec refuses control characters in whatever will stand in a script, and
// names that are none.
func checkSpec(s *jobs.Spec) error {
	values := [][2]string{
		{"the task's name", s.Name},
		{"the image's path", s.Image},
		{"the image", s.ImageRef},
		{"partition", s.Slurm.Partition},
		{"account", s.Slurm.Account},
		{"qos", s.Slurm.QOS},
		{"constraint", s.Slurm.Constraint},
	}
	for _, m := range s.Mounts {
		values = append(values,
			[2]string{fmt.Sprintf("the bind source %q", m.Source), m.Source},
			[2]string{fmt.Sprintf("the bind destination %q", m.Destination), m.Destination})
	}
	if s.Submit != nil {
		for _, i := range s.Submit.Images {
			values = append(values, [2]string{"an image of [submit]", i.Image}, [2]string{"an image of [submit]", i.Name})
		}
	}
	for _, v := range values {
		if err := jobs.CheckText(v[0], v[1]); err != nil {
			return err
		}
	}
	for _, kv := range append(slices.Clone(s.Env), s.EnvNames...) {
		if name, _, _ := strings.Cut(kv, "="); !envName().MatchString(name) {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q cannot name an environment variable", name),
				Hint: "letters, digits and underscores"}
		}
	}
	return nil
}
