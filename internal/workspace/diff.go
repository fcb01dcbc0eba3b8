package workspace

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// diffFlags keep every diff to what git itself does, whatever an attribute or
// a configuration asks for. Submodules are compared by their commit ids only.
var diffFlags = []string{"diff-tree", "-r", "-M", "--no-ext-diff", "--no-textconv", "--no-color",
	"--ignore-submodules=none", "--submodule=short", "--src-prefix=a/", "--dst-prefix=b/"}

// changes lists what a commit changes against the base.
func (c *collector) changes(ctx context.Context, commit string) ([]Change, error) {
	out, err := c.g.output(ctx, call{gitDir: c.gitDir, env: c.env,
		args: append(append([]string{}, diffFlags...), "-z", "--raw", "--numstat", c.src.Base, commit)})
	if err != nil {
		return nil, err
	}
	return parseChanges(string(out))
}

// diff writes the patch against the base; an empty one when nothing changed.
func (c *collector) diff(ctx context.Context, res Result) error {
	return writeWhole(filepath.Join(c.attempt, DiffFile), func(f *os.File) error {
		if !res.Changed {
			return nil
		}
		return c.g.run(ctx, call{gitDir: c.gitDir, stdout: f,
			args: append(append([]string{}, diffFlags...), "-p", "--binary", res.Base, res.Commit)})
	})
}

var statuses = map[byte]Status{'A': Added, 'M': Modified, 'D': Deleted, 'R': Renamed, 'T': TypeChanged}

// parseChanges reads what diff-tree -z --raw --numstat writes: first a record
// ":oldmode newmode oldid newid X" and its one or two paths for each change,
// then "ins<TAB>del<TAB>path", where a rename has an empty path and two more.
func parseChanges(out string) ([]Change, error) {
	fields := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	changes := []Change{}
	index := map[Path]int{}
	next := func() (string, bool) {
		if len(fields) == 0 {
			return "", false
		}
		f := fields[0]
		fields = fields[1:]
		return f, true
	}
	for {
		rec, ok := next()
		if !ok || rec == "" {
			return changes, nil
		}
		if rec[0] == ':' {
			ch, err := parseRaw(rec, next)
			if err != nil {
				return nil, err
			}
			index[ch.Path] = len(changes)
			changes = append(changes, ch)
			continue
		}
		ins, rest, ok1 := strings.Cut(rec, "\t")
		del, name, ok2 := strings.Cut(rest, "\t")
		if name == "" {
			next() // the old name
			name, _ = next()
		}
		i, known := index[Path(name)]
		if !ok1 || !ok2 || !known {
			return nil, fmt.Errorf("unexpected line %q in a diff", rec)
		}
		if ins == "-" {
			changes[i].Binary = true
			continue
		}
		var err1, err2 error
		changes[i].Insertions, err1 = strconv.Atoi(ins)
		changes[i].Deletions, err2 = strconv.Atoi(del)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("unexpected line %q in a diff", rec)
		}
	}
}

func parseRaw(rec string, next func() (string, bool)) (Change, error) {
	bad := fmt.Errorf("unexpected line %q in a diff", rec)
	f := strings.Fields(rec[1:])
	if len(f) != 5 {
		return Change{}, bad
	}
	ch := Change{OldMode: f[0], Mode: f[1], id: f[3], Status: statuses[f[4][0]]}
	if ch.Status == "" {
		return Change{}, bad
	}
	name, ok := next()
	if ch.Status == Renamed {
		ch.OldPath = Path(name)
		name, ok = next()
	}
	if !ok || name == "" {
		return Change{}, bad
	}
	ch.Path = Path(name)
	if ch.Status == Deleted {
		ch.Mode = ""
	}
	if ch.Status == Added {
		ch.OldMode = ""
	}
	return ch, nil
}

// writeWhole creates a file under its name only when it is complete and on
// disk.
func writeWhole(name string, write func(*os.File) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if err := write(f); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(name), err)
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), name); err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
