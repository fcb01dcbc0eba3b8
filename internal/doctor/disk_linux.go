package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"berth/internal/node/container"
	"berth/internal/sys/disk"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"

	"golang.org/x/sys/unix"
)

// scratchBase is where jobs and environments have their scratch directories.
func scratchBase(w Where) (string, error) { return container.ScratchBase(w.Profile.Scratch, w.Getenv) }

// Room that a machine should have.
const (
	littleRoom = 2 * jobs.GiB
	noRoom     = 64 * jobs.MiB
	fewFiles   = 20_000
)

// room is what a file system has left for this user.
type room struct {
	bytes  jobs.Bytes
	inodes uint64
	counts bool // it counts inodes at all
}

func roomOf(dir string) (room, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return room{}, err
	}
	return room{bytes: jobs.Bytes(int64(st.Bavail) * st.Bsize), inodes: st.Ffree, counts: st.Files > 0}, nil
}

// String is coarse, so that what has not changed much reads the same.
func (r room) String() string {
	s := fmt.Sprintf("%d MiB", r.bytes/jobs.MiB)
	if r.bytes >= 10*jobs.GiB {
		s = fmt.Sprintf("%d GiB", r.bytes/jobs.GiB)
	}
	s += " left"
	if r.counts && r.inodes < 1_000_000 {
		s += fmt.Sprintf(", room for %d files", r.inodes)
	}
	return s
}

// judge lowers a finding's status where there is little room.
func (r room) judge(f *Finding, dir string) {
	switch {
	case r.bytes < noRoom:
		f.Status, f.Do = Fail, "make room: df -h "+dir
	case r.counts && r.inodes < 100:
		f.Status, f.Do = Fail, "make room for files: df -i "+dir
	case r.bytes < littleRoom && f.Status == OK:
		f.Status, f.Do = Warn, "it is little: df -h "+dir
	case r.counts && r.inodes < fewFiles && f.Status == OK:
		f.Status, f.Do = Warn, "room for few files: df -i "+dir+`; overlay = "ext3" in a profile keeps a layer in one file`
	}
}

// checkScratch looks at the directory for what attempts throw away.
func checkScratch(ctx context.Context, l *look) []Finding {
	dir, err := scratchBase(l.Where)
	if err != nil {
		if l.submits() { // nothing of it need be here
			return one(Skip, err.Error()+": it is of the nodes", "look at a node: berth doctor --on-node")
		}
		return []Finding{{Status: Fail, Configured: true, Why: err.Error(), Do: or(jobs.HintOf(err), `change scratch = "..." in the profile`)}}
	}
	m := disk.MountFor(l.path("/proc/self/mountinfo"), dir)
	name, net := m.Name()
	f := with(Finding{Subject: "scratch " + dir, Status: OK, Configured: true}, "dir", dir, "kind", m.Kind, "tmpdir", l.Getenv("TMPDIR"))
	made, err := os.MkdirTemp(dir, tempPrefix+"*")
	if err != nil {
		f.Status, f.Why, f.Do = Fail, "nothing can be made there: "+plainError(err), `export TMPDIR=DIRECTORY, or scratch = "..." in a profile`
		return []Finding{f}
	}
	defer func() { _ = disk.RemoveTree(made) }()
	r, err := roomOf(made)
	if err != nil {
		f.Status, f.Why = Warn, plainError(err)
		return []Finding{f}
	}
	f.Why = name + ", " + r.String()
	switch {
	case net:
		f.Status, f.Do = Warn, `writable layers are slow and partly wrong there: name a local disk, scratch = "..." in a profile`
	case !overlay.TakesDirectories(made):
		f.Status, f.Do = Warn, `berth does not know it as a local disk, and trusts no directory as a layer there: overlay = "ext3" in a profile`
	case m.Kind == "tmpfs":
		f.Status, f.Do = Warn, `it is memory, which counts against a job: name a disk, scratch = "..." in a profile`
	case m.Has("noexec"):
		f.Why += ", noexec (containers do not mind)"
	}
	r.judge(&f, dir)
	return []Finding{f}
}

// checkState looks at the directory that has berth's records, and from which
// nodes run its program.
func checkState(ctx context.Context, l *look) (found []Finding) {
	f := Finding{Subject: "state " + l.State, Status: OK, Configured: true}
	fail := func(why, do string) []Finding {
		f.Status, f.Why, f.Do = Fail, why, do
		return []Finding{f}
	}
	if l.State == "" {
		return fail("there is no place for the state", "set HOME or BERTH_HOME")
	}
	st, err := store.At(l.State)
	if err != nil {
		return fail(err.Error(), jobs.HintOf(err))
	}
	dir, missing := l.State, false
	for {
		fi, err := os.Stat(dir)
		if err == nil && fi.IsDir() {
			break
		}
		if err == nil || !errors.Is(err, os.ErrNotExist) || dir == "/" {
			return fail("it cannot be looked at: "+plainError(or2(err, errors.New(dir+" is no directory"))),
				"set BERTH_HOME to a directory that you may write and the nodes see")
		}
		dir, missing = filepath.Dir(dir), true
	}
	if !missing {
		if err := st.Trusted(); err != nil {
			return fail(err.Error(), jobs.HintOf(err))
		}
	}
	m := disk.MountFor(l.path("/proc/self/mountinfo"), dir)
	name, net := m.Name()
	f = with(f, "dir", l.State, "kind", m.Kind, "network", yes(net))
	made, err := os.MkdirTemp(dir, "."+tempPrefix+"*")
	if err != nil {
		return fail("nothing can be made in "+dir+": "+plainError(err),
			"is it full, or read-only? df -h "+dir+"; else set BERTH_HOME to another directory")
	}
	defer func() {
		if err := disk.RemoveTree(made); err != nil {
			found = append(found, Finding{Subject: f.Subject, Status: Warn,
				Why: made + " was made for this and cannot be removed: " + plainError(err),
				Do:  "rm -r " + made})
		}
	}()
	r, err := roomOf(made)
	if err != nil {
		return fail(plainError(err), "set BERTH_HOME to another directory")
	}
	f.Why = name + ", " + r.String()
	if missing {
		f.Why += " (not made yet)"
	}
	r.judge(&f, dir)
	if err := linkWorks(made); err != nil {
		return fail(name+": "+plainError(err)+", by which berth sees to it that a record is made once",
			"set BERTH_HOME to a directory on another file system")
	}
	if err := execWorks(ctx, l, made); err != nil {
		f.Data["noexec"] = "yes"
		return fail(name+": programs cannot be run there, and berth's has to be on the nodes: "+plainError(err), store.HintNoExec)
	}
	out := []Finding{f}
	lock := Finding{Subject: "locks in the state directory", Status: OK}
	switch err := lockWorks(filepath.Join(made, "lock")); {
	case err != nil:
		lock.Status = Warn
		lock.Why = name + ": " + err.Error() + "; the container program then takes no lock on an ext3 layer, and berth's own lease is all there is"
	case net:
		lock.Why = name + ": they hold on this machine; whether between two is not seen from one. berth does not rely on them"
	default:
		lock.Why = name + ": they hold on this machine"
	}
	return append(out, lock)
}

// linkWorks makes a name twice by link(2), which is how berth lets one of many
// win.
func linkWorks(dir string) error {
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := os.WriteFile(a, []byte("x"), 0o600); err != nil {
		return err
	}
	if err := os.Link(a, b); err != nil {
		return fmt.Errorf("a second name of a file cannot be made (%w)", disk.Bare(err))
	}
	if err := os.Link(a, b); !errors.Is(err, os.ErrExist) {
		return errors.New("a name can be given to a file twice")
	}
	return os.Rename(a, b+".2")
}

// execWorks runs a script there.
func execWorks(ctx context.Context, l *look, dir string) error {
	p := filepath.Join(dir, "run")
	if err := os.WriteFile(p, []byte("#!/bin/sh\nexit 0\n"), 0o700); err != nil {
		return err
	}
	_, err := run.Output(ctx, l.On, jobs.Cmd{Argv: []string{p}, Dir: "/", Env: []string{}})
	if errors.Is(err, syscall.ETXTBSY) {
		return nil // another check of this process forked while it was written: it can be executed
	}
	return err
}

// lockWorks takes a byte-range lock, as the container program does on an image,
// and sees that a second one is refused.
func lockWorks(path string) error {
	lock := func() (*os.File, error) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		return f, unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: 0})
	}
	first, err := lock()
	if first != nil {
		defer first.Close()
	}
	if err != nil {
		return fmt.Errorf("files cannot be locked (%w)", err)
	}
	second, err := lock()
	if second != nil {
		defer second.Close()
	}
	if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
		return errors.New("two can lock one file")
	}
	return nil
}

// checkHome looks at quotas, where a program that knows them is here.
func checkHome(ctx context.Context, l *look) []Finding {
	home := l.Getenv("HOME")
	if !filepath.IsAbs(home) {
		return one(Warn, "HOME is not set", "export HOME")
	}
	if _, err := os.Stat(home); err != nil {
		return one(Warn, "the home directory cannot be looked at: "+plainError(err), "set BERTH_HOME to a directory of your own elsewhere")
	}
	m := disk.MountFor(l.path("/proc/self/mountinfo"), home)
	name, _ := m.Name()
	r, err := roomOf(home)
	if err != nil {
		return one(Warn, plainError(err), "")
	}
	f := with(Finding{Subject: "home " + home, Status: OK, Why: name + ", " + r.String()}, "kind", m.Kind, "noexec", yes(m.Has("noexec")))
	if m.Has("noexec") {
		f.Why += ", noexec"
	}
	argv := []string{"quota", "-w"}
	if m.Kind == "lustre" {
		argv = []string{"lfs", "quota", "-q", "-u", l.user(), m.Point}
	}
	if p := l.look(argv[0]); p != "" {
		out, err := l.ask(ctx, nil, append([]string{p}, argv[1:]...)...)
		if over := overQuota(out); over != "" {
			f.Status, f.Why, f.Do = Warn, f.Why+"; over a quota: "+over, "remove what is not needed, or set BERTH_HOME to another file system"
		} else if err == nil && strings.TrimSpace(out) != "" {
			f.Why += "; within its quota"
		}
	}
	return []Finding{f}
}

// overQuota returns the line on which a star marks what is over its quota, as
// quota(1) and lfs-quota(1) print it.
func overQuota(out string) string {
	for line := range strings.Lines(out) {
		for _, w := range strings.Fields(line) {
			if n := strings.TrimSuffix(w, "*"); n != w && n != "" && strings.Trim(n, "0123456789.kMGTP") == "" {
				return strings.TrimSpace(line)
			}
		}
	}
	return ""
}

// plainError is an error of a file without the name of what berth had made.
func plainError(err error) string { return disk.Bare(err).Error() }

func or2(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}
