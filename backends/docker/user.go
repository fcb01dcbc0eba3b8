package docker

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"berth/jobs"
)

// Root inside is root on the host where the daemon maps no ids: a setuid file
// that it leaves in a bound directory makes root of every user of the host who
// runs it. A bind with nosuid does not help, because the file is run by its own
// path outside. So who can write to a directory of the host is not root.

// ownIDs is the caller as --user takes it.
func ownIDs() string { return fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()) }

// writable are the directories of the host that the environment can write to.
func (m *maker) writable() ([]string, error) {
	var out []string
	for _, mnt := range m.s.Mounts {
		if mnt.Writable {
			out = append(out, mnt.Source)
		}
	}
	for _, word := range m.d.Volumes {
		v, err := parseVolume(word)
		if err != nil {
			return nil, err
		}
		if path.IsAbs(v.source) && !slices.Contains(v.options, "ro") {
			out = append(out, v.source)
		}
	}
	return out, nil
}

// settleUser chooses who runs inside: where a directory of the host can be
// written to, the caller, unless another user is named who is not root either.
func (m *maker) settleUser(ctx context.Context, standing *container) error {
	dirs, err := m.writable()
	if err != nil {
		return err
	}
	had := standing.writable(m.at.Dir)
	if len(dirs) == 0 && len(had) == 0 {
		return nil
	}
	c, err := m.p.probe(ctx)
	if err != nil {
		return err
	}
	if c.mapped() {
		return nil
	}
	if len(had) > 0 && harmless(standing.Config.User) != nil {
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg: fmt.Sprintf("the container %s, which an older berth made, may run as root and can write to %s: "+
				"a setuid file there would make everybody on this machine root", short(standing.ID), had[0]),
			Hint: fmt.Sprintf("take out what you need: %s cp %s:/PATH . ; then berth env rm %s, and make it again: commands run as you then",
				m.p.path, short(standing.ID), m.s.Name)}
	}
	if len(dirs) == 0 {
		return nil
	}
	switch id, _, both := strings.Cut(m.d.User, ":"); {
	case m.d.User == "":
		m.d.User = ownIDs()
		if standing == nil && os.Getuid() != 0 {
			m.open.Notes = append(m.open.Notes,
				fmt.Sprintf("commands run as you (%s) and not as root inside, because they can write to %s", m.d.User, dirs[0]))
		}
	case !both && id == uid():
		m.d.User = ownIDs() // without a group the image would choose it
	}
	return rootHere(m.d.User, dirs[0])
}

// mapped tells whether root inside is another user on the host.
func (c can) mapped() bool { return c.rootless || c.remapped }

// harmless tells whether files of this user, as --user takes it, make no other
// user root. Names and missing groups are looked up in the image, which may say 0.
func harmless(user string) error {
	if user == ownIDs() && os.Getuid() != 0 {
		return nil
	}
	u, g, _ := strings.Cut(user, ":")
	for _, id := range []string{u, g} {
		if n, err := strconv.ParseUint(id, 10, 31); err != nil || n == 0 {
			return fmt.Errorf("the user %q is root, or may be", user)
		}
	}
	return nil
}

// rootHere refuses a user who may be root beside a directory that can be
// written to.
func rootHere(user, dir string) error {
	err := harmless(user)
	if err == nil {
		return nil
	}
	hint := "leave the user out: commands run as you then; or name UID:GID of another; or bind it read-only. " +
		"Software is installed by a template or in an environment without the bind; a rootless daemon has no such limit"
	if os.Getuid() == 0 {
		hint = "you are root: name who is to run inside, --user UID:GID; or bind it read-only; or call berth as another user"
	}
	return &jobs.Error{Kind: jobs.KindConfig,
		Msg: fmt.Sprintf("%s cannot be writable inside for root: a setuid file there would make everybody on this machine root", dir), Err: err,
		Hint: hint}
}

// writable are the directories of the host that a container can write to, but
// for those below own. A container of nil has none.
func (c *container) writable(own string) []string {
	var out []string
	if c == nil {
		return nil
	}
	for _, m := range c.Mounts {
		if m.Type == "bind" && m.RW && !within(m.Source, own) {
			out = append(out, m.Source)
		}
	}
	return out
}

// checkRoot is rootHere for the binds of a job. /work is berth's own: it stands
// below a directory that is closed to others, and comes back by git.
func checkRoot(user string, binds []jobs.Mount, c can) error {
	if c.mapped() {
		return nil
	}
	for _, m := range binds {
		if !m.Writable || m.Destination == jobs.WorkDir {
			continue
		}
		if err := rootHere(user, m.Source); err != nil {
			return err
		}
	}
	return nil
}
