package docker

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// made is container.json in the environment's directory: the container that
// was made for it last. It tells a first container from one that replaces
// another, which was lost with its files.
type made struct {
	Version int       `json:"version"`
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
}

const fileMade = "container.json"

// Pipes is a directory beside the guest's program, which is bound read-only:
// named pipes in it can be written all the same.
func (*Backend) Pipes(dir string) (here, inside string) {
	return filepath.Join(dir, "guest", "io"), guestDir + "/io"
}

// Open finds the environment's container, or makes one, stopped. It is started
// by the program of the Opening, which holds its streams: when that program is
// killed, the daemon closes them and the guest leaves.
func (*Backend) Open(ctx context.Context, s *jobs.EnvSpec, at jobs.OpenPlace) (*jobs.Opening, error) {
	if at.Attempt != nil {
		return attempt(ctx, s, at)
	}
	d := dockerSpec(s)
	p, err := find(at.On, d.Program)
	if err != nil {
		return nil, err
	}
	m := &maker{p: p, s: s, d: d, at: at, open: &jobs.Opening{Env: p.env, OwnPIDNamespace: true, Dir: s.Dir, Level: s.Network.Level(jobs.LevelFS)}}
	if err := m.check(); err != nil {
		return nil, err
	}
	box, err := m.standing(ctx)
	if err == nil && box != nil {
		err = m.lastGuest(ctx, box.ID)
	}
	if err != nil {
		return nil, err
	}
	if err := m.settleUser(ctx, box); err != nil {
		return nil, err
	}
	if err := installGuest(at.Guest, m.guest()); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "put the guest program in place", Err: err, Hint: "is there space left? df -h " + at.Dir}
	}
	if here, _ := (*Backend)(nil).Pipes(at.Dir); disk.FreshDir(here) != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make " + here, Hint: "is there space left? df -h " + at.Dir}
	}
	if err := m.settleHome(); err != nil {
		return nil, err
	}
	id := ""
	if box != nil {
		id = box.ID
	} else if id, err = m.make(ctx); err != nil {
		return nil, err
	}
	m.open.Argv = []string{p.path, "start", "--attach", "--interactive", id}
	m.open.End = func(ctx context.Context) error { return p.end(ctx, id, !s.Persistent) }
	volumes := &volumes{p: p}
	m.open.Remains = func(ctx context.Context, d *jobs.Destroyed) {
		volumes.look(ctx, d, func(ctx context.Context) ([]container, error) {
			list, err := p.labelled(ctx, labelEnv+"="+s.ID, labelUser+"="+uid())
			return slices.DeleteFunc(list, func(c container) bool { return !c.of(s) }), err
		})
	}
	if s.Looks() {
		volumes.of(ctx, id)
	}
	m.open.Init = func(ctx context.Context) int {
		list, err := p.inspect(ctx, id)
		if err != nil {
			return 0
		}
		return list[0].State.Pid
	}
	return m.open, nil
}

// standing returns the environment's container, stopped, if there is one that
// can be used again.
func (m *maker) standing(ctx context.Context) (*container, error) {
	box, err := m.p.locate(ctx, m.s)
	for deadline := time.Now().Add(askLimit); err == nil && box != nil && box.State.Status == "removing" && time.Now().Before(deadline); {
		if err = pause(ctx, 100*time.Millisecond); err == nil {
			box, err = m.p.locate(ctx, m.s)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case box == nil:
		if m.s.Persistent && hasMade(m.at.Dir) {
			m.open.Rebuilt = "its container had been removed; its files are gone"
		}
		return nil, nil
	case box.State.Status == "dead" || box.State.Status == "removing":
		// The daemon failed to remove it, and cannot start it.
		m.open.Rebuilt = "its container was " + box.State.Status + " and could not be started again; its files are gone"
		return nil, m.p.remove(ctx, box.ID)
	case !m.s.Persistent:
		return nil, m.p.remove(ctx, box.ID)
	case box.up():
		// The keeper that had started it was killed: its guest is without a
		// client, and is about to leave.
		if err := m.p.kill(ctx, box.ID); err != nil {
			return nil, err
		}
		m.open.Notes = append(m.open.Notes, "its container was still running, without a keeper; it was ended")
	}
	return box, nil
}

// kill ends a container and waits until it has.
func (p *program) kill(ctx context.Context, id string) error {
	_, err := p.ask(ctx, askLimit, "kill", "--signal", "KILL", id)
	if absent(err) {
		return nil
	}
	if err != nil && !strings.Contains(err.Error(), "is not running") && !strings.Contains(err.Error(), "container state improper") {
		return err
	}
	if _, err = p.ask(ctx, askLimit, "wait", id); absent(err) {
		return nil
	}
	return err
}

// end makes sure that a container has stopped: its guest is given a moment to
// leave by itself. Each question is bounded, for a daemon that is gone.
func (p *program) end(ctx context.Context, id string, remove bool) error {
	const leaving = 3 * time.Second
	_, err := p.ask(ctx, leaving, "wait", id)
	if err != nil && !absent(err) {
		if err = p.kill(ctx, id); err != nil {
			return &jobs.Error{Kind: jobs.KindInfra, Msg: "end the container " + short(id), Err: err,
				Hint: "its guest exits by itself when no ping reaches it; see: " + p.path + " ps"}
		}
	}
	if remove {
		return p.remove(ctx, id)
	}
	return nil
}

func short(id string) string { return id[:min(12, len(id))] }

// make makes the environment's container.
func (m *maker) make(ctx context.Context) (string, error) {
	can, err := m.p.probe(ctx)
	if err != nil {
		return "", err
	}
	image := qualified(m.s.Image, can.podman)
	if err := m.p.ensureImage(ctx, image, m.at.Progress); err != nil {
		return "", err
	}
	id, err := m.create(ctx, can, image)
	if err != nil {
		return "", err
	}
	if err := writeMade(m.at.Dir, made{Version: 1, ID: id, Name: containerName(m.s), Created: time.Now().UTC()}); err != nil {
		return "", errors.Join(&jobs.Error{Kind: jobs.KindInfra, Msg: "record the container", Err: err}, m.p.remove(ctx, id))
	}
	return id, nil
}

// create makes it with the limits that can be held. Whether a disk limit can
// is only seen here.
func (m *maker) create(ctx context.Context, c can, image string) (string, error) {
	for {
		all := limits(m.s, m.d, c)
		flags, notes, err := settle(all, m.s.Strict)
		if err != nil {
			return "", err
		}
		argv, err := m.argv(c, flags, image)
		if err != nil {
			return "", err
		}
		out, warnings, err := m.p.tell(ctx, changeLimit, argv...)
		if err != nil && c.disk && m.s.Resources.Disk != 0 && strings.Contains(err.Error(), "storage-opt") {
			c.disk = false
			continue
		}
		if err != nil {
			return "", m.refused(err)
		}
		id := lastWord(out)
		if id == "" {
			return "", &jobs.Error{Kind: jobs.KindInfra, Msg: m.p.path + " create named no container"}
		}
		// A limit that the daemon says it can hold and then drops after all.
		if i := strings.Index(warnings, "imitation discarded"); i >= 0 {
			return "", errors.Join(&jobs.Error{Kind: jobs.KindConfig,
				Msg:  "a limit cannot be held here: " + strings.Join(strings.Fields(warnings), " "),
				Hint: "see " + m.p.path + " info"}, m.p.remove(ctx, id))
		}
		m.open.Notes = append(m.open.Notes, notes...)
		return id, nil
	}
}

// lastWord is the id: a program that pulls in between writes more before it.
func lastWord(out string) string {
	f := strings.Fields(out)
	if len(f) == 0 {
		return ""
	}
	return f[len(f)-1]
}

// refused gives what "create" complained about its kind and hint.
func (m *maker) refused(err error) error {
	text := err.Error()
	e := &jobs.Error{Kind: jobs.KindOf(err), Msg: "make the container", Err: err, Hint: jobs.HintOf(err)}
	switch {
	case strings.Contains(text, "already in use"):
		return m.p.foreign(containerName(m.s))
	case strings.Contains(text, "bind source path does not exist"), strings.Contains(text, "no such file or directory"):
		e.Kind = jobs.KindNotFound
		e.Hint = "the daemon must run on this machine, and see its directories: file systems that refuse root, as NFS does, cannot be mounted"
	case strings.Contains(text, "Range of CPUs"), strings.Contains(text, "inimum memory limit"):
		e.Kind, e.Hint = jobs.KindConfig, "ask for what this machine has"
	case strings.Contains(text, "Duplicate mount point"):
		e.Kind, e.Hint = jobs.KindUsage, "give each destination once"
	case strings.Contains(text, "invalid reference format"):
		e.Kind, e.Hint = jobs.KindUsage, "write the image as for docker, for example debian:12"
	}
	return e
}

func hasMade(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, fileMade))
	return err == nil
}

func writeMade(dir string, m made) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	return disk.Replace(filepath.Join(dir, fileMade), append(b, '\n'), 0o600)
}

// installGuest puts a copy of the guest program into a directory that is bound
// into the container. A container outlives berth's version, and a bind cannot
// be changed; what stands in the directory can. Others than its owner may run
// it: users inside are no users of this machine.
func installGuest(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	dir := filepath.Dir(to)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if fi, err := os.Lstat(to); err == nil && fi.Mode() == 0o755 {
		if now, err := os.ReadFile(to); err == nil && string(now) == string(data) {
			return nil
		}
	}
	return disk.Replace(to, data, 0o755)
}
