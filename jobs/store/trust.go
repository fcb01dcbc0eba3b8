package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"berth/jobs"
)

// fileTrust is in a state directory whose user trusts the owners of the
// directories above it, and the groups that may write them.
const fileTrust = "trust-above"

// Trusted tells why the directory, which exists, is refused by [Open], or nil.
// It changes nothing.
//
// It is looked at as OpenSSH looks at ~/.ssh (sshd_config(5), StrictModes):
// whoever may write a directory above could move ours away and put another in
// its place, and job scripts run programs from it.
func (s *Store) Trusted() error {
	fi, err := os.Stat(s.home)
	if err != nil {
		return openError(err)
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the state directory " + s.home + " belongs to another user",
			Hint: "set BERTH_HOME to a directory of your own"}
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the state directory " + s.home + " is open to other users",
			Hint: "set BERTH_HOME to a directory of its own, or, if no other user needs this one: chmod 700 " + s.home}
	}
	c := above{home: s.home, trusts: trusts(s.home)}
	return c.walk()
}

// trusts tells whether the user has said so, in a file of their own.
func trusts(home string) bool {
	fi, err := os.Lstat(filepath.Join(home, fileTrust))
	if err != nil || !fi.Mode().IsRegular() {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid()
}

// above looks at all that a path leads through.
type above struct {
	home   string
	trusts bool
}

// mostLinks is where the kernel gives up, too (path_resolution(7)).
const mostLinks = 40

// walk follows the path, one name after another: what a symbolic link leads
// through counts as much as the names that were given.
func (c *above) walk() error {
	left := strings.Split(strings.Trim(c.home, "/"), "/")
	at := "/"
	for links := 0; len(left) > 0; {
		if err := c.check(at); err != nil {
			return err
		}
		name := left[0]
		left = left[1:]
		if name == "" || name == "." {
			continue
		}
		next := filepath.Join(at, name) // "..", too: at holds no link
		fi, err := os.Lstat(next)
		if err != nil {
			return openError(err)
		}
		if fi.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > mostLinks {
			return openError(&os.PathError{Op: "open", Path: c.home, Err: syscall.ELOOP})
		}
		if err := c.owner(next, fi, "link"); err != nil {
			return err
		}
		to, err := os.Readlink(next)
		if err != nil {
			return openError(err)
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		left = append(strings.Split(strings.Trim(to, "/"), "/"), left...)
	}
	return nil
}

// check refuses a directory that another user may write.
func (c *above) check(dir string) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return openError(err)
	}
	// A sticky directory such as /tmp keeps names to their owners, and to its own.
	if err := c.owner(dir, fi, "directory"); err != nil {
		return err
	}
	mode := fi.Mode()
	switch {
	case mode&fs.ModeSticky != 0:
	case mode.Perm()&0o002 != 0:
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "everybody may write " + dir + ", and so replace the state directory " + c.home,
			Hint: "set BERTH_HOME to a directory elsewhere, or, if " + dir + " is yours: chmod o-w " + dir}
	case mode.Perm()&0o020 != 0 && !c.trusts && !ownGroup(fi):
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "a group may write " + dir + ", and so replace the state directory " + c.home,
			Hint: fmt.Sprintf("set BERTH_HOME to a directory elsewhere, or: "+
				"chmod g-w %s (or chmod +t, which lets each remove only what is theirs); "+
				"or, if you trust the group with all that you may do: %s", dir, c.touch())}
	}
	return nil
}

// owner refuses what belongs to another user, who could replace it.
func (c *above) owner(path string, fi fs.FileInfo, what string) error {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || st.Uid == 0 || int(st.Uid) == os.Geteuid() || c.trusts || int(st.Uid) == overflowUID && mapped() {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindConfig,
		Msg:  fmt.Sprintf("the %s %s belongs to another user (%d), who could replace the state directory %s", what, path, st.Uid, c.home),
		Hint: "set BERTH_HOME to a directory elsewhere; or, if you trust that user with all that you may do: " + c.touch()}
}

func (c *above) touch() string { return "touch " + filepath.Join(c.home, fileTrust) }

// ownGroup tells whether a directory's group is the one that many systems make
// for each user alone, with the same number: their umask lets it write.
func ownGroup(fi fs.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Gid) == os.Getegid() && os.Getegid() == os.Geteuid()
}

// overflowUID is who owns files whose user a user namespace does not have
// (user_namespaces(7)): there, root's among others.
const overflowUID = 65534

// mapped tells whether this process is in a user namespace that lacks users.
func mapped() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	f := strings.Fields(string(b))
	return err != nil || len(f) != 3 || f[0] != "0" || f[1] != "0" || f[2] != "4294967295"
}
