package cli

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"berth/internal/sys/disk"
	"berth/jobs"

	"github.com/spf13/cobra"
)

//go:embed init_example.md
var exampleTask []byte

//go:embed init_agents.md
var agentsSection string

// ignoreSection are patterns of what people keep beside a repository for berth.
const ignoreSection = "*.sif\n/tasks/*.local.md\n"

// maxInit bounds a file that a section is put into.
const maxInit = 4 << 20

// initFile is a file of a repository, and what is done to it.
type initFile struct {
	Path string `json:"path"` // from the top of the repository
	Did  string `json:"did"`  // wrote, added, changed, unchanged, or left alone
	data []byte // nil is nothing to write
	mode fs.FileMode
}

func (a *app) initCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "init",
		Long: `Prepare the git repository of the current directory, and print what was done to which
file:

  tasks/example.md   a task file to begin with
  .gitignore         images (*.sif), and task files of your own (tasks/*.local.md)
  AGENTS.md          a section that tells an agent how to use berth here: to wait and never
                     to poll, what caps do, what is refused

Sections stand between marks of berth's; what is between them is replaced when berth init
is repeated, and nothing else. A file that is there already is never replaced. Nothing is
committed.
` + exitHelp + `0 done, or nothing to do, 2 this is no git repository, or something else than
a file stands there, 5 it could not be written.`,
		Example: `  berth init
  git add tasks .gitignore AGENTS.md`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			top := repositoryTop(".")
			if top == "" {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "the current directory is in no git repository", Hint: "git init"}
			}
			files, err := planInit(top)
			if err != nil {
				return err
			}
			if err := os.Mkdir(filepath.Join(top, tasksDir), 0o755); err != nil && //nolint:gosec // a directory of a repository
				!errors.Is(err, fs.ErrExist) {
				return &jobs.Error{Kind: jobs.KindInfra, Msg: "make the directory of task files", Err: err}
			}
			for _, f := range files {
				if err := f.write(top); err != nil {
					return &jobs.Error{Kind: jobs.KindInfra, Msg: "write " + f.Path, Err: err}
				}
			}
			if a.json {
				return a.printJSON(map[string]any{"files": files})
			}
			for _, f := range files {
				if _, err := fmt.Fprintf(a.stdout, "%s %s\n", f.Did, f.Path); err != nil {
					return err
				}
			}
			return nil
		},
	}
	a.jsonFlag(c)
	return c
}

// planInit looks at all files before one is written.
func planInit(top string) ([]initFile, error) {
	if fi, err := os.Lstat(filepath.Join(top, tasksDir)); err == nil && !fi.IsDir() {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: tasksDir + " is no directory", Hint: "move it away, then: berth init"}
	}
	example := initFile{Path: filepath.Join(tasksDir, "example.md"), Did: "wrote", data: exampleTask, mode: 0o644}
	if _, err := os.Lstat(filepath.Join(top, example.Path)); err == nil {
		example.Did, example.data = "left alone", nil
	}
	ignore, err := sectionIn(top, ".gitignore", "# berth: begin", "# berth: end", ignoreSection)
	if err != nil {
		return nil, err
	}
	agents, err := sectionIn(top, "AGENTS.md", "<!-- berth: begin -->", "<!-- berth: end -->", agentsSection)
	return []initFile{example, ignore, agents}, err
}

// sectionIn puts a text between two lines of a file, which may be there already. A link
// is refused: it could lead to any file of the user's.
func sectionIn(top, name, begin, end, text string) (initFile, error) {
	f := initFile{Path: name, Did: "unchanged", mode: 0o644}
	path := filepath.Join(top, name)
	fi, err := os.Lstat(path)
	var old []byte
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Did = "wrote"
	case err != nil:
		return f, &jobs.Error{Kind: jobs.KindInfra, Msg: "look at " + name, Err: err}
	case !fi.Mode().IsRegular():
		return f, &jobs.Error{Kind: jobs.KindUsage, Msg: name + " is no regular file, and nothing was changed", Hint: "make it one, then: berth init"}
	default:
		if f.mode = fi.Mode().Perm(); fi.Size() > maxInit {
			return f, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%s has more than %s, and nothing was changed", name, jobs.Bytes(maxInit))}
		}
		if old, err = disk.ReadRegular(path, maxInit); err != nil {
			return f, &jobs.Error{Kind: jobs.KindInfra, Msg: "read " + name, Err: err}
		}
	}
	windows := bytes.Contains(old, []byte("\r\n"))
	old = bytes.ReplaceAll(old, []byte("\r\n"), []byte("\n"))
	section, lines := begin+"\n"+text+end+"\n", "\n"+string(old)
	from, to := strings.Index(lines, "\n"+begin+"\n"), strings.Index(lines, "\n"+end+"\n")
	switch {
	case from < 0 && to < 0 && len(old) == 0:
		f.data = []byte(section)
	case from < 0 && to < 0:
		f.Did, f.data = "added to", bytes.Join([][]byte{bytes.TrimRight(old, "\n"), []byte(section)}, []byte("\n\n"))
	case from < 0 || to < from || strings.Count(lines, "\n"+begin+"\n") > 1 || strings.Count(lines, "\n"+end+"\n") > 1:
		return f, &jobs.Error{Kind: jobs.KindUsage,
			Msg: fmt.Sprintf("%s does not have the lines %q and %q once each, in this order; nothing was changed", name,
				begin, end),
			Hint: "take both out, then: berth init"}
	default:
		now := lines[1:from+1] + section + lines[to+len(end)+2:]
		if now != lines[1:] {
			f.Did, f.data = "changed", []byte(now)
		}
	}
	if windows {
		f.data = bytes.ReplaceAll(f.data, []byte("\n"), []byte("\r\n"))
	}
	return f, nil
}

// write puts a new file where none is, and a changed one in the place of the old one.
func (f *initFile) write(top string) error {
	path := filepath.Join(top, f.Path)
	switch {
	case f.data == nil:
		return nil
	case f.Did == "wrote":
		return disk.Create(path, f.data, f.mode)
	}
	return disk.Replace(path, f.data, f.mode)
}
