package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"berth/jobs"
)

// Labels by which a container is known to be berth's.
const (
	labelVersion = "berth.version"
	labelEnv     = "berth.env"
	labelName    = "berth.name"
	labelHome    = "berth.home"
	labelUser    = "berth.user"
	labelAttempt = "berth.attempt"
	labelJob     = "berth.job"  // of an attempt's container that is to be kept
	labelKept    = "berth.kept" // of an image: the environment that begins with it
)

// container is a container as "inspect" shows it.
type container struct {
	ID      string `json:"Id"`
	Name    string
	Image   string // its id
	Created time.Time
	State   struct {
		Status    string
		Running   bool
		Paused    bool
		OOMKilled bool
		Pid       int
	}
	Config struct {
		Labels map[string]string
		User   string
	}
	Mounts []struct {
		Type, Name, Source, Destination string

		RW bool
	}
}

// up tells whether anything of the container may be running.
func (c *container) up() bool {
	switch c.State.Status {
	case "created", "exited", "dead", "configured", "initialized", "stopped":
		return c.State.Running
	}
	return true
}

// of tells whether the container is that of an environment, which begins with nothing of the
// container of an attempt: that has the attempt's network, binds and variables.
func (c *container) of(s *jobs.EnvSpec) bool {
	return c.has(s.ID, s.Home) && c.Config.Labels[labelAttempt] == ""
}

// has tells whether it is that, or the one of the attempt that the environment keeps.
func (c *container) has(env, home string) bool {
	l := c.Config.Labels
	return env != "" && l[labelVersion] == "1" && l[labelEnv] == env && l[labelHome] == home && l[labelUser] == uid()
}

func uid() string { return strconv.Itoa(os.Getuid()) }

// inspect reads containers by name or id; one that is not there is absent.
func (p *program) inspect(ctx context.Context, refs ...string) ([]container, error) {
	out, err := p.ask(ctx, askLimit, append([]string{"container", "inspect"}, refs...)...)
	if err != nil {
		return nil, err
	}
	var list []container
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return nil, fmt.Errorf("%s container inspect: %w", p.path, err)
	}
	if len(list) != len(refs) {
		return nil, fmt.Errorf("%s container inspect told of %d containers, not %d", p.path, len(list), len(refs))
	}
	return list, nil
}

// labelled lists the containers with all these labels.
func (p *program) labelled(ctx context.Context, labels ...string) ([]container, error) {
	args := []string{"ps", "--all", "--quiet", "--no-trunc"}
	for _, l := range labels {
		args = append(args, "--filter", "label="+l)
	}
	out, err := p.ask(ctx, askLimit, args...)
	if err != nil || out == "" {
		return nil, err
	}
	ids := strings.Fields(out)
	list, err := p.inspect(ctx, ids...)
	if !absent(err) {
		return list, err
	}
	// One of them has just been removed.
	for _, id := range ids {
		one, err := p.inspect(ctx, id)
		if err != nil && !absent(err) {
			return nil, err
		}
		list = append(list, one...)
	}
	return list, nil
}

// containerName is what an environment's container is called. Its labels, and
// not its name, say whose it is.
func containerName(s *jobs.EnvSpec) string {
	return "berth-" + jobs.Slug(s.Name) + "-" + jobs.Short(s.ID)
}

// locate finds an environment's container; nil is that there is none. A
// container of the name that is not the environment's is an error.
func (p *program) locate(ctx context.Context, s *jobs.EnvSpec) (*container, error) {
	name := containerName(s)
	byName, err := p.inspect(ctx, name)
	if err != nil && !absent(err) {
		return nil, err
	}
	if len(byName) == 1 && byName[0].of(s) {
		return &byName[0], nil
	}
	list, err := p.labelled(ctx, labelEnv+"="+s.ID, labelUser+"="+uid())
	if err != nil {
		return nil, err
	}
	var mine []container
	for _, c := range list {
		if c.of(s) {
			mine = append(mine, c)
		}
	}
	switch {
	case len(mine) == 1:
		return &mine[0], nil // it was renamed
	case len(mine) > 1:
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("there are %d containers of the environment %s", len(mine), s.Name),
			Hint: "look at them: " + p.path + " ps -a --filter label=" + labelEnv + "=" + s.ID + "; and remove all but one"}
	case len(byName) == 1:
		return nil, p.foreign(name)
	}
	return nil, nil
}

func (p *program) foreign(name string) error {
	return &jobs.Error{Kind: jobs.KindConfig, Msg: "there is a container " + name + " that does not carry the labels of this environment; it is left alone",
		Hint: "if you can spare the name: " + p.path + " rename " + name + " " + name + "-old"}
}

// remove removes a container and its volumes without a name, whatever its
// state.
func (p *program) remove(ctx context.Context, id string) error {
	_, err := p.ask(ctx, changeLimit, "rm", "--force", "--volumes", id)
	if err == nil || absent(err) {
		return nil
	}
	if !strings.Contains(err.Error(), "already in progress") {
		return err
	}
	for deadline := time.Now().Add(askLimit); time.Now().Before(deadline); {
		if _, err := p.inspect(ctx, id); absent(err) {
			return nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return err
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// Remove removes the environment's container, and the image that was kept for it.
func (*Backend) Remove(ctx context.Context, s *jobs.EnvSpec, on jobs.Starter) error {
	p, err := find(on, dockerSpec(s).Program)
	if err != nil {
		return err
	}
	list, err := p.labelled(ctx, labelEnv+"="+s.ID, labelUser+"="+uid())
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range list {
		if c.has(s.ID, s.Home) {
			errs = append(errs, p.remove(ctx, c.ID))
		}
	}
	images, err := p.keptImages(ctx, labelKept+"="+s.ID)
	errs = append(errs, err)
	for _, i := range images {
		if i.of(s.ID, s.Home) {
			errs = append(errs, p.removeImage(ctx, i.ID))
		}
	}
	return errors.Join(errs...)
}

// List finds the containers of this user's environments, of every state
// directory, and the images that were kept for them. Where no program is, there are none.
func (*Backend) List(ctx context.Context, on jobs.Starter) ([]jobs.Found, error) {
	var out []jobs.Found
	var errs []error
	seen := map[string]bool{}
	for _, p := range all(on) {
		list, err := p.labelled(ctx, labelEnv, labelUser+"="+uid(), labelVersion+"=1")
		if err != nil {
			errs = append(errs, err)
		}
		for _, c := range list {
			// Docker may be another name of podman, and any user makes containers of a kept image.
			if l := c.Config.Labels; !seen[c.ID] && l[labelEnv] != "" {
				seen[c.ID] = true
				job := ""
				if l[labelAttempt] != "" {
					job = l[labelJob]
				}
				out = append(out, jobs.Found{
					Backend: jobs.BackendDocker,
					ID:      l[labelEnv],
					Name:    l[labelName],
					What:    "container",
					Ref:     c.ID,
					Running: c.up(),
					Created: c.Created,
					Home:    l[labelHome],
					Job:     job,
				})
			}
		}
		images, err := p.keptImages(ctx, labelKept)
		if err != nil {
			errs = append(errs, err)
		}
		for _, i := range images {
			if l := i.Config.Labels; !seen[i.ID] {
				seen[i.ID] = true
				out = append(out, jobs.Found{Backend: jobs.BackendDocker, ID: l[labelKept], Name: l[labelName], What: jobs.WhatImage, Ref: i.ID,
					Created: i.Created, Home: l[labelHome], Job: l[labelJob]})
			}
		}
	}
	return out, errors.Join(errs...)
}

// Reap removes one container or image that List has found, if it is still that one. What
// is gone already is no error.
func (*Backend) Reap(ctx context.Context, on jobs.Starter, f jobs.Found) error {
	for _, p := range all(on) {
		if f.What == jobs.WhatImage {
			i, err := p.keptImage(ctx, f.Ref)
			switch {
			case absent(err):
				continue
			case err != nil:
				return err
			case !i.of(f.ID, f.Home):
				return &jobs.Error{Kind: jobs.KindConfig,
					Msg: "the image " + f.Ref + " was not kept for the environment " + f.ID + "; it is left alone"}
			}
			return p.removeImage(ctx, i.ID)
		}
		list, err := p.inspect(ctx, f.Ref)
		if absent(err) {
			continue
		}
		if err != nil {
			return err
		}
		if !list[0].has(f.ID, f.Home) {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: "the container " + f.Ref + " is not of the environment " + f.ID + "; it is left alone"}
		}
		return p.remove(ctx, list[0].ID)
	}
	return nil
}

func dockerSpec(s *jobs.EnvSpec) jobs.DockerSpec {
	if s.Docker == nil {
		return jobs.DockerSpec{}
	}
	return *s.Docker
}
