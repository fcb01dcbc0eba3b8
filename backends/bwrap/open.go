package bwrap

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/node/limits"
	"berth/internal/sys/disk"
	"berth/internal/sys/private"
	"berth/jobs"
)

// Open makes the place's own directories and renders its line. The files of an
// environment that persists are its HOME, in its own directory; all else is in the
// scratch directory.
func (b *Backend) Open(ctx context.Context, s *jobs.EnvSpec, at jobs.OpenPlace) (*jobs.Opening, error) {
	p, err := find()
	if err != nil {
		return nil, err
	}
	op := &jobs.Opening{
		Env: []string{}, OwnPIDNamespace: true, Home: homeOf(s), Dir: s.Dir, Level: s.Network.Level(b.Level()), Program: p,
		Work: jobs.WorkDir, Shares: shared(),
		Version: func(ctx context.Context) (string, string) { return program, version(ctx, at.On, p) },
		Trouble: trouble,
	}
	if a := at.Attempt; a != nil {
		op.Files = []string{dirHome, dirTmp, dirVarTmp}
		op.Line = func(l jobs.LineAt) (argv, notes []string, err error) {
			return line(p, s, a.Spec.InvocationAt(l), l.Scratch, own{home: filepath.Join(l.Scratch, dirHome), tmp: l.Scratch, inside: op.Home})
		}
		return op, nil
	}
	here, inside := b.Pipes(at.Dir)
	if err := disk.FreshDir(here); err != nil {
		return nil, err
	}
	in := jobs.Invocation{Place: s.Place, Guest: at.Guest}
	in.GPU = s.GPUKind()
	o := own{home: filepath.Join(at.Scratch, dirHome), tmp: at.Scratch, inside: op.Home, mounts: []jobs.Mount{{Source: here, Destination: inside}}}
	if s.Persistent {
		o.home, op.Files = filepath.Join(at.Dir, dirHome), []string{dirHome}
		if _, err := os.Lstat(filepath.Join(at.Dir, dirTmp)); err == nil { // what an attempt has left
			o.tmp, op.Files = at.Dir, append(op.Files, dirTmp, dirVarTmp)
		}
	}
	if op.Argv, op.Notes, err = line(p, s, in, at.Scratch, o); err != nil {
		return nil, err
	}
	return op, limits.Hold(ctx, s, op, func(ctx context.Context, argv []string) error { return limits.Try(ctx, at.On, argv, nil) })
}

// The directories of a place on the host. That of an environment whose files stay has HOME,
// and what was kept of an attempt has all.
const (
	dirHome   = "home"
	dirTmp    = "tmp"
	dirVarTmp = "var_tmp"
)

// Pipes is a directory of the environment's, bound read-only: named pipes in it can
// be written all the same.
func (*Backend) Pipes(dir string) (here, inside string) {
	return filepath.Join(dir, "io"), guestDir + "/io"
}

// homeOf is HOME inside: the user's own path, unless what is the host's, or the
// place's, stands there.
func homeOf(s *jobs.EnvSpec) string {
	h := jobs.HomeInside(os.Getenv, s.User)
	taken := append([]string{"/proc", "/sys", "/dev", guestDir, jobs.WorkDir, "/etc"}, programs...)
	if h == "/" || h == "/tmp" || h == "/var/tmp" || slices.ContainsFunc(taken, func(dir string) bool { return private.Under(h, dir) }) {
		return path.Join("/home", jobs.Slug(s.User))
	}
	return h
}

// line has the directories of one container ready and renders its line.
func line(p string, s *jobs.EnvSpec, in jobs.Invocation, scratch string, o own) (argv, notes []string, err error) {
	places := private.Places{State: s.Home, Base: private.BaseOf(scratch), Allow: s.HostSockets}
	empty := filepath.Join(scratch, "empty")
	covers, notes, err := places.Covers(s.Mounts, empty)
	if err != nil {
		return nil, nil, err
	}
	o.etc = scratch
	for _, dir := range []string{o.home, empty, filepath.Join(o.tmp, dirTmp), filepath.Join(o.tmp, dirVarTmp)} {
		if err == nil {
			err = os.MkdirAll(dir, 0o700)
		}
	}
	for name, text := range accounts(s.User, o.inside) {
		if err == nil {
			err = os.WriteFile(filepath.Join(scratch, name), []byte(text), 0o600)
		}
	}
	if err != nil {
		return nil, nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make the directories of the place", Err: err,
			Hint: "is there space left on " + filepath.Dir(scratch) + "?"}
	}
	if _, err := os.Stat("/proc/keys"); err == nil {
		o.keys = true
	}
	argv, err = render(p, in, o, covers, []string{"guest"})
	return argv, notes, err
}

// accounts are the files in which programs look up who they run as: the host's own
// may have none of that, and name everybody else.
func accounts(user, home string) map[string]string {
	passwd, group := "nobody:x:65534:65534:nobody:/nonexistent:/bin/sh\n", "nogroup:x:65534:\n"
	if uid := os.Getuid(); uid != 0 {
		if user == "root" || user == "nobody" || user == "" || strings.ContainsAny(user, ":\n") {
			user = "user"
		}
		passwd = fmt.Sprintf("root:x:0:0:root:/root:/bin/sh\n%s:x:%d:%d::%s:/bin/sh\n", user, uid, os.Getgid(), home) + passwd
		group = fmt.Sprintf("root:x:0:\n%s:x:%d:\n", user, os.Getgid()) + group
	} else {
		passwd, group = "root:x:0:0:root:"+home+":/bin/sh\n"+passwd, "root:x:0:\n"+group
	}
	return map[string]string{"passwd": passwd, "group": group}
}

// shared is what of the host every place sees, as far as it is here.
func shared() []string {
	return slices.DeleteFunc(slices.Clone(programs), func(p string) bool {
		_, err := os.Stat(p)
		return err != nil
	})
}

// trouble explains what bubblewrap says when it does not start.
func trouble(said string) (jobs.Kind, string) {
	switch {
	case strings.Contains(said, "Can't find source path"):
		return jobs.KindConfig, "the source of a bind is not on this machine, or not yours to see"
	case strings.Contains(said, "Can't mkdir"), strings.Contains(said, "Can't create file"):
		return jobs.KindConfig, "the destination of a bind must not stand in what is the host's: choose another one, such as /data"
	case strings.Contains(said, "namespace"), strings.Contains(said, "setting up uid map"), strings.Contains(said, "loopback"):
		return jobs.KindConfig, hintUser
	}
	return jobs.KindInfra, ""
}
