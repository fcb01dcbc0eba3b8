package run

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"berth/jobs"

	"golang.org/x/sys/unix"
)

// gate is a shell that waits on descriptor 3 for its user namespace to be given
// its ids, and then becomes the command: as root of the namespace, which a
// process is only after an exec that follows the mapping (user_namespaces(7)).
// Where the end of the pipe closes without a word, nothing is run.
const gate = `read -r go <&3 && exec 3<&- && exec "$@"`

// self is this program, also where its file is not to be found any more.
const self = "/proc/self/exe"

// ownFiles makes cmd begin as root of a user namespace of its own, once open
// has given it its ids; done is called when they are not needed any more.
func ownFiles(cmd *exec.Cmd) (open func() error, done func(), err error) {
	path, err := exec.LookPath(cmd.Path)
	if err != nil {
		return nil, nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	cmd.ExtraFiles = []*os.File{r}
	end := []*os.File{r, w}
	if path == self { // in the shell that would be the shell
		f, err := os.Open(self)
		if err != nil {
			return nil, nil, errors.Join(err, r.Close(), w.Close())
		}
		path, cmd.ExtraFiles, end = "/proc/self/fd/4", append(cmd.ExtraFiles, f), append(end, f)
	}
	cmd.Path, cmd.Args = "/bin/sh", append([]string{"sh", "-c", gate, "sh", path}, cmd.Args[1:]...)
	cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
	open = func() error {
		if err := mapOwn(cmd.Process.Pid); err != nil {
			return err
		}
		_, err := w.WriteString("go\n")
		return err
	}
	return open, func() {
		for _, f := range end {
			_ = f.Close()
		}
	}, nil
}

// mapOwn makes this user root of the namespace of a process, with the
// subordinate ids above it where there are any.
func mapOwn(pid int) error {
	if ranges, err := subordinate(); err == nil {
		return withSubordinate(pid, ranges)
	}
	proc := fmt.Sprintf("/proc/%d/", pid)
	if err := os.WriteFile(proc+"setgroups", []byte("deny"), 0); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(proc+"uid_map", fmt.Appendf(nil, "0 %d 1", os.Getuid()), 0),
		os.WriteFile(proc+"gid_map", fmt.Appendf(nil, "0 %d 1", os.Getgid()), 0))
}

// withSubordinate has the programs of shadow do what only root may.
func withSubordinate(pid int, r subordinates) error {
	for _, m := range []struct {
		program string
		own     int
		ids     idRange
	}{{"newuidmap", os.Getuid(), r.users}, {"newgidmap", os.Getgid(), r.groups}} {
		program, err := exec.LookPath(m.program)
		if err != nil {
			return err
		}
		out, err := exec.Command(program, strconv.Itoa(pid),
			"0", strconv.Itoa(m.own), "1",
			"1", strconv.Itoa(m.ids.first), strconv.Itoa(m.ids.count),
		).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", m.program, err, ending(string(out)))
		}
	}
	return nil
}

// idRange is a range of subordinate ids (subuid(5)).
type idRange struct{ first, count int }

type subordinates struct{ users, groups idRange }

// subordinate returns the ids that this user was given beside its own.
func subordinate() (s subordinates, err error) {
	for _, p := range []string{"newuidmap", "newgidmap"} {
		if _, err := exec.LookPath(p); err != nil {
			return s, fmt.Errorf("%s is not here (package uidmap or shadow-utils)", p)
		}
	}
	if s.users, err = rangeOf("/etc/subuid", "getsubids"); err != nil {
		return s, err
	}
	s.groups, err = rangeOf("/etc/subgid", "getsubids", "-g")
	return s, err
}

// rangeOf reads the first range of this user in a file, else asks getsubids,
// which knows those of a directory service.
func rangeOf(file string, ask ...string) (idRange, error) {
	names := []string{strconv.Itoa(os.Getuid())}
	if u, err := user.LookupId(names[0]); err == nil {
		names = append(names, u.Username)
	}
	if f, err := os.Open(file); err == nil {
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			if name, rest, ok := strings.Cut(s.Text(), ":"); ok && (name == names[0] || len(names) > 1 && name == names[1]) {
				if r, ok := parseRange(strings.Split(rest, ":")); ok {
					return r, nil
				}
			}
		}
	}
	if program, err := exec.LookPath(ask[0]); err == nil {
		// "0: alice 100000 65536"
		if out, err := exec.Command(program, append(ask[1:], names[len(names)-1])...).Output(); err == nil {
			line, _, _ := strings.Cut(string(out), "\n")
			if f := strings.Fields(line); len(f) == 4 {
				if r, ok := parseRange(f[2:]); ok {
					return r, nil
				}
			}
		}
	}
	return idRange{}, fmt.Errorf("%s has no ids for %s", file, names[len(names)-1])
}

func parseRange(f []string) (r idRange, ok bool) {
	if len(f) != 2 {
		return r, false
	}
	first, err1 := strconv.Atoi(f[0])
	count, err2 := strconv.Atoi(f[1])
	return idRange{first, count}, err1 == nil && err2 == nil && first > 0 && count > 0
}

// OwnFiles tells what a command started with [jobs.Cmd.OwnFiles] has here: can
// is whether it can be started at all, all is whether files of subordinate ids
// are its own as well; why says what is missing.
func OwnFiles(ctx context.Context) (can, all bool, why string) {
	if os.Geteuid() == 0 {
		return true, true, ""
	}
	if _, err := Output(ctx, Local{}, jobs.Cmd{Argv: []string{"/bin/sh", "-c", ":"}, Dir: "/", OwnFiles: true}); err != nil {
		return false, false, "user namespaces are not available here: " + err.Error()
	}
	if _, err := subordinate(); err != nil {
		return true, false, err.Error()
	}
	return true, true, ""
}

// Overflow is the id that a namespace shows for those that it does not have.
const Overflow = 65534

// InsideIDs returns which ids files of this machine have in the namespace of
// [jobs.Cmd.OwnFiles]: this user's are root's, its subordinate ones count from
// 1, others are [Overflow]. For root they stay as they are.
func InsideIDs() func(uid, gid int) (int, int) {
	if os.Geteuid() == 0 {
		return func(uid, gid int) (int, int) { return uid, gid }
	}
	ranges, _ := subordinate() // none without
	own := append([]int{os.Getegid()}, groups()...)
	in := func(id int, r idRange) int {
		if id >= r.first && id < r.first+r.count {
			return id - r.first + 1
		}
		return Overflow
	}
	return func(uid, gid int) (int, int) {
		if uid == os.Geteuid() {
			uid = 0
		} else {
			uid = in(uid, ranges.users)
		}
		if slices.Contains(own, gid) {
			gid = 0
		} else {
			gid = in(gid, ranges.groups)
		}
		return uid, gid
	}
}

func groups() []int {
	g, err := os.Getgroups()
	if err != nil {
		return nil
	}
	return g
}
