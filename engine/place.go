package engine

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"berth/internal/node/batch"
	"berth/internal/workspace"
	"berth/jobs"
)

// launch makes what the scheduler is asked to start for an attempt whose
// directory is adir, on the selected machine.
func (e *Engine) launch(s *jobs.Spec, info jobs.AttemptInfo, adir string, at selected) (jobs.Launch, error) {
	b, err := e.backend(s.Backend)
	if err != nil {
		return jobs.Launch{}, err
	}
	p := s.Invocation()
	p.Name, p.User, p.Guest = info.Name, at.owner, at.node
	if !s.Can().OtherHost {
		p.Guest = jobs.PlaceholderNode // where its place is a directory of the runner's
	}
	inner, err := b.Argv(p, []string{"guest"})
	if err != nil {
		return jobs.Launch{}, err
	}
	words := []string{at.node, "runner", "--attempt", adir}
	if at.ahead {
		words[2] = "--standby"
	}
	var client string
	if s.Retry != nil {
		client = at.node // which is that too, and of the cluster's kind
	}
	if s.Retry != nil || s.Submit.Jobs() {
		words = append(words, "--follow", at.node)
	}
	shown, comment, err := ranks(s, adir, at.node, inner)
	if err != nil {
		return jobs.Launch{}, err
	}
	l := jobs.Launch{
		Attempt:   info.ID,
		Name:      info.Name,
		Dir:       adir,
		Resources: s.Resources,
		Slurm:     s.Slurm,
		Profile:   s.Profile,
		Identity:  at.who,
		Requeue:   s.Retry.Again() || s.Resume != nil,
		After:     s.After,
		Client:    client,
		Argv:      slices.Concat(words, []string{"--"}, shown), // what is shown to people, the runner renders itself
		Comment: []string{
			"berth job " + jobs.Short(s.ID) + ": " + s.Name,
			"backend " + s.Backend + " (containment: " + s.Containment() + "), attempt " + jobs.Short(info.ID),
		},
	}
	if s.Resume != nil {
		l.Warn = s.Resume.Before
	}
	if len(s.After) > 0 {
		l.Comment = append(l.Comment, "begins when these have ended as they must: "+jobs.Wait{For: s.After}.String())
	}
	l.Comment = append(l.Comment, comment...)
	if s.Submit.Jobs() {
		l.Comment = append(l.Comment, "may submit jobs in its own place: "+s.Submit.Bounds())
	}
	if s.Image != "" {
		l.Comment = append(l.Comment, imageComment("image ", s.Image, s.ImageRef, s.ImageDigest)...)
	}
	if s.Submit.Jobs() {
		for _, i := range s.Submit.Images {
			l.Comment = append(l.Comment, imageComment("of these jobs, where they ask for it: image ", i.Image, i.ImageRef, i.ImageDigest)...)
		}
	}
	if v := s.Profile.Versions; s.Profile.Name != "" {
		l.Comment = append(l.Comment, "profile "+s.Profile.Name+": slurm "+known(v.Slurm)+", apptainer "+known(v.Apptainer))
	} else {
		l.Comment = append(l.Comment, "no profile: only flags that every supported version of Slurm and Apptainer knows")
	}
	return l, nil
}

// imageComment says which image is run, and what was asked for.
func imageComment(what, image, ref, digest string) []string {
	out := []string{what + image}
	switch {
	case digest != "":
		out = append(out, "which is "+ref+", "+digest)
	case ref != "":
		out = append(out, "which is "+ref)
	}
	return out
}

// ranks puts the line that opens one container behind the one that starts all tasks
// of the job, where there are several.
func ranks(s *jobs.Spec, adir, node string, inner []string) (argv, comment []string, err error) {
	if s.Resources.Tasks <= 1 {
		return inner, nil, nil
	}
	argv = batch.Of(s.Scheduler).Ranks(s.Resources, s.Slurm, jobs.RankArgv(node, adir))
	if argv == nil {
		return nil, nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "[resources] ntasks: the scheduler " + s.Scheduler + " places no tasks side by side",
			Hint: "remove ntasks, or use --scheduler slurm"}
	}
	return append(append(argv, "--"), inner...), []string{fmt.Sprintf("%d tasks: the runner starts them, and each opens a container of its own on its node",
		s.Resources.Tasks)}, nil
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

// sourceOf is the repository of a recorded job.
func sourceOf(w *jobs.WorkspaceSpec) workspace.Source {
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
	if res.Base != w.Base {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "the result starts from commit " + res.Base + ", and the job from " + w.Base}
	}
	return e.git.Intake(ctx, sourceOf(w), bundle(adir), w.Branch,
		workspace.Result{Base: res.Base, Commit: res.Commit, Tree: res.Tree, Branch: w.Branch, Changed: true})
}

// bundle is where an attempt keeps its result.
func bundle(adir string) string { return filepath.Join(adir, workspace.BundleFile) }
