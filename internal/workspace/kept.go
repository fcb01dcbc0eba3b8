package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// CollectKept is [Git.Collect] of a work tree that was kept, after its runner,
// which berth's own git directory may not have outlived. It is then made again
// from the user's repository.
func (g *Git) CollectKept(ctx context.Context, attemptDir string, src Source, opts CollectOptions) (Result, error) {
	gitDir := filepath.Join(attemptDir, GitDir)
	if _, err := os.Stat(filepath.Join(gitDir, "objects", "info", "alternates")); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return Result{}, fmt.Errorf("collect the result: %w", err)
		}
		if err := g.checkSource(ctx, src); err != nil {
			return Result{}, err
		}
		if err := disk.FreshDir(gitDir); err != nil {
			return Result{}, fmt.Errorf("collect the result: %w", err)
		}
		if err := g.initBare(ctx, gitDir, src, src.Repo); err != nil {
			return Result{}, fmt.Errorf("collect the result: %w", err)
		}
	}
	return g.Collect(ctx, attemptDir, src, opts)
}

// MostRecorded is how many paths out of scope a job's record names; behind them is how many
// more there are.
const MostRecorded = 20

// Record is what of a result a job's record holds; the manifest has every path.
func (r Result) Record() jobs.Result {
	out := jobs.Result{Branch: r.Branch, Base: r.Base, Commit: r.Commit, Tree: r.Tree, Files: len(r.Files),
		Insertions: r.Insertions, Deletions: r.Deletions, Skipped: len(r.Skipped) + r.SkippedMore, LookAt: r.LookAt, Apart: r.Apart}
	for i, p := range r.OutOfScope {
		if i == MostRecorded {
			out.OutOfScope = append(out.OutOfScope, fmt.Sprintf("and %d more", len(r.OutOfScope)-MostRecorded))
			break
		}
		out.OutOfScope = append(out.OutOfScope, fmt.Sprint(p))
	}
	return out
}

// Manifest reads that of an attempt; nil is that there is none.
func Manifest(attemptDir string) (*Result, error) {
	data, err := optional(filepath.Join(attemptDir, ManifestFile))
	if data == nil || err != nil {
		return nil, err
	}
	var res Result
	if err := json.Unmarshal(data, &res); err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	return &res, nil
}

// LeftOut is what the manifest of an attempt lists as left out of the branch, and
// how many paths there are beyond the list. Without a manifest it is nothing.
func LeftOut(attemptDir string) (paths []Path, more int, err error) {
	res, err := Manifest(attemptDir)
	if res == nil || err != nil {
		return nil, 0, err
	}
	for _, s := range res.Skipped {
		if s.Kind != NoContent { // nothing of that could be brought
			paths = append(paths, s.Path)
		}
	}
	return paths, res.SkippedMore, nil
}

// CopyOut copies files of a work tree that was kept, as [CollectArtifacts] does, to
// a directory that may have other files.
func CopyOut(ctx context.Context, workDir, destDir string, paths []Path) (_ Artifacts, err error) {
	c := &copier{
		limits: ArtifactLimits{FileBytes: math.MaxInt64, TotalBytes: math.MaxInt64, Files: math.MaxInt, Others: true},
		dest:   destDir,
		rep:    &omissions{},
	}
	if c.src, err = openTree(workDir); err != nil {
		return Artifacts{}, err
	}
	defer c.src.Close()
	if err := os.MkdirAll(destDir, 0o700); err != nil {
		return Artifacts{}, err
	}
	if c.dst, err = os.OpenRoot(destDir); err != nil {
		return Artifacts{}, err
	}
	defer c.dst.Close()
	for _, p := range paths {
		if err := ctx.Err(); err != nil {
			return Artifacts{}, err
		}
		fi, err := c.src.Lstat(string(p))
		switch {
		case err != nil:
			c.rep.skip(string(p), Unreadable, "cannot be read: "+reason(err))
		case fi.IsDir():
			c.rep.skip(string(p), Refused, "is a directory")
		default:
			if err := c.file(ctx, c.src, string(p), string(p), fi); err != nil {
				return Artifacts{}, fmt.Errorf("copy what was left out: %w", err)
			}
		}
	}
	c.res.Skipped, c.res.SkippedMore = c.rep.skipped, c.rep.unlisted
	return c.res, nil
}

// isGitOfTask tells whether a name in a directory of a work tree was put away by
// [Keep]: a .git of the task's, or what made a directory a bare repository.
func isGitOfTask(dir *os.Root, name string) bool {
	n, ok := strings.CutPrefix(name, GitOfTask)
	if !ok || n != "" && !strings.HasPrefix(n, "-") {
		return false
	}
	fi, err := dir.Lstat(name)
	return err == nil && fi.Mode().Perm() == 0
}
