package doctor

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"berth/internal/sys/disk"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
)

// Here is the ground of this machine: a directory in the state directory.
type Here struct {
	State string
	// Install puts the program for the nodes into a directory and returns its
	// path.
	Install func(dir string) (string, error)

	dir  string
	made []string // what was missing above it, the innermost first
}

// Make makes the state directory too, where it is missing.
func (h *Here) Make(context.Context) (dir, node string, err error) {
	if h.made, err = makeState(h.State); err != nil {
		return "", "", err
	}
	if h.dir, err = os.MkdirTemp(h.State, dirPrefix+"*"); err != nil {
		return "", "", infra("make a directory for the job", err, "is there space left? df -h "+h.State)
	}
	node, err = h.Install(filepath.Join(h.dir, "bin"))
	return h.dir, node, err
}

// makeState makes the state directory where it is missing, and returns what it
// has made, the innermost first. One that berth would refuse is refused: a job
// runs programs from it.
func makeState(state string) (made []string, err error) {
	st, err := store.At(state)
	if err != nil {
		return nil, err
	}
	for dir := st.Home(); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			break
		}
		made = append(made, dir)
	}
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, infra("make the state directory", err, "set BERTH_HOME to a directory that you may write and the nodes see")
	}
	return made, st.Trusted()
}

// Write writes a file.
func (*Here) Write(_ context.Context, path string, data []byte, mode fs.FileMode) error {
	return os.WriteFile(path, data, mode)
}

// Read opens the directory first, which has NFS look again.
func (*Here) Read(_ context.Context, path string) ([]byte, error) {
	_, _ = os.ReadDir(filepath.Dir(path))
	return os.ReadFile(path)
}

// Remove leaves the state directory alone when it was there before, or is in
// use by now.
func (h *Here) Remove(context.Context) error {
	var err error
	if h.dir != "" {
		err = disk.RemoveTree(h.dir)
	}
	for _, d := range h.made {
		if os.Remove(d) != nil {
			break
		}
	}
	return err
}

// There is the ground of a host that On starts programs on.
type There struct {
	On      jobs.Starter
	Install func(ctx context.Context) (name string, err error) // puts the program there, as name in ~/.local/state/berth/bin
	// Identity is who the user is there, once Make has returned.
	Identity jobs.Identity

	dir string
}

// Scripts for the host's /bin/sh.
const (
	thereMake = `umask 077; d=$HOME/.local/state/berth; mkdir -p "$d" || exit 1; n=$(mktemp -d "$d/` + dirPrefix + `XXXXXXXX") || exit 1; ` +
		`printf 'berth:%s\n' "$n" "$HOME" "$(id -un)" "${SHELL:-/bin/sh}"`
	thereWrite  = `umask 077; cat >"$1" && chmod "$2" "$1"`
	thereRead   = `ls -a "${1%/*}" >/dev/null 2>&1; [ -e "$1" ] || exit 44; cat "$1"`
	thereRemove = `case $1 in */` + dirPrefix + `?*) rm -rf "$1" ;; esac`
	exitMissing = 44
)

func (t *There) sh(ctx context.Context, stdin []byte, script string, args ...string) ([]byte, error) {
	c := jobs.Cmd{Argv: append([]string{"/bin/sh", "-c", script, "sh"}, args...)}
	if stdin != nil {
		c.Stdin = bytes.NewReader(stdin)
	}
	out, err := run.Output(ctx, t.On, c)
	var failed *run.Error
	if errors.As(err, &failed) {
		failed.Argv = []string{"a shell there"} // the script is too long to read
	}
	return out, err
}

// Make asks who the user is there, too.
func (t *There) Make(ctx context.Context) (dir, node string, err error) {
	name, err := t.Install(ctx)
	if err != nil {
		return "", "", err
	}
	out, err := t.sh(ctx, nil, thereMake)
	if err != nil {
		return "", "", infra("make a directory for the job", err, "")
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		if l, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "berth:"); ok { // a login may print more
			lines = append(lines, l)
		}
	}
	if len(lines) != 4 || !path.IsAbs(lines[0]) || !path.IsAbs(lines[1]) || jobs.CheckText("the home directory there", lines[1]) != nil {
		return "", "", infra("make a directory for the job: the host gave an answer that makes no sense", nil, "")
	}
	t.dir = lines[0]
	t.Identity = jobs.Identity{Home: lines[1], User: lines[2], Shell: lines[3]}
	return t.dir, path.Join(lines[1], ".local/state/berth/bin", name), nil
}

// Write writes a file.
func (t *There) Write(ctx context.Context, path string, data []byte, mode fs.FileMode) error {
	perm := "600"
	if mode&0o100 != 0 {
		perm = "700"
	}
	_, err := t.sh(ctx, data, thereWrite, path, perm)
	return err
}

// Read reads a file.
func (t *There) Read(ctx context.Context, path string) ([]byte, error) {
	out, err := t.sh(ctx, nil, thereRead, path)
	var failed *run.Error
	if errors.As(err, &failed) && failed.Exit.Code == exitMissing {
		return nil, fs.ErrNotExist
	}
	return out, err
}

// Remove removes the directory. The program stays, for the next time.
func (t *There) Remove(ctx context.Context) error {
	if t.dir == "" {
		return nil
	}
	_, err := t.sh(ctx, nil, thereRemove, t.dir)
	return err
}
