package review

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/workspace"
)

// Conditions that a caller may want to tell apart with [errors.Is].
var (
	// ErrBusy: the work tree, or the target, is not as a merge needs it.
	ErrBusy = errors.New("not ready for a merge")
	// ErrMoved: the target is another commit than it was.
	ErrMoved = errors.New("the target moved")
)

// Repo is the user's repository as a review works on it.
type Repo struct {
	Git *workspace.Git
	Src workspace.Source
	// User is the user's environment, for git in their own work tree.
	User func(string) (string, bool)
}

func (r *Repo) line(ctx context.Context, args ...string) (string, error) {
	return r.Git.Line(ctx, workspace.Call{GitDir: r.Src.Repo, Args: args})
}

// Branches returns the commits of all branches, by their full names.
func (r *Repo) Branches(ctx context.Context) (map[string]string, error) {
	out, err := r.line(ctx, "for-each-ref", "--format=%(objectname) %(refname)", "refs/heads/")
	if err != nil {
		return nil, fmt.Errorf("list the branches of %q: %w", r.Src.Repo, err)
	}
	refs := map[string]string{}
	for l := range strings.SplitSeq(out, "\n") {
		if id, ref, ok := strings.Cut(l, " "); ok {
			refs[ref] = id
		}
	}
	return refs, nil
}

// Tip returns the commit of a branch by its full name; "" is that there is none.
func (r *Repo) Tip(ctx context.Context, ref string) (string, error) {
	id, err := r.line(ctx, "rev-parse", "--verify", "--quiet", ref+"^{commit}")
	if workspace.ExitCode(err) == 1 {
		return "", nil
	}
	return id, err
}

// CheckRef refuses what is no full name of a branch.
func (r *Repo) CheckRef(ctx context.Context, ref string) error {
	name, ok := strings.CutPrefix(ref, "refs/heads/")
	if _, err := r.line(ctx, "check-ref-format", ref); !ok || err != nil || strings.HasPrefix(name, "-") || strings.ContainsAny(ref, "\x00\n") {
		return &workspace.Error{Kind: workspace.ErrInvalid,
			Msg: fmt.Sprintf("%q is no name of a branch", name), Tip: "--onto BRANCH names a local branch"}
	}
	return nil
}

// Contains reports whether a commit is an ancestor of another one, or the same.
func (r *Repo) Contains(ctx context.Context, commit, in string) (bool, error) {
	_, err := r.line(ctx, "merge-base", "--is-ancestor", commit, in)
	if workspace.ExitCode(err) == 1 {
		return false, nil
	}
	return err == nil, err
}

// Outcome is what the target would be.
type Outcome struct {
	Tree      string
	Conflicts []workspace.Path // no tree then
}

// Merge makes the tree of onto with the commit merged into it, without a work tree. That one of
// them is not there is an error that wraps [fs.ErrNotExist].
func Merge(ctx context.Context, b *workspace.Borrowed, onto, commit string) (Outcome, error) {
	out, err := b.Output(ctx, nil, "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", onto, commit)
	if err != nil && workspace.ExitCode(err) != 1 {
		if workspace.ExitCode(err) == 129 {
			return Outcome{}, &workspace.Error{Kind: errors.ErrUnsupported, Msg: "this git cannot merge without a work tree",
				Tip: "a git of 2.38 or newer can", Err: err}
		}
		return Outcome{}, fmt.Errorf("merge %s into %s: %w", commit, onto, err)
	}
	parts := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	if parts[0] == "" { // of a conflict there is a tree, too
		return Outcome{}, &workspace.Error{Kind: fs.ErrNotExist, Err: err,
			Msg: fmt.Sprintf("%.12s cannot be merged into %.12s: the repository does not have both", commit, onto)}
	}
	if workspace.ExitCode(err) != 1 {
		return Outcome{Tree: parts[0]}, nil
	}
	var o Outcome
	for _, p := range parts[1:] {
		if p != "" {
			o.Conflicts = append(o.Conflicts, workspace.Path(p))
		}
	}
	return o, nil
}

// TreeOn is what a target at the commit onto would be with a result that started from
// base: the result's own tree where the target is still that.
func TreeOn(ctx context.Context, b *workspace.Borrowed, base, onto, commit string) (Outcome, error) {
	if onto != base {
		return Merge(ctx, b, onto, commit)
	}
	tree, err := Tree(ctx, b, commit)
	return Outcome{Tree: tree}, err
}

// Tree is that of a commit.
func Tree(ctx context.Context, b *workspace.Borrowed, commit string) (string, error) {
	out, err := b.Output(ctx, nil, "rev-parse", "--verify", commit+"^{tree}")
	return string(bytes.TrimSpace(out)), err
}

// Beside makes a tree that has the files in a directory of this name beside what the
// other tree has, which must not have that name itself.
func Beside(ctx context.Context, b *workspace.Borrowed, tree, name string, files map[string][]byte) (string, error) {
	have, err := b.Output(ctx, nil, "ls-tree", "-z", tree)
	if err != nil {
		return "", err
	}
	for rec := range strings.SplitSeq(string(have), "\x00") {
		if _, p, _ := strings.Cut(rec, "\t"); strings.EqualFold(p, name) {
			return "", &workspace.Error{Kind: workspace.ErrInvalid,
				Msg: "the result has a file " + workspace.Path(p).Printable() + ", which a review needs for itself"}
		}
	}
	var inner strings.Builder
	for _, file := range slices.Sorted(maps.Keys(files)) {
		id, err := b.Output(ctx, bytes.NewReader(files[file]), "hash-object", "-w", "--stdin")
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&inner, "100644 blob %s\t%s\x00", bytes.TrimSpace(id), file)
	}
	sub, err := b.Output(ctx, strings.NewReader(inner.String()), "mktree", "-z")
	if err != nil {
		return "", err
	}
	all := fmt.Sprintf("%s040000 tree %s\t%s\x00", have, bytes.TrimSpace(sub), name)
	out, err := b.Output(ctx, strings.NewReader(all), "mktree", "-z", "--missing")
	return string(bytes.TrimSpace(out)), err
}

// Person is an author and committer.
type Person struct{ Name, Email string }

// Me is the user as their own git knows them.
func (r *Repo) Me(ctx context.Context, fallback Person) Person {
	ask := func(name, key string) string {
		if v, ok := r.User(name); ok && v != "" {
			return v
		}
		v, err := r.Git.Line(ctx, workspace.Call{GitDir: r.Src.Repo, User: r.User, Args: []string{"config", "--get", key}})
		if err != nil {
			return ""
		}
		return v
	}
	p := Person{ask("GIT_COMMITTER_NAME", "user.name"), ask("GIT_COMMITTER_EMAIL", "user.email")}
	if p.Name == "" {
		p.Name = fallback.Name
	}
	if p.Email == "" {
		p.Email = fallback.Email
	}
	return p
}

// environ are the variables that make git write them down.
func (p Person) environ(unix int64) []string {
	env := []string{"GIT_AUTHOR_NAME=" + p.Name, "GIT_AUTHOR_EMAIL=" + p.Email, "GIT_COMMITTER_NAME=" + p.Name, "GIT_COMMITTER_EMAIL=" + p.Email}
	if unix > 0 {
		at := fmt.Sprintf("=%d +0000", unix)
		env = append(env, "GIT_AUTHOR_DATE"+at, "GIT_COMMITTER_DATE"+at)
	}
	return env
}

// Commit is [Repo.Made], and gives the commit to the user's repository.
func (r *Repo) Commit(ctx context.Context, b *workspace.Borrowed, tree, onto, commit, message string, who Person, unix int64) (string, error) {
	id, err := r.Made(ctx, b, tree, onto, commit, message, who, unix)
	if err != nil {
		return "", err
	}
	if err := b.Give(ctx, id, "^"+onto, "^"+commit); err != nil {
		return "", fmt.Errorf("store the merge commit in %q: %w", r.Src.Repo, err)
	}
	return id, nil
}

// Made makes the merge commit of onto and commit with this tree in what is borrowed, and
// looks once more whether its tree is the one.
func (r *Repo) Made(ctx context.Context, b *workspace.Borrowed, tree, onto, commit, message string, who Person, unix int64) (string, error) {
	id, err := r.Git.Line(ctx, workspace.Call{GitDir: b.Dir, Env: who.environ(unix), Stdin: strings.NewReader(message),
		Args: []string{"commit-tree", "-p", onto, "-p", commit, "-F", "-", tree}})
	if err != nil {
		return "", fmt.Errorf("make the merge commit: %w", err)
	}
	if got, err := Tree(ctx, b, id); err != nil || got != tree {
		return "", errors.Join(fmt.Errorf("the merge commit has the tree %q and not %s", got, tree), err)
	}
	return id, nil
}

// gitDirs are those of the repository's work trees: its own, and the linked ones.
func (r *Repo) gitDirs() []string {
	linked, _ := filepath.Glob(filepath.Join(globDir(r.Src.Repo), "worktrees", "*"))
	return append([]string{r.Src.Repo}, linked...)
}

// globDir is the pattern that matches this directory alone.
func globDir(dir string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(dir)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}
