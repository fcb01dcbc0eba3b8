package config

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"berth/internal/config/strict"
	"berth/jobs"
)

// ProjectFile is what a project's file is called.
const ProjectFile = "berth.toml"

// findProject returns the nearest berth.toml from dir upward: not above the
// top of the repository, nor above home, nor out of a directory that others
// may write. A note says that one was left out.
func findProject(dir, home string) (path, note string) {
	for {
		file := filepath.Join(dir, ProjectFile)
		_, err := os.Lstat(file)
		there := err == nil
		if why := foreignDir(dir); why != "" {
			if there {
				note = "the project file " + file + " is left out: " + why
			}
			return "", note
		}
		if there {
			if fi, err := os.Lstat(file); err == nil && !ours(fi) {
				return "", "the project file " + file + " is left out: it belongs to another user"
			}
			return file, ""
		}
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil || dir == home {
			return "", ""
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", ""
		}
		dir = up
	}
}

// foreignDir tells why others could put a file into a directory.
func foreignDir(dir string) string {
	fi, err := os.Stat(dir)
	switch {
	case err != nil:
		return "its directory cannot be read"
	case !ours(fi):
		return "its directory belongs to another user"
	case fi.Mode().Perm()&0o002 != 0:
		return "anybody may write to its directory"
	}
	return ""
}

// ours tells whether a file belongs to this user, or to root.
func ours(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && (st.Uid == 0 || int(st.Uid) == os.Getuid())
}

// readSafely reads a file of the configuration that is no link, no device and
// not another user's. The one that is opened is the one that is looked at.
func readSafely(path, what string) ([]byte, error) {
	bad := func(kind jobs.Kind, why, hint string, args ...any) error {
		return &jobs.Error{Kind: kind, Msg: "the " + what + " " + path + " " + fmt.Sprintf(why, args...), Hint: hint}
	}
	flags := os.O_RDONLY | syscall.O_NONBLOCK // a FIFO must not hold a client
	if what == projectWhat {
		flags |= syscall.O_NOFOLLOW
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		if fi, lerr := os.Lstat(path); lerr == nil && fi.Mode()&fs.ModeSymlink != 0 && what == projectWhat {
			return nil, bad(jobs.KindConfig, "is a symbolic link", "put a file in its place")
		}
		if os.IsNotExist(err) {
			return nil, err
		}
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "read the " + what, Err: err}
	}
	defer f.Close()
	fi, err := f.Stat()
	switch {
	case err != nil:
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "read the " + what, Err: err}
	case !fi.Mode().IsRegular():
		return nil, bad(jobs.KindConfig, "is not a file", "ls -ld "+path)
	case !ours(fi):
		return nil, bad(jobs.KindConfig, "belongs to another user", "ls -l "+path)
	case fi.Mode().Perm()&0o002 != 0:
		return nil, bad(jobs.KindConfig, "can be written by anybody", "chmod o-w "+path)
	case fi.Size() > strict.MaxFile:
		return nil, bad(jobs.KindUsage, "has more than %s", "", jobs.Bytes(strict.MaxFile))
	}
	data, err := io.ReadAll(io.LimitReader(f, strict.MaxFile+1))
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "read the " + what, Err: err}
	}
	return data, nil
}

const (
	userWhat    = "configuration"
	projectWhat = "project file"
)

func literal(s string) string { return strict.StringLiteral(s) }
