package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/sys/disk"
)

// Names in the attempt's directory.
const (
	WorkDir      = "work"          // the task's work tree
	GitDir       = "git"           // berth's own git directory
	BundleFile   = "result.bundle" // base..commit as one branch
	DiffFile     = "diff.patch"    // the same as a patch
	ManifestFile = "manifest.json" // the [Result]
)

// noConversion is the info/attributes of both git directories: it outranks
// every .gitattributes and switches off all that changes bytes between a blob
// and a file. -text is "never convert"; -filter and the like are "none, even
// if a configuration defines one". diff is put back to git's own judgement, so
// that a .gitattributes cannot hide a change from a reader of the diff.
const noConversion = "* -text !eol -ident -filter -working-tree-encoding !diff !merge\n"

// Prepared is what Prepare made.
type Prepared struct {
	Work   string // the work tree, to be mounted in the container
	Git    string // berth's git directory, which the container must not see
	Branch string // the branch checked out in the work tree
	// Submodules are the paths left as empty directories.
	Submodules []Path
}

// Prepare makes the task's work tree ([Git].Work) checked out at src.Base, and, in
// the existing directory attemptDir, berth's own git directory that borrows the
// objects of the user's repository and keeps those of the base's tree itself:
// the result is made of them whatever becomes of the repository.
//
// The work tree has a .git of its own with copies of the objects reachable
// from the base, no remote and no path of this machine, so the container may
// write all of it. Attempt directories are used once: when either directory
// exists, that is an error. What a failed Prepare made is removed.
func (g *Git) Prepare(ctx context.Context, src Source, attemptDir string) (Prepared, error) {
	return g.prepare(ctx, src, attemptDir, func(gitDir string) (Source, error) {
		if err := g.keepBase(ctx, gitDir, src.Base); err != nil {
			return Source{}, explainFetch(src, err)
		}
		return src, nil
	})
}

// Continue is Prepare for a task that goes on: the work tree is checked out at
// commit, which a bundle of an earlier attempt from [Git.Collect] holds. What
// is collected then is all that differs from the base, as if one attempt had
// done it.
func (g *Git) Continue(ctx context.Context, src Source, attemptDir, bundle, commit string) (Prepared, error) {
	return g.prepare(ctx, src, attemptDir, func(gitDir string) (Source, error) {
		if err := g.keepBase(ctx, gitDir, src.Base); err != nil {
			return Source{}, explainFetch(src, err)
		}
		if err := g.unpack(ctx, gitDir, bundle); err != nil { // it was judged when it was made
			return Source{}, err
		}
		parents, err := g.line(ctx, call{gitDir: gitDir, args: []string{"rev-list", "--parents", "--max-count=1", commit}})
		if err != nil {
			return Source{}, err
		}
		if parents != commit+" "+src.Base {
			return Source{}, fmt.Errorf("commit %s is not work in progress from %s: %w", commit, src.Base, ErrRejected)
		}
		from := src
		from.Repo, from.Top, from.Base = gitDir, "", commit
		return from, nil
	})
}

// makeBelow makes the directory of the further work trees in the first one, whose commit
// may have a link in its place: that is not followed.
func makeBelow(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	if st, err := os.Lstat(dir); err != nil || !st.IsDir() {
		return errors.Join(&Error{Kind: ErrReplaced,
			Err: fmt.Errorf("the first repository has %s, where the other workspaces stand", filepath.Base(dir)),
			Tip: "the first repository has to be without it"}, err)
	}
	return nil
}

// prepare makes the work tree from what from gives, which is told where
// berth's own git directory is.
func (g *Git) prepare(ctx context.Context, src Source, attemptDir string, from func(gitDir string) (Source, error)) (_ Prepared, err error) {
	p := Prepared{
		Work: g.workOf(attemptDir), Git: filepath.Join(attemptDir, GitDir),
		Branch: src.Branch,
	}
	if p.Branch == "" {
		p.Branch = "main"
	}
	if err := g.checkSource(ctx, src); err != nil {
		return Prepared{}, err
	}
	if g.Below != "" {
		if err := os.MkdirAll(attemptDir, 0o700); err != nil {
			return Prepared{}, fmt.Errorf("prepare the workspace: %w", err)
		}
		if err := makeBelow(filepath.Dir(p.Work)); err != nil {
			return Prepared{}, fmt.Errorf("prepare the workspace: %w", err)
		}
	}
	made := []string{}
	defer func() {
		if err != nil {
			for _, d := range made {
				err = errors.Join(err, disk.RemoveTree(d))
			}
		}
	}()
	for _, d := range []string{p.Git, p.Work} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return Prepared{}, fmt.Errorf("prepare the workspace: %w", err)
		}
		made = append(made, d)
	}
	if err := g.initBare(ctx, p.Git, src, src.Repo, filepath.Join(p.Git, baseDir)); err != nil {
		return Prepared{}, fmt.Errorf("prepare berth's git directory: %w", err)
	}
	origin, err := from(p.Git)
	if err != nil {
		return Prepared{}, fmt.Errorf("prepare berth's git directory: %w", err)
	}
	if err := g.clone(ctx, origin, p); err != nil {
		return Prepared{}, fmt.Errorf("clone %q for the task: %w", src.Repo, err)
	}
	base, err := g.readTree(ctx, p.Git, src.Base)
	if err != nil {
		return Prepared{}, err
	}
	for name, e := range base.entries {
		if e.mode == modeGitlink {
			p.Submodules = append(p.Submodules, Path(name))
		}
	}
	slices.Sort(p.Submodules)
	return p, nil
}

// initBare makes a git directory that borrows the user's objects, after those of
// other object directories, and takes over what the git directory from says of
// its history.
func (g *Git) initBare(ctx context.Context, dir string, src Source, from string, before ...string) error {
	if err := g.initAt(ctx, dir, src, "--bare"); err != nil {
		return err
	}
	files := map[string]string{
		"objects/info/alternates": alternates(append(before, filepath.Join(src.Repo, "objects"))...),
		"info/attributes":         noConversion,
	}
	// A shallow repository lacks commits on purpose; without this list git
	// would take it for a damaged one. The user's own exclusions hold as well.
	for _, name := range []string{"shallow", "info/exclude"} {
		data, err := os.ReadFile(filepath.Join(from, name))
		if err == nil {
			files[name] = string(data)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return writeFiles(dir, files)
}

// alternates is the text of a file of that name.
func alternates(dirs ...string) string {
	var b strings.Builder
	for _, d := range dirs {
		if strings.ContainsAny(d, "\n") {
			d = quote(d) // git reads the file by lines and undoes this
		}
		b.WriteString(d + "\n")
	}
	return b.String()
}

// initAt runs git init without templates: those are the machine's, and may
// hold hooks.
func (g *Git) initAt(ctx context.Context, dir string, src Source, flags ...string) error {
	format := "sha1"
	if len(src.Base) == 64 {
		format = "sha256"
	}
	args := append([]string{"init", "--quiet", "--template="}, flags...)
	return g.run(ctx, call{dir: dir, args: append(args, "."), env: []string{"GIT_DEFAULT_HASH=" + format}})
}

// clone fills p.Work.
func (g *Git) clone(ctx context.Context, src Source, p Prepared) error {
	if err := g.initAt(ctx, p.Work, src); err != nil {
		return err
	}
	dotGit := filepath.Join(p.Work, ".git")
	for _, kv := range [][2]string{
		{"core.fileMode", "true"}, {"core.symlinks", "true"}, {"core.ignoreCase", "false"},
		{"core.logAllRefUpdates", "true"},
		// Tasks commit as they go; these commits are not what comes back, but
		// failing at them would confuse an agent.
		{"user.name", defaultIdentity.Name}, {"user.email", defaultIdentity.Email},
	} {
		if err := g.run(ctx, call{gitDir: dotGit, args: []string{"config", kv[0], kv[1]}}); err != nil {
			return err
		}
	}
	files := map[string]string{"info/attributes": noConversion, "HEAD": "ref: refs/heads/" + p.Branch + "\n"}
	if exclude, err := os.ReadFile(filepath.Join(p.Git, "info", "exclude")); err == nil {
		files["info/exclude"] = string(exclude)
	}
	for _, dir := range g.Others { // the task's own git shall not show it as new
		files["info/exclude"] = strings.TrimSuffix("/"+dir+"/\n"+files["info/exclude"], "\n") + "\n"
	}
	if err := writeFiles(dotGit, files); err != nil {
		return err
	}
	// Fetch speaks the protocol even on one machine, so objects are copied and
	// never linked. The commit is asked for by id: no branch need hold it.
	loud := "--quiet"
	if g.Progress != nil {
		loud = "--progress"
	}
	err := g.run(ctx, call{gitDir: dotGit, told: g.Progress, args: []string{
		"-c", "fetch.unpackLimit=1", // one pack is kinder to NFS than thousands of files
		"fetch", loud, "--no-tags", "--update-shallow", "--no-recurse-submodules",
		"--upload-pack=git -c uploadpack.allowAnySHA1InWant=true -c core.hooksPath=/dev/null upload-pack --strict",
		src.Repo, src.Base}})
	if err != nil {
		return explainFetch(src, err)
	}
	// It names the user's repository.
	if err := os.Remove(filepath.Join(dotGit, "FETCH_HEAD")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := g.run(ctx, call{gitDir: dotGit, args: []string{"update-ref", "refs/heads/" + p.Branch, src.Base}}); err != nil {
		return err
	}
	index := []string{"GIT_INDEX_FILE=" + filepath.Join(dotGit, "index")}
	checkout := func(args ...string) error {
		return g.run(ctx, call{gitDir: p.Git, dir: p.Work, env: index,
			args: append([]string{"--work-tree=" + p.Work, "-c", "core.bare=false",
				"-c", "core.symlinks=true", "-c", "core.fileMode=true", "-c", "core.ignoreCase=false"}, args...)})
	}
	if err := checkout("read-tree", src.Base); err != nil {
		return err
	}
	if g.Progress != nil {
		g.Progress("checking out the files")
	}
	return checkout("checkout-index", "--all", "--quiet", "--index")
}

func explainFetch(src Source, err error) error {
	var ge *GitError
	if errors.As(err, &ge) && (strings.Contains(ge.Stderr, "promisor") ||
		strings.Contains(ge.Stderr, "lazy fetching") ||
		strings.Contains(ge.Stderr, "missing blob") ||
		strings.Contains(ge.Stderr, "unable to read ") ||
		strings.Contains(ge.Stderr, "transport 'file' not allowed")) {
		return partialClone(src, err)
	}
	return err
}

// writeFiles creates files, and the directories they lie in, below dir.
func writeFiles(dir string, files map[string]string) error {
	for name, content := range files {
		p := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// IsObjectID reports whether a text is the full id of an object of git's.
func IsObjectID(s string) bool { return isObjectID(s) }

func isObjectID(s string) bool {
	return (len(s) == 40 || len(s) == 64) && strings.Trim(s, "0123456789abcdef") == ""
}
