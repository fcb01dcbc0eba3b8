package review

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/workspace"
)

// Move is the move of a branch, as the journal has it.
type Move struct {
	Ref, Old, New string
	Worktree      string // where it is checked out; "" is nowhere
	Message       string // for git's log of the branch
	Who           Person
}

func busy(tip, format string, a ...any) error {
	return &workspace.Error{Kind: ErrBusy, Msg: fmt.Sprintf(format, a...), Tip: tip}
}

// short is the name of a branch for people.
func short(ref string) string { return strings.TrimPrefix(ref, "refs/heads/") }

// Where returns the one work tree in which the branch is checked out; "" is none.
// Several, one that is not there, and a branch that a rebase or a bisect holds are
// refused.
func (r *Repo) Where(ctx context.Context, ref string) (string, error) {
	if to, err := r.line(ctx, "symbolic-ref", "--quiet", ref); err == nil {
		return "", busy("merge into that one: --onto "+short(to), "branch %s is another name of %s", short(ref), short(to))
	}
	out, err := r.line(ctx, "worktree", "list", "--porcelain", "-z")
	if err != nil {
		return "", fmt.Errorf("list the work trees of %q: %w", r.Src.Repo, err)
	}
	var dirs []string
	dir := ""
	for line := range strings.SplitSeq(out, "\x00") {
		key, value, _ := strings.Cut(line, " ")
		switch {
		case key == "worktree":
			dir = value
		case key == "branch" && value == ref:
			dirs = append(dirs, dir)
		}
	}
	for _, d := range r.gitDirs() {
		if what := held(d, ref); what != "" {
			return "", busy("end it first: git status says how", "branch %s is in a %s that is not at its end (%s)", short(ref), what, d)
		}
	}
	switch {
	case len(dirs) == 0:
		return "", nil
	case len(dirs) > 1:
		return "", busy("git -C DIR switch --detach, in all of them but one",
			"branch %s is checked out in several work trees: %s", short(ref), strings.Join(dirs, ", "))
	case !isDir(dirs[0]):
		return "", busy("git worktree prune, if it is gone for good", "branch %s is checked out in %s, which is not there", short(ref), dirs[0])
	}
	common, err := r.user(ctx, dirs[0], nil, nil, "rev-parse", "--path-format=absolute", "--git-common-dir")
	if err == nil {
		common, err = filepath.EvalSymlinks(common)
	}
	if err != nil || common != r.Src.Repo {
		return "", busy("git -C "+dirs[0]+" status", "%s is no work tree of %s", dirs[0], r.Src.Repo)
	}
	return dirs[0], nil
}

// held says what holds a branch though no work tree has it checked out.
func held(gitDir, ref string) string {
	says := func(name string, want ...string) bool {
		b, err := os.ReadFile(filepath.Join(gitDir, name))
		text := strings.TrimSpace(string(b))
		for _, w := range want {
			if err == nil && text == w {
				return true
			}
		}
		return false
	}
	switch {
	case says("rebase-merge/head-name", ref), says("rebase-apply/head-name", ref):
		return "rebase"
	case says("BISECT_START", ref, short(ref)):
		return "bisect"
	}
	return ""
}

// user runs git in the user's work tree, with their configuration and filters.
func (r *Repo) user(ctx context.Context, dir string, env []string, stdin io.Reader, args ...string) (string, error) {
	return r.Git.Line(ctx, workspace.Call{Dir: dir, User: r.User, Env: env, Stdin: stdin, Args: args})
}

// midst refuses a work tree that is in the midst of something, and returns its git
// directory.
func (r *Repo) midst(ctx context.Context, dir string) (string, error) {
	gitDir, err := r.user(ctx, dir, nil, nil, "rev-parse", "--absolute-git-dir")
	if err != nil {
		return "", err
	}
	for _, p := range [][2]string{{"MERGE_HEAD", "merge"}, {"CHERRY_PICK_HEAD", "cherry-pick"}, {"REVERT_HEAD", "revert"}, {"rebase-merge", "rebase"},
		{"rebase-apply", "rebase"}, {"BISECT_LOG", "bisect"}} {
		if exists(filepath.Join(gitDir, p[0])) {
			return "", busy("end it first: git -C "+dir+" status says how", "the work tree %s is in the midst of a %s", dir, p[1])
		}
	}
	if lock := filepath.Join(gitDir, "index.lock"); exists(lock) {
		return "", busy("if none runs: rm "+lock+", then repeat", "another git is at work in %s, or was killed there", dir)
	}
	return gitDir, nil
}

// Ready refuses a work tree that is dirty, in the midst of something, or has files where
// the new commit would put others.
func (r *Repo) Ready(ctx context.Context, m Move) error {
	if _, err := r.midst(ctx, m.Worktree); err != nil {
		return err
	}
	dirty, err := r.dirty(ctx, m.Worktree)
	if err != nil {
		return err
	}
	if len(dirty) > 0 {
		return busy("commit or stash that, then repeat", "the work tree %s has changes that are not committed: %s", m.Worktree, listed(dirty))
	}
	// What was only touched would count as changed below.
	if _, err := r.user(ctx, m.Worktree, nil, nil, "update-index", "-q", "--refresh"); err != nil {
		return err
	}
	was, want, paths, err := r.between(ctx, m.Old, m.New)
	if err != nil {
		return err
	}
	if err := unmet(m, was, want, paths); err != nil {
		return err
	}
	_, err = r.user(ctx, m.Worktree, nil, nil, "read-tree", "-m", "-u", "--dry-run", m.Old, m.New)
	return refused(m, err)
}

// unmet refuses files that git does not know where the new commit has others: git itself
// would overwrite those that are ignored.
func unmet(m Move, was, want map[string]entry, paths []string) error {
	met := map[workspace.Path]bool{}
	for _, p := range paths {
		if was[p] != "" || want[p] == "" {
			continue
		}
		for d := path.Dir(p); d != "."; d = path.Dir(d) {
			if fi, err := os.Lstat(filepath.Join(m.Worktree, d)); err == nil && !fi.IsDir() && was[d] == "" {
				met[workspace.Path(d)] = true
			}
		}
		at := filepath.Join(m.Worktree, p)
		fi, err := os.Lstat(at)
		switch {
		case err != nil:
		case !fi.IsDir():
			if !throughLink(m.Worktree, p, was) {
				met[workspace.Path(p)] = true
			}
		default: // a directory that becomes a file
			_ = filepath.WalkDir(at, func(found string, d fs.DirEntry, err error) error {
				if rel, rerr := filepath.Rel(m.Worktree, found); err == nil && rerr == nil && !d.IsDir() && was[rel] == "" {
					met[workspace.Path(rel)] = true
				}
				return nil
			})
		}
	}
	if len(met) == 0 {
		return nil
	}
	return busy("move that away, then repeat",
		"the result has files where %s has others that git does not know: %s", m.Worktree, listed(slices.Sorted(maps.Keys(met))))
}

// throughLink says whether a path is seen only through a link that the old commit has.
func throughLink(top, p string, was map[string]entry) bool {
	for d := path.Dir(p); d != "."; d = path.Dir(d) {
		if fi, err := os.Lstat(filepath.Join(top, d)); err == nil && !fi.IsDir() && was[d] != "" {
			return true
		}
	}
	return false
}

// refused makes a condition of what git says is in its way.
func refused(m Move, err error) error {
	var ge *workspace.GitError
	if !errors.As(err, &ge) || workspace.ExitCode(err) < 0 {
		return err
	}
	return &workspace.Error{Kind: ErrBusy, Msg: fmt.Sprintf("the result cannot be put into the work tree %s: %v", m.Worktree, err),
		Tip: "move that away, then repeat", Err: err}
}

// dirty lists the tracked files that differ from HEAD, in index or work tree.
func (r *Repo) dirty(ctx context.Context, dir string) (out []workspace.Path, err error) {
	text, err := r.user(ctx, dir, nil, nil, "status", "--porcelain", "-z", "--no-renames", "--untracked-files=no", "--ignore-submodules=none")
	if err != nil {
		return nil, err
	}
	for rec := range strings.SplitSeq(text, "\x00") {
		if len(rec) > 3 {
			out = append(out, workspace.Path(rec[3:]))
		}
	}
	return out, nil
}

// listed names the first of some paths.
func listed(paths []workspace.Path) string {
	const enough = 10
	var names []string
	for i, p := range paths {
		if i == enough {
			names = append(names, fmt.Sprintf("and %d more", len(paths)-enough))
			break
		}
		names = append(names, p.Printable())
	}
	return strings.Join(names, ", ")
}

// Files moves the index and the files of the work tree; git refuses what it would
// overwrite.
func (r *Repo) Files(ctx context.Context, m Move) error {
	_, err := r.user(ctx, m.Worktree, nil, nil, "read-tree", "-m", "-u", m.Old, m.New)
	return refused(m, err)
}

// Point moves the branch in one transaction that compares its old commit. It is
// [ErrMoved] when the branch is another one.
func (r *Repo) Point(ctx context.Context, m Move) error {
	c := workspace.Call{GitDir: r.Src.Repo, Env: m.Who.environ(0), Stdin: strings.NewReader("update " + m.Ref + " " + m.New + " " + m.Old + "\n"),
		Args: []string{"update-ref", "--no-deref", "-m", m.Message, "--stdin"}}
	if m.Worktree != "" { // its HEAD has a log, too
		c.GitDir, c.Dir, c.User = "", m.Worktree, r.User
	}
	err := r.Git.Do(ctx, c)
	if err == nil {
		return nil
	}
	now, rerr := r.Tip(ctx, m.Ref)
	switch {
	case rerr != nil:
		return errors.Join(err, rerr)
	case now == m.New:
		return nil
	case now != m.Old:
		return &workspace.Error{Kind: ErrMoved, Msg: fmt.Sprintf("%s moved from %.12s to %.12s meanwhile", short(m.Ref), m.Old, now), Err: err}
	}
	return fmt.Errorf("move %s: %w", short(m.Ref), err)
}
