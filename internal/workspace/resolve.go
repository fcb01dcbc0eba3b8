package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Source is the user's repository and the commit a task starts from. It is
// recorded at submit and used later, possibly on another machine.
type Source struct {
	// Repo is the absolute path of the repository: its common git directory,
	// which the linked work trees share.
	Repo string `json:"repo"`
	// Top is the top of the work tree that was asked about; empty for a bare
	// repository.
	Top string `json:"top,omitempty"`
	// Base is the full id of the commit the task starts from.
	Base string `json:"base"`
	// Branch is the short name of the branch Base was taken from; empty for a
	// detached HEAD or a base that is no local branch.
	Branch string `json:"branch,omitempty"`
	// Modified says that tracked files differ from HEAD. The task does not
	// see such changes. This and Untracked are for a note to the user; they
	// are false when git cannot tell.
	Modified bool `json:"modified,omitempty"`
	// Untracked says that there are files git neither tracks nor ignores (the
	// user's global ignore file is not consulted).
	Untracked bool `json:"untracked,omitempty"`
}

// Resolve looks up the repository that dir lies in (anywhere in a work tree, a
// linked work tree, or a bare repository) and the commit that base names; an
// empty base is HEAD. It changes nothing there.
func (g *Git) Resolve(ctx context.Context, dir, base string) (Source, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Source{}, fmt.Errorf("resolve repository: %w", err)
	}
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return Source{}, &Error{Kind: ErrNotRepository, Err: err,
			Msg: fmt.Sprintf("workspace %q is not a directory", dir),
			Tip: "name a directory inside a git repository"}
	}
	inside, err := g.line(ctx, call{args: []string{"rev-parse", "--is-inside-work-tree"}, dir: dir})
	if err != nil {
		return Source{}, notRepository(dir, err)
	}
	src := Source{}
	if inside == "true" {
		if src.Top, err = g.line(ctx, call{args: []string{"rev-parse", "--show-toplevel"}, dir: dir}); err != nil {
			return Source{}, fmt.Errorf("resolve repository %q: %w", dir, err)
		}
	}
	common, err := g.line(ctx, call{args: []string{"rev-parse", "--git-common-dir"}, dir: dir})
	if err != nil {
		return Source{}, fmt.Errorf("resolve repository %q: %w", dir, err)
	}
	if !filepath.IsAbs(common) {
		common = filepath.Join(dir, common)
	}
	if src.Repo, err = filepath.EvalSymlinks(common); err != nil {
		return Source{}, fmt.Errorf("resolve repository %q: %w", dir, err)
	}
	if src.Base, src.Branch, err = g.resolveBase(ctx, dir, base); err != nil {
		return Source{}, err
	}
	if err := g.checkComplete(ctx, src); err != nil {
		return Source{}, err
	}
	if src.Top != "" {
		src.Modified, src.Untracked, err = g.uncommitted(ctx, src.Top)
		if err != nil && ctx.Err() != nil {
			return Source{}, fmt.Errorf("look for uncommitted changes in %q: %w", src.Top, err)
		}
	}
	return src, nil
}

// checkComplete refuses a partial clone that lacks something of the base: the
// missing objects would have to be fetched, with the user's credentials. One
// that has everything, by chance or since it was completed, is as good as any.
func (g *Git) checkComplete(ctx context.Context, src Source) error {
	out, err := g.output(ctx, call{gitDir: src.Repo, args: []string{
		"config", "--get-regexp", `^(extensions\.partialclone|remote\..*\.(promisor|partialclonefilter))$`,
	}})
	if err != nil && exitCode(err) != 1 { // 1: there are none
		return fmt.Errorf("read the configuration of %q: %w", src.Repo, err)
	}
	if len(out) == 0 {
		return nil
	}
	found := &missing{}
	looking, stop := context.WithCancel(ctx)
	defer stop()
	found.seen = stop
	err = g.run(looking, call{gitDir: src.Repo, stdout: found, args: []string{"rev-list", "--objects", "--missing=print", src.Base}})
	if found.any {
		return partialClone(src, nil)
	}
	if err != nil && ctx.Err() == nil {
		return partialClone(src, err)
	}
	return err
}

// missing looks for the lines of git rev-list that begin with a question mark.
type missing struct {
	seen func()
	any  bool
	last byte // of what was written so far; 0 is nothing
}

func (m *missing) Write(p []byte) (int, error) {
	for _, c := range p {
		if c == '?' && (m.last == '\n' || m.last == 0) && !m.any {
			m.any = true
			m.seen()
		}
		m.last = c
	}
	return len(p), nil
}

func partialClone(src Source, err error) error {
	return &Error{Kind: ErrNotRepository, Err: err,
		Msg: fmt.Sprintf("repository %q lacks objects of %s: it seems to be a partial clone", src.Repo, src.Base),
		Tip: "fetch the missing objects there: git fetch --refetch --no-filter"}
}

func notRepository(dir string, err error) error {
	e := &Error{Kind: ErrNotRepository, Err: err,
		Msg: fmt.Sprintf("%q is not in a git repository", dir),
		Tip: "run `git init` and commit there, or name another directory"}
	var ge *GitError
	switch {
	case !errors.As(err, &ge):
		return err // git itself could not be run
	case strings.Contains(ge.Stderr, "dubious ownership"), strings.Contains(ge.Stderr, "unsafe repository"):
		e.Msg = fmt.Sprintf("git refuses the repository at %q: it belongs to another user", dir)
		e.Tip = "clone it to a directory of your own and submit from there"
	case !strings.Contains(ge.Stderr, "not a git repository"):
		e.Msg = fmt.Sprintf("git refuses the repository at %q: %s", dir, lastLines(ge.Stderr, 1))
		e.Tip = "run `git status` there"
	}
	return e
}

// resolveBase gives the commit that base names and the local branch it is.
func (g *Git) resolveBase(ctx context.Context, dir, base string) (commit, branch string, err error) {
	name := base
	if name == "" {
		name = "HEAD"
	}
	commit, err = g.revision(ctx, dir, name+"^{commit}")
	if err != nil {
		return "", "", err
	}
	if commit == "" {
		if head, err := g.revision(ctx, dir, "HEAD"); err == nil && head == "" && name == "HEAD" {
			return "", "", &Error{Kind: ErrNoCommits,
				Msg: fmt.Sprintf("the repository at %q has no commits yet", dir),
				Tip: "commit what the task shall start from: git add -A && git commit"}
		}
		return "", "", &Error{Kind: ErrUnknownBase,
			Msg: fmt.Sprintf("base %q names no commit of the repository at %q", base, dir),
			Tip: "name a branch, a tag or a commit that `git log` shows there; fetch it first if it is remote"}
	}
	if name != "HEAD" {
		ref := strings.TrimPrefix(name, "refs/heads/")
		// Only its exact name: main~1 and main@{1} are commits, and no branches.
		if g.run(ctx, call{args: []string{"show-ref", "--verify", "--quiet", "refs/heads/" + ref}, dir: dir}) == nil {
			branch = ref
		}
		return commit, branch, nil
	}
	ref, err := g.line(ctx, call{args: []string{"symbolic-ref", "-q", "HEAD"}, dir: dir})
	if err != nil && exitCode(err) != 1 {
		return "", "", fmt.Errorf("read HEAD of %q: %w", dir, err)
	}
	branch, _ = strings.CutPrefix(ref, "refs/heads/")
	return commit, branch, nil
}

// revision gives the id that name stands for, or "" when it names nothing.
func (g *Git) revision(ctx context.Context, dir, name string) (string, error) {
	if strings.HasPrefix(name, "-") || strings.ContainsAny(name, "\x00\n") {
		return "", nil // no revision looks so, and git would take it for an option
	}
	id, err := g.line(ctx, call{args: []string{"rev-parse", "--verify", "--quiet", name}, dir: dir})
	if err != nil {
		var ge *GitError
		if errors.As(err, &ge) && exitCode(err) > 0 {
			return "", nil
		}
		return "", fmt.Errorf("look up %q in %q: %w", name, dir, err)
	}
	return id, nil
}

// uncommitted looks for what the task will not see. The user's own filters are
// switched off: without the user's environment they may fail, and a note is no
// reason to run programs.
func (g *Git) uncommitted(ctx context.Context, top string) (modified, untracked bool, err error) {
	names, err := g.output(ctx, call{dir: top, args: []string{"config", "-z", "--name-only", "--get-regexp", `^filter\.`}})
	if err != nil && exitCode(err) != 1 { // 1: there are none
		return false, false, err
	}
	var args []string
	for key := range strings.SplitSeq(string(names), "\x00") {
		switch {
		case strings.HasSuffix(key, ".required"):
			args = append(args, "-c", key+"=false")
		case key != "":
			args = append(args, "-c", key+"=")
		}
	}
	out, err := g.output(ctx, call{dir: top, args: append(args,
		"status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal", "--ignore-submodules=all")})
	if err != nil {
		return false, false, err
	}
	for rec := range strings.SplitSeq(string(out), "\x00") {
		if strings.HasPrefix(rec, "?? ") {
			untracked = true
		} else if rec != "" {
			modified = true
		}
	}
	return modified, untracked, nil
}
