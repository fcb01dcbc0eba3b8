package review

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"berth/internal/workspace"
)

// entry is a path of an index or of a tree: its mode and id, or "" where there is none.
type entry string

// Resume moves index and files of a work tree that a killed merge may have begun to move.
// What it finds is either the old or the new state of each path, or nothing; a file that
// is something else was edited since, and nothing is touched.
func (r *Repo) Resume(ctx context.Context, m Move) error {
	gitDir, err := r.midst(ctx, m.Worktree)
	if err != nil {
		return err
	}
	if same, err := r.indexIs(ctx, m.Worktree, m.New); same || err != nil {
		return err
	}
	was, want, paths, err := r.between(ctx, m.Old, m.New)
	if err != nil {
		return err
	}
	dirty, err := r.dirty(ctx, m.Worktree)
	if err != nil {
		return err
	}
	var edited []workspace.Path
	for _, p := range dirty {
		if _, ours := want[string(p)]; !ours {
			edited = append(edited, p)
		}
	}
	have, err := r.onDisk(ctx, m.Worktree, gitDir, paths)
	if err != nil {
		return err
	}
	var done []string
	for _, p := range paths {
		switch {
		case have[p] == want[p]:
			done = append(done, p)
			was[p] = want[p]
		case have[p] == was[p] || have[p] == "":
		default:
			edited = append(edited, workspace.Path(p))
		}
	}
	if len(edited) > 0 {
		return busy("git -C "+m.Worktree+" status; put back what is not meant, then repeat",
			"a merge was killed here, and these files of %s were changed since: %s", m.Worktree, listed(edited))
	}
	if err := unmet(m, was, want, paths); err != nil {
		return err
	}
	// Git takes what is new already for a change of the user's that the merge has, too.
	if err := r.stage(ctx, m.Worktree, nil, done); err != nil {
		return err
	}
	return r.Files(ctx, m)
}

// PutBack undoes the move of index and files, where the branch has become another commit
// in between: only where they are exactly what the merge made of them.
func (r *Repo) PutBack(ctx context.Context, m Move) (bool, error) {
	if same, err := r.indexIs(ctx, m.Worktree, m.New); !same || err != nil {
		return false, err
	}
	if same, err := r.indexIs(ctx, m.Worktree, m.Ref); same || err != nil { // who moved it has committed the same
		return false, err
	}
	_, _ = r.user(ctx, m.Worktree, nil, nil, "update-index", "-q", "--refresh")
	if _, err := r.user(ctx, m.Worktree, nil, nil, "diff-files", "--quiet"); err != nil {
		return false, ifGit(err)
	}
	_, err := r.user(ctx, m.Worktree, nil, nil, "read-tree", "-m", "-u", m.New, m.Old)
	return err == nil, ifGit(err)
}

// ifGit is nil for a git that only answered no.
func ifGit(err error) error {
	if workspace.ExitCode(err) == 1 {
		return nil
	}
	return err
}

// indexIs reports whether the index is the tree of a commit.
func (r *Repo) indexIs(ctx context.Context, dir, commit string) (bool, error) {
	_, err := r.user(ctx, dir, nil, nil, "diff-index", "--cached", "--quiet", "--ignore-submodules=none", commit)
	return err == nil, ifGit(err)
}

// between are the entries of all paths that differ between two commits.
func (r *Repo) between(ctx context.Context, from, to string) (was, want map[string]entry, paths []string, err error) {
	out, err := r.line(ctx, "diff-tree", "-r", "-z", "--no-renames", "--raw", "--ignore-submodules=none", from, to)
	if err != nil {
		return nil, nil, nil, err
	}
	was, want = map[string]entry{}, map[string]entry{}
	fields := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		f := strings.Fields(strings.TrimPrefix(fields[i], ":"))
		if len(f) != 5 {
			return nil, nil, nil, fmt.Errorf("unexpected line %q in a diff", fields[i])
		}
		p := fields[i+1]
		was[p], want[p] = entryOf(f[0], f[2]), entryOf(f[1], f[3])
		paths = append(paths, p)
	}
	return was, want, paths, nil
}

func entryOf(mode, id string) entry {
	if strings.Trim(mode, "0") == "" {
		return ""
	}
	return entry(mode + " " + id)
}

// onDisk are the entries of what stands at these paths in the work tree: those that a
// copy of the index gets.
func (r *Repo) onDisk(ctx context.Context, dir, gitDir string, paths []string) (_ map[string]entry, err error) {
	tmp, err := copyOf(filepath.Join(gitDir, "index"))
	if err != nil {
		return nil, err
	}
	defer func() {
		if rerr := os.Remove(tmp); rerr != nil && !errors.Is(rerr, os.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}()
	env := []string{"GIT_INDEX_FILE=" + tmp}
	if err := r.stage(ctx, dir, env, paths); err != nil {
		return nil, err
	}
	out, err := r.user(ctx, dir, env, nil, "ls-files", "-s", "-z", "--full-name")
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, p := range paths {
		wanted[p] = true
	}
	have := map[string]entry{}
	for rec := range strings.SplitSeq(out, "\x00") {
		meta, p, _ := strings.Cut(rec, "\t")
		if f := strings.Fields(meta); wanted[p] && len(f) == 3 {
			have[p] = entryOf(f[0], f[1])
		}
	}
	return have, nil
}

// stage puts what stands at these paths into the index.
func (r *Repo) stage(ctx context.Context, dir string, env, paths []string) error {
	if len(paths) == 0 {
		return nil
	}
	list := strings.NewReader(strings.Join(paths, "\x00") + "\x00")
	_, err := r.user(ctx, dir, env, list, "update-index", "--add", "--remove", "--replace", "-z", "--stdin")
	return err
}

// copyOf copies an index to a file beside it, with its time: git looks closer at files
// that are as young as the index.
func copyOf(index string) (string, error) {
	from, err := os.Open(index)
	if err != nil {
		return "", err
	}
	defer from.Close()
	to, err := os.CreateTemp(filepath.Dir(index), "berth-index-*")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Close()); err == nil {
		var st os.FileInfo
		if st, err = from.Stat(); err == nil {
			err = os.Chtimes(to.Name(), time.Time{}, st.ModTime())
		}
	}
	if err != nil {
		_ = os.Remove(to.Name())
		return "", err
	}
	return to.Name(), nil
}
