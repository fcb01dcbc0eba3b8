package docker

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"berth/jobs"
)

// Job is the container of an attempt on its node.
type Job struct {
	Argv  []string // with the program that is here, and what this daemon needs
	Env   []string // of the program, whole
	Notes []string

	p    *program
	name string
}

// NewJob settles on the node what [Backend.Argv] left open: it resolves the
// program, makes sure that the limits of argv are held here, and pulls the
// image. name is the container's.
func NewJob(ctx context.Context, on jobs.Starter, argv []string, image, name string, progress func(string)) (*Job, error) {
	p, err := find(on, "")
	if err != nil {
		return nil, err
	}
	c, err := p.probe(ctx)
	if err != nil {
		return nil, err
	}
	j := &Job{p: p, name: name, Env: p.env, Argv: slices.Clone(argv)}
	at := len(j.Argv) - 1
	for at > 1 && j.Argv[at] != image {
		at--
	}
	if at < 2 || j.Argv[1] != "run" {
		return nil, fmt.Errorf("the command line %.100q is not one of the backend docker", argv)
	}
	for _, l := range []struct {
		flag string
		held bool
	}{{"--cpus", c.cpus}, {"--memory", c.memory}} {
		if slices.Contains(j.Argv[:at], l.flag) && !l.held {
			return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the limit " + strings.TrimPrefix(l.flag, "--") + " cannot be held here: " + c.why,
				Hint: "leave it out of [resources]"}
		}
	}
	if !c.pids {
		j.Notes = append(j.Notes, "the number of processes is not bounded: "+c.why)
	}
	if err := j.checkRoot(j.Argv[:at], c); err != nil {
		return nil, err
	}
	j.Argv[0] = p.path
	j.Argv[at] = qualified(image, c.podman)
	j.asUser(c)
	return j, p.ensureImage(ctx, qualified(image, c.podman), progress)
}

// asUser keeps the files of mounts the user's own: a rootless daemon maps only
// root inside to the user.
func (j *Job) asUser(c can) {
	i := slices.Index(j.Argv, "--user")
	if i < 0 || i+1 >= len(j.Argv) {
		return
	}
	switch {
	case c.podman:
		j.Argv = slices.Insert(j.Argv, 2, podmanFlags(c, j.Argv[i+1])...)
	case c.rootless:
		j.Argv[i+1] = "0:0"
	}
}

// PID is the number that the container's first process has on this machine, or
// 0 when it cannot be told.
func (j *Job) PID(ctx context.Context) int {
	list, err := j.p.inspect(ctx, j.name)
	if err != nil || list[0].Config.Labels[labelAttempt] != j.name {
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
		return nil, nil, &jobs.Error{Kind: jobs.KindAgain, Msg: "there is no container " + name + " at the moment", Hint: "has the job just ended? berth ps"}
	case err != nil:
		return nil, nil, err
	case list[0].Config.Labels[labelAttempt] != name:
		return nil, nil, p.foreign(name)
	}
	return append([]string{p.path, "exec", "--interactive", list[0].ID, guestPath}, args...), p.env, nil
}

// Gone makes sure that the attempt's container is there no more. One of its
// name without its label is left alone.
func (j *Job) Gone(ctx context.Context) error {
	list, err := j.p.inspect(ctx, j.name)
	if absent(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if list[0].Config.Labels[labelAttempt] != j.name {
		return j.p.foreign(j.name)
	}
	return j.p.remove(ctx, list[0].ID)
}

// NoGuest tells whether a container did not start because of its guest program, the
// file guest of this machine: the daemon does not see it, as where it has a /tmp of
// its own, or may not run it.
func NoGuest(text, guest string) bool {
	unseen := strings.Contains(text, "does not exist") || strings.Contains(text, "no such file or directory")
	return unseen && strings.Contains(text, guest) || strings.Contains(text, guestPath) && strings.Contains(text, "permission denied")
}

// StartTrouble gives the kind and the hint of what the program said when a
// container did not start; KindInfra and "" where nothing better is known.
func StartTrouble(text string) (jobs.Kind, string) {
	switch {
	case strings.Contains(text, "could not select device driver"), strings.Contains(text, "unknown or invalid runtime name"):
		return jobs.KindConfig, "the daemon knows no GPUs: install the NVIDIA container toolkit on this machine, or leave gpu out"
	case strings.Contains(text, "is already in use by container"):
		return jobs.KindConfig, "a container of that name is not this attempt's; see docker ps -a"
	case strings.Contains(text, "bind source path does not exist"):
		return jobs.KindConfig, "the daemon must run on this machine, and see its directories: file systems that refuse root, as NFS does, cannot be mounted"
	case strings.Contains(text, "exec format error"):
		return jobs.KindConfig, "the image, or the guest program, is for another processor"
	case strings.Contains(text, guestPath) && strings.Contains(text, "permission denied"):
		return jobs.KindConfig, "the state directory may be on a file system that is mounted noexec; set BERTH_HOME to another"
	case strings.Contains(text, "Cannot connect to the Docker daemon"):
		return jobs.KindInfra, "is it running? sudo systemctl start docker"
	}
	return jobs.KindInfra, ""
}
