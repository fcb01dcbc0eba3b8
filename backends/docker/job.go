package docker

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/sys/private"
	"berth/jobs"
)

// attempt opens the place of an attempt: the program is found, the limits are
// looked at and the image is pulled. Its container is removed when it ends, or, where it
// may be kept, when that is decided.
func attempt(ctx context.Context, s *jobs.EnvSpec, at jobs.OpenPlace) (*jobs.Opening, error) {
	p, err := find(at.On, "")
	if err != nil {
		return nil, err
	}
	c, err := p.probe(ctx)
	if err != nil {
		return nil, err
	}
	name, user := at.Attempt.Name, at.Attempt.User
	anonymous := &volumes{p: p}
	op := &jobs.Opening{Env: p.env, OwnPIDNamespace: true, Home: jobs.HomeInside(os.Getenv, s.User), Level: s.Level, Work: jobs.WorkDir, HoldsLimits: true,
		Unseen: noGuest, Trouble: startTrouble,
		Version: func(ctx context.Context) (string, string) {
			return jobs.BackendDocker, (&Backend{On: at.On}).Check(ctx).Version
		},
		End: func(ctx context.Context) error { return p.gone(ctx, name) },
		Init: func(ctx context.Context) int {
			if s.Looks() {
				anonymous.of(ctx, name)
			}
			return p.first(ctx, name)
		},
		Remains: func(ctx context.Context, d *jobs.Destroyed) {
			anonymous.look(ctx, d, func(ctx context.Context) ([]container, error) { return p.labelled(ctx, labelAttempt+"="+name) })
		},
	}
	for _, l := range []struct {
		name        string
		asked, held bool
	}{{"cpus", s.Resources.CPUs != 0, c.cpus}, {"memory", s.Resources.Memory != 0, c.memory}} {
		if l.asked && !l.held {
			return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the limit " + l.name + " cannot be held here: " + c.why,
				Hint: "leave it out of [resources]"}
		}
	}
	if !c.pids {
		op.Notes = append(op.Notes, "the number of processes is not bounded: "+c.why)
	}
	if err := checkRoot(user, s.Mounts, c); err != nil {
		return nil, err
	}
	inside := user
	if c.rootless && !c.podman { // which maps only root inside to the user
		inside = "0:0"
	}
	keeps := at.Attempt.Spec.Overlay.Keep != ""
	var labels []string
	if keeps {
		if labels, err = keptLabels(s, at.Attempt.Spec.ID); err != nil {
			return nil, err
		}
		op.Keep = func(ctx context.Context, s *jobs.EnvSpec) error { return p.keep(ctx, s, at, inside, op.Home) }
		op.Close = func() error { return p.dropAside(context.Background(), name) }
		if id, _, _ := strings.Cut(inside, ":"); id != "0" && homeOf(s, at.Scratch) != nil {
			op.Home, op.Files = homeOf(s, at.Scratch).Destination, []string{dirHome}
		}
	}
	image := qualified(s.Image, c.podman)
	op.Line = func(l jobs.LineAt) (argv, notes []string, err error) {
		in := at.Attempt.Spec.InvocationAt(l)
		in.Name, in.User, in.Image = name, inside, image
		flags := podmanFlags(c, user)
		if l.Scratch == at.Scratch { // the task's own, and not that of its checks
			flags = append(flags, labels...)
		} else {
			in.Overlay.Keep = ""
		}
		if len(op.Files) > 0 {
			home := homeOf(s, l.Scratch)
			if err := makeHome(home); err != nil {
				return nil, nil, err
			}
			in.Mounts = append(in.Mounts, *home)
		}
		places := private.Places{State: s.Home, Base: private.BaseOf(at.Scratch), Allow: s.HostSockets}
		covers, notes, err := places.Covers(s.Mounts, filepath.Join(at.Scratch, "empty"))
		if err != nil {
			return nil, nil, err
		}
		in.Mounts = slices.Concat(in.Mounts, covers)
		argv, err = runArgv(p.path, flags, in, []string{"guest"})
		return argv, notes, err
	}
	return op, p.ensureImage(ctx, image, func(line string) {
		if !strings.HasPrefix(line, image+": ") { // a pull has many lines
			at.Progress(line)
		}
	})
}

// first is the number that the first process of an attempt's container has on this
// machine, or 0 when it cannot be told.
func (p *program) first(ctx context.Context, name string) int {
	list, err := p.inspect(ctx, name)
	if err != nil || list[0].Config.Labels[labelAttempt] != name {
		return 0
	}
	return list[0].State.Pid
}

// ExecArgv is the command line that runs the guest program of an attempt's
// container once more in it, with these arguments, and the environment of that
// command. name is the container's; its label makes it the attempt's.
func ExecArgv(ctx context.Context, on jobs.Starter, name string, args ...string) (argv, env []string, err error) {
	p, err := find(on, "")
	if err != nil {
		return nil, nil, err
	}
	list, err := p.inspect(ctx, name)
	switch {
	case absent(err):
		return nil, nil, &jobs.Error{Kind: jobs.KindAgain, Msg: "there is no container " + name + " at the moment",
			Hint: "has the job just ended? berth ps"}
	case err != nil:
		return nil, nil, err
	case list[0].Config.Labels[labelAttempt] != name:
		return nil, nil, p.foreign(name)
	}
	return append([]string{p.path, "exec", "--interactive", list[0].ID, guestPath}, args...), p.env, nil
}

// gone makes sure that the attempt's container is there no more, or that nothing of it runs
// where it may be kept. One of its name without its label is left alone.
func (p *program) gone(ctx context.Context, name string) error {
	list, err := p.inspect(ctx, name)
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if list[0].Config.Labels[labelAttempt] != name {
		return p.foreign(name)
	}
	if list[0].Config.Labels[labelEnv] != "" {
		return p.setAside(ctx, &list[0], name)
	}
	return p.remove(ctx, list[0].ID)
}

// noGuest tells whether a container did not start because of its guest program, the
// file guest of this machine: the daemon does not see it, as where it has a /tmp of
// its own, or may not run it.
func noGuest(text, guest string) bool {
	unseen := strings.Contains(text, "does not exist") || strings.Contains(text, "no such file or directory")
	return unseen && strings.Contains(text, guest) || strings.Contains(text, guestPath) && strings.Contains(text, "permission denied")
}

// startTrouble gives the kind and the hint of what the program said when a
// container did not start; KindInfra and "" where nothing better is known.
func startTrouble(text string) (jobs.Kind, string) {
	switch {
	case strings.Contains(text, "could not select device driver"), strings.Contains(text, "unknown or invalid runtime name"):
		return jobs.KindConfig, "the daemon knows no GPUs: install the NVIDIA container toolkit on this machine, or leave gpu out"
	case strings.Contains(text, "/dev/kfd") && strings.Contains(text, "no such file or directory"):
		return jobs.KindConfig, "this machine shows no GPU of AMD: leave gpu out"
	case strings.Contains(text, "is already in use by container"):
		return jobs.KindConfig, "a container of that name is not this attempt's; see docker ps -a"
	case strings.Contains(text, "bind source path does not exist"):
		return jobs.KindConfig, "the daemon must run on this machine, and see its directories: " +
			"file systems that refuse root, as NFS does, cannot be mounted"
	case strings.Contains(text, "exec format error"):
		return jobs.KindConfig, "the image, or the guest program, is for another processor"
	case strings.Contains(text, guestPath) && strings.Contains(text, "permission denied"):
		return jobs.KindConfig, "the state directory may be on a file system that is mounted noexec; set BERTH_HOME to another"
	case strings.Contains(text, "Cannot connect to the Docker daemon"):
		return jobs.KindInfra, "is it running? sudo systemctl start docker"
	}
	return jobs.KindInfra, ""
}
