package jobs

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// MaxFurther bounds the further workspaces of a job.
const MaxFurther = 16

// FurtherDir is the directory at the top of the first workspace that has the others, each
// by its name. It begins with a dot so that programs which go through the first one leave
// them out.
const FurtherDir = ".repos"

// dirFurther is the directory of an attempt that has what is kept of them: for each a
// directory with the files that the attempt's own has of the first one.
const dirFurther = "repos"

// WorkspaceDir is where a workspace stands, relative to the first one; that one is "".
func WorkspaceDir(name string) string {
	if name == "" {
		return ""
	}
	return path.Join(FurtherDir, name)
}

// ResultDir is where an attempt keeps the result of the workspace of this name: its own
// directory for the first one, which is "".
func ResultDir(attemptDir, name string) string {
	if name == "" {
		return attemptDir
	}
	return filepath.Join(attemptDir, dirFurther, name)
}

// CheckWorkspaceName refuses what cannot name a further workspace: 1 to 32 small letters,
// digits, "-" and "_", beginning with a letter.
func CheckWorkspaceName(name string) error {
	const first = "abcdefghijklmnopqrstuvwxyz"
	if name == "" || len(name) > 32 || !strings.Contains(first, name[:1]) || strings.Trim(name, first+"0123456789-_") != "" {
		return fmt.Errorf("is no name of a workspace: %q; 1 to 32 of a-z, 0-9, - and _, beginning with a letter", name)
	}
	return nil
}

// Workspaces are all of the job, the first one first.
func (s *Spec) Workspaces() []*WorkspaceSpec {
	if s.Workspace == nil {
		return nil
	}
	all := []*WorkspaceSpec{s.Workspace}
	for i := range s.Further {
		all = append(all, &s.Further[i])
	}
	return all
}

// Parts are the job's workspaces, each as the record of a job that has this one alone: its
// repository, its result, and the directory in which that is kept. A job with one
// workspace, or none, is its own part.
func (r *Record) Parts() []*Record {
	if len(r.Spec.Further) == 0 {
		return []*Record{r}
	}
	var parts []*Record
	for i, w := range r.Spec.Workspaces() {
		p := *r
		p.Spec.Workspace, p.Spec.Further = w, nil
		p.Attempts = slices.Clone(r.Attempts)
		for n := range p.Attempts {
			p.Attempts[n].of(i, w.Name)
		}
		parts = append(parts, &p)
	}
	return parts
}

// of leaves of an attempt what is of the i-th workspace, which has this name.
func (a *Attempt) of(i int, name string) {
	a.Dir = ResultDir(a.Dir, name)
	if a.Exit != nil && a.Exit.Result != nil {
		x := *a.Exit
		x.Result = x.Result.at(i)
		a.Exit = &x
	}
	if a.Collected != nil {
		c := *a.Collected
		if res := c.Result.at(i); res != nil {
			c.Result = *res
			a.Collected = &c
		} else {
			a.Collected = nil
		}
	}
}

// at is the result of the i-th workspace alone; nil is none.
func (r *Result) at(i int) *Result {
	all := r.All()
	if i >= len(all) {
		return nil
	}
	one := *all[i]
	one.Further = nil
	return &one
}

// ChangedParts are the parts whose workspace has a result to deliver and to review.
func (r *Record) ChangedParts() []*Record {
	return slices.DeleteFunc(slices.Clone(r.Parts()), func(p *Record) bool {
		a := p.Current()
		return a == nil || p.Spec.Workspace == nil || a.Result() == nil || a.Result().Commit == ""
	})
}
