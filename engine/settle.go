package engine

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"berth/jobs"
)

// settleLimits refuses a limit that the chosen places cannot hold.
func (e *Engine) settleLimits(s *jobs.Spec) error {
	if s.Scheduler == jobs.SchedulerLocal {
		if s.Resources.GPUs != "" {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: "[resources] gpus: the local scheduler does not hand out GPUs", Hint: "remove gpus, or use --scheduler slurm"}
		}
		if s.Resources.Nodes > 1 {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: "[resources] nodes: the local scheduler has one node", Hint: "remove nodes, or use --scheduler slurm"}
		}
	}
	if s.Scheduler != jobs.SchedulerSlurm {
		return nil
	}
	if s.Resources.GPUs != "" && slices.Contains(s.Profile.Forbid, "gres") && slices.Contains(s.Profile.Forbid, "gpus") {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "[resources] gpus cannot be had: the profile " + s.Profile.Name + " forbids --gres and --gpus", Hint: "remove gpus from the task"}
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
	} {
		if !k.set || !slices.Contains(s.Profile.Forbid, k.option) {
			continue
		}
		if !k.held {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: "[resources] " + k.key + " cannot be had: the profile " + s.Profile.Name + " forbids --" + k.option, Hint: "remove " + k.key + " from the task"}
		}
		s.Notes = append(s.Notes, "--"+k.option+" is not sent to Slurm: the profile "+s.Profile.Name+" forbids it; the runner watches [resources] "+k.key)
	}
	return nil
}

// settleEnv splits the task's environment into values, which are recorded, and
// names, whose values are taken from the caller and never recorded.
func (e *Engine) settleEnv(s *jobs.Spec, t jobs.Task, dry bool) error {
	for _, kv := range t.Terminal.Env {
		if strings.Contains(kv, "=") {
			s.Env = append(s.Env, kv)
			continue
		}
		if _, ok := e.Getenv(kv); !ok && !dry {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "the task takes " + kv + " from your environment, where it is not set", Hint: "export " + kv + "=..."}
		}
		s.EnvNames = append(s.EnvNames, kv)
	}
	return nil
}

func (e *Engine) settleWorkspace(ctx context.Context, s *jobs.Spec, t jobs.Task) error {
	src, err := e.Git.Resolve(ctx, t.Workspace.Repo, t.Workspace.Base)
	if err != nil {
		return repoError(err)
	}
	s.Workspace = workspaceSpec(src, jobs.BranchName(s.Slug, s.ID), t.Workspace.Scope)
	if src.Modified || src.Untracked {
		s.Notes = append(s.Notes, "the working tree has uncommitted changes, which the task does not see: it starts from commit "+src.Base[:12])
	}
	return nil
}

// mergeSlurm puts the task's words over the profile's.
func mergeSlurm(p, t jobs.SlurmOptions) jobs.SlurmOptions {
	out := t
	for _, f := range []struct {
		dst *string
		def string
	}{{&out.Partition, p.Partition}, {&out.Account, p.Account}, {&out.QOS, p.QOS}, {&out.Constraint, p.Constraint}} {
		if *f.dst == "" {
			*f.dst = f.def
		}
	}
	out.Extra = append(slices.Clone(p.Extra), t.Extra...)
	return out
}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// checkSpec refuses control characters in whatever will stand in a script, and
// names that are none.
func checkSpec(s *jobs.Spec) error {
	values := [][2]string{{"the task's name", s.Name}, {"the image's path", s.Image}, {"partition", s.Slurm.Partition}, {"account", s.Slurm.Account}, {"qos", s.Slurm.QOS}, {"constraint", s.Slurm.Constraint}}
	for _, m := range s.Mounts {
		values = append(values, [2]string{fmt.Sprintf("the bind source %q", m.Source), m.Source}, [2]string{fmt.Sprintf("the bind destination %q", m.Destination), m.Destination})
	}
	for _, v := range values {
		if err := jobs.CheckText(v[0], v[1]); err != nil {
			return err
		}
	}
	for _, kv := range append(slices.Clone(s.Env), s.EnvNames...) {
		if name, _, _ := strings.Cut(kv, "="); !envName.MatchString(name) {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q cannot name an environment variable", name), Hint: "letters, digits and underscores"}
		}
	}
	return nil
}
