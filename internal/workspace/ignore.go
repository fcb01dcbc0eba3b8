package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"berth/internal/sys/disk"
)

// maxIgnoreFileBytes bounds a .gitignore; a larger one counts as absent.
const maxIgnoreFileBytes = 4 << 20

// maxIgnoreBytes bounds all of them, which are copied; further ones count as
// absent.
const maxIgnoreBytes = 64 << 20

// ignorer asks git which paths are ignored, by git's own rules, without letting
// it see the task's tree: it works in a shadow directory that holds copies of
// the .gitignore files and nothing else.
type ignorer struct {
	g      *Git
	gitDir string // its info/exclude holds too
	top    string // what is removed at the end
	dir    string
	also   string // a file of patterns that count least
	shadow *os.Root
	copied int64 // bytes in it
}

// strewn is what programs leave beside what a task has changed; a repository
// that wants them says so with "!" in its .gitignore.
const strewn = "__pycache__/\n"

// newIgnorer makes the shadow inside berth's git directory.
func (g *Git) newIgnorer(gitDir, also string) (_ *ignorer, err error) {
	top, err := os.MkdirTemp(gitDir, "ignore-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, disk.RemoveTree(top))
		}
	}()
	ig := &ignorer{g: g, gitDir: gitDir, top: top, dir: filepath.Join(top, "tree"), also: filepath.Join(top, "also")}
	if err := os.WriteFile(ig.also, []byte(strewn+also), 0o600); err != nil {
		return nil, err
	}
	if err := os.Mkdir(ig.dir, 0o700); err != nil {
		return nil, err
	}
	if ig.shadow, err = os.OpenRoot(ig.dir); err != nil {
		return nil, err
	}
	return ig, nil
}

func (ig *ignorer) close() error {
	return errors.Join(ig.shadow.Close(), disk.RemoveTree(ig.top))
}

// GlobalIgnore is what git ignores for the user of this process in all
// repositories: the file that core.excludesFile names, else git/ignore in the user's
// directory for configuration. It is "" where there is none that can be read.
func (g *Git) GlobalIgnore(ctx context.Context, getenv func(string) (string, bool)) string {
	home, _ := getenv("HOME")
	config, _ := getenv("XDG_CONFIG_HOME")
	if config == "" && home != "" {
		config = filepath.Join(home, ".config")
	}
	if !filepath.IsAbs(config) {
		return ""
	}
	env := []string{"HOME=" + home, "XDG_CONFIG_HOME=" + config, "LC_ALL=C"}
	for _, name := range append([]string{"GIT_CONFIG_GLOBAL"}, passedOn...) {
		if v, ok := getenv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	var out bytes.Buffer
	err := g.Run(ctx, Cmd{Args: []string{"git", "config", "--global", "--includes", "--type=path", "--get", "core.excludesFile"}, Dir: "/", Env: env,
		Stdout: &out})
	name := strings.TrimSuffix(out.String(), "\n")
	if err != nil || name == "" {
		name = filepath.Join(config, "git", "ignore")
	}
	if !filepath.IsAbs(name) {
		return ""
	}
	if real, err := filepath.EvalSymlinks(name); err == nil {
		name = real
	}
	b, err := disk.ReadRegular(name, maxGlobalIgnore)
	if err != nil || bytes.IndexByte(b, 0) >= 0 || !utf8.Valid(b) {
		return ""
	}
	return string(b)
}

// maxGlobalIgnore bounds that, which stands in the record of each job.
const maxGlobalIgnore = 64 << 10

// add copies the .gitignore of a directory of the work tree, which is open.
func (ig *ignorer) add(here *os.Root, dir string) error {
	name := path.Join(dir, ".gitignore")
	f, fi, err := openRegular(here, ".gitignore")
	if err != nil {
		return nil // git ignores one that it cannot read, or that is no file
	}
	defer f.Close()
	limit := min(maxIgnoreFileBytes, maxIgnoreBytes-ig.copied)
	if fi.Size() > limit {
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil
	}
	ig.copied += int64(len(data))
	if err := ig.shadow.MkdirAll(filepath.FromSlash(path.Dir(name)), 0o700); err != nil {
		return fmt.Errorf("copy %q: %w", name, err)
	}
	if err := ig.shadow.WriteFile(name, data, 0o600); err != nil {
		return fmt.Errorf("copy %q: %w", name, err)
	}
	return nil
}

// match gives those of the paths that are ignored. A directory ends in a
// slash. The .gitignore files of all their parents must have been added.
func (ig *ignorer) match(ctx context.Context, paths []string) (map[string]bool, error) {
	ignored := map[string]bool{}
	if len(paths) == 0 {
		return ignored, nil
	}
	var in bytes.Buffer
	for _, p := range paths {
		// With ./ no path is taken for pathspec magic.
		in.WriteString("./" + p)
		in.WriteByte(0)
	}
	out, err := ig.g.output(ctx, call{gitDir: ig.gitDir, dir: ig.dir, stdin: &in, args: []string{
		"--work-tree=" + ig.dir, "-c", "core.bare=false", "-c", "core.ignoreCase=false", "-c", "core.excludesFile=" + ig.also,
		"check-ignore", "--no-index", "-z", "--stdin"}})
	if err != nil && exitCode(err) != 1 { // 1: none is ignored
		return nil, fmt.Errorf("find out what is ignored: %w", err)
	}
	for p := range bytes.SplitSeq(out, []byte{0}) {
		ignored[string(bytes.TrimPrefix(p, []byte("./")))] = true
	}
	return ignored, nil
}
