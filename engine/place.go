package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"berth/internal/workspace"
	"berth/jobs"
)

// WorkDir is where the workspace stands inside a container.
const WorkDir = "/work"

// launch makes what the scheduler is asked to start for an attempt whose
// directory is adir. node is the path of berth-node.
func (e *Engine) launch(s *jobs.Spec, info jobs.AttemptInfo, adir, node string) (jobs.Launch, error) {
	b, err := e.backend(s.Backend)
	if err != nil {
		return jobs.Launch{}, err
	}
	p := jobs.Place{Name: info.Name, Resources: s.Resources, User: fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()), Image: s.Image, Overlay: s.Overlay, Mounts: s.Mounts, Apptainer: s.Profile.Versions.Apptainer, Guest: node, SSH: s.SSH}
	if s.Resources.GPUs != "" {
		if p.GPU = s.Profile.GPU; p.GPU == "" {
			p.GPU = "nvidia"
		}
	}
	if s.Workspace != nil {
		p.Mounts = append([]jobs.Mount{{Source: filepath.Join(adir, "work"), Destination: WorkDir, Writable: true}}, p.Mounts...)
	}
	inner, err := b.Argv(p, []string{"guest"})
	if err != nil {
		return jobs.Launch{}, err
	}
	l := jobs.Launch{
		Attempt: info.ID, Name: info.Name, Dir: adir, Resources: s.Resources, Slurm: s.Slurm, Profile: s.Profile, Identity: identity(),
		Argv: append([]string{node, "runner", "--attempt", adir, "--"}, inner...),
		Comment: []string{
			"berth job " + jobs.Short(s.ID) + ": " + s.Name,
			"backend " + s.Backend + " (containment: " + string(s.Level) + "), attempt " + jobs.Short(info.ID),
		},
	}
	if s.Image != "" {
		l.Comment = append(l.Comment, "image "+s.Image)
	}
	if v := s.Profile.Versions; s.Profile.Name != "" {
		l.Comment = append(l.Comment, "profile "+s.Profile.Name+": slurm "+known(v.Slurm)+", apptainer "+known(v.Apptainer))
	} else {
		l.Comment = append(l.Comment, "no profile: only flags that every supported version of Slurm and Apptainer knows")
	}
	return l, nil
}

func known(v string) string {
	if v == "" {
		return "of unknown version"
	}
	return v
}

// workspaceSpec and source carry a repository's description over to the ledger
// and back.
func workspaceSpec(src workspace.Source, branch string, scope []string) *jobs.WorkspaceSpec {
	return &jobs.WorkspaceSpec{Repo: src.Top, GitDir: src.Repo, Base: src.Base, BaseRef: src.Branch, Branch: branch, Scope: scope}
}

// Source is the repository of a recorded job.
func Source(w *jobs.WorkspaceSpec) workspace.Source {
	return workspace.Source{Repo: w.GitDir, Top: w.Repo, Base: w.Base, Branch: w.BaseRef}
}

// repoError gives an error about the user's repository its kind and hint.
func repoError(err error) error {
	var we *workspace.Error
	if !errors.As(err, &we) {
		return err
	}
	return &jobs.Error{Kind: jobs.KindUsage, Msg: we.Error(), Hint: we.Hint()}
}

// intake brings a collected result into the user's repository.
func (e *Engine) intake(ctx context.Context, w *jobs.WorkspaceSpec, adir string, res *jobs.Result) error {
	return repoError(e.Git.Intake(ctx, Source(w), bundle(adir), w.Branch, workspace.Result{Base: res.Base, Commit: res.Commit, Tree: res.Tree, Branch: w.Branch, Changed: true}))
}

// bundle is where an attempt keeps its result.
func bundle(adir string) string { return filepath.Join(adir, workspace.BundleFile) }
