package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/sys/pattern"
	"berth/jobs"
	"berth/jobs/store"
)

// What a task has left of its container is kept as an image, from which an environment
// begins: the container itself needs the work tree and the guest of its attempt, which end
// with that. Its HOME is a directory of the host, which moves to the environment's.

// keptRepository names these images for people; the environment has its image by the id.
const keptRepository = "berth-kept"

// commitLimit bounds the making of one, which copies what the task has written.
const commitLimit = 15 * time.Minute

// keptLabels are those of a container that stays when its attempt has ended, until it was
// kept: when the runner is killed meanwhile, [Backend.List] finds it by them.
func keptLabels(s *jobs.EnvSpec, job string) ([]string, error) {
	return labelFlags([][2]string{{labelEnv, s.ID}, {labelName, s.Name}, {labelHome, s.Home}, {labelUser, uid()}, {labelJob, job}})
}

// labelFlags are labels as flags.
func labelFlags(labels [][2]string) (argv []string, err error) {
	for _, l := range labels {
		if err := jobs.CheckText("the label "+l[0], l[1]); err != nil {
			return nil, err
		}
		argv = append(argv, "--label", l[0]+"="+l[1])
	}
	return argv, nil
}

// homeOf is the directory of the host that is HOME where a place is kept, below scratch, for
// a user who owns nothing in the image. Where the user has a bind there, that is HOME.
func homeOf(s *jobs.EnvSpec, scratch string) *jobs.Mount {
	m := jobs.Mount{Source: filepath.Join(scratch, dirHome), Destination: "/home/" + jobs.Slug(s.User), Writable: true}
	if slices.ContainsFunc(s.Mounts, func(b jobs.Mount) bool { return path.Clean(b.Destination) == m.Destination }) {
		return nil
	}
	return &m
}

// makeHome makes that directory.
func makeHome(m *jobs.Mount) error {
	if err := os.MkdirAll(m.Source, 0o700); err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "make a HOME for the user inside", Err: err, Hint: "is there space left? df -h " + m.Source}
	}
	return nil
}

// dirHome is the HOME of a user inside, in the directory of its environment or attempt.
const dirHome = "home"

// plainPath is a path that means itself in an instruction of a Dockerfile.
var plainPath = pattern.Lazy(`^/[A-Za-z0-9/._-]+$`)

// setAside ends the container of an attempt that is to be kept, and gives its name to those
// of the done commands. One that has not started, and was replaced, is removed.
func (p *program) setAside(ctx context.Context, c *container, name string) error {
	if err := p.end(ctx, c.ID, false); err != nil {
		return err
	}
	others, err := p.aside(ctx, name)
	if err != nil {
		return err
	}
	for _, o := range others {
		if o.ID != c.ID {
			err = errors.Join(err, p.remove(ctx, o.ID))
		}
	}
	if err != nil {
		return err
	}
	_, err = p.ask(ctx, askLimit, "rename", c.ID, name+"-kept")
	return err
}

// aside are the containers of an attempt that are to be kept.
func (p *program) aside(ctx context.Context, name string) ([]container, error) {
	return p.labelled(ctx, labelAttempt+"="+name, labelEnv, labelUser+"="+uid())
}

// keep makes an image of what is left of an attempt's container, for the environment s.
// user and home are who ran inside, and where.
func (p *program) keep(ctx context.Context, s *jobs.EnvSpec, at jobs.OpenPlace, user, home string) error {
	list, err := p.aside(ctx, at.Attempt.Name)
	if err != nil {
		return err
	}
	if len(list) != 1 || !list[0].has(s.ID, s.Home) {
		return fmt.Errorf("the container of the attempt is not there any more (%s ps --all)", p.path)
	}
	changes := []string{
		// A container of this image is not one of berth's by its labels.
		"LABEL " + labelKept + "=" + s.ID, "LABEL " + labelEnv + `=""`, "LABEL " + labelAttempt + `=""`, "ENTRYPOINT []", `CMD ["/bin/sh"]`,
	}
	if plainPath().MatchString(home) { // else the environment has a HOME of its own
		changes = append(changes, "ENV HOME="+home)
	}
	args := []string{"commit"}
	for _, c := range changes {
		args = append(args, "--change", c)
	}
	out, err := p.ask(ctx, commitLimit, append(args, list[0].ID, keptRepository+":"+jobs.Short(s.ID))...)
	if err != nil {
		return err
	}
	id := strings.TrimPrefix(lastWord(out), pinned)
	if !isDigest(id) {
		return fmt.Errorf("%s commit named no image", p.path)
	}
	s.Image, s.Docker = pinned+id, &jobs.DockerSpec{User: user, Pids: DefaultPids}
	// Behind that, as it may take what time there is: some storage drivers compare all files.
	if err := p.recordChanges(ctx, &list[0], at.Dir); err != nil {
		at.Attempt.Note("what the task has changed in the container is not known: " + err.Error())
	}
	return nil
}

// mostChanges bounds the changes that are recorded, in bytes.
const mostChanges = 1 << 20

// recordChanges records in an attempt's directory what the task has changed in the image.
func (p *program) recordChanges(ctx context.Context, c *container, dir string) error {
	out, err := p.ask(ctx, changeLimit, "diff", c.ID)
	if err != nil {
		return err
	}
	list := c.changes(out)
	n, room := 0, mostChanges
	for ; n < len(list) && len(list[n]) <= room; n++ {
		room -= len(list[n])
	}
	_, err = store.SetChanges(dir, jobs.ContainerChanges{Version: 1, Changes: list[:n], More: len(list) - n})
	return err
}

// changes reads what "diff" says of a container: what was made for its mounts is not the
// task's, and directories that only lead to what has changed are left out. A name with a line
// break is as many lines, of which each that looks like a change is taken for one.
func (c *container) changes(diff string) []string {
	skip := map[string]bool{}
	for _, m := range c.Mounts {
		mark(skip, path.Clean(m.Destination))
	}
	leads := map[string]bool{}
	lines := slices.DeleteFunc(strings.Split(diff, "\n"), func(l string) bool {
		return len(l) < 3 || l[1:3] != " /" || !strings.ContainsRune("ACD", rune(l[0])) || l[0] != 'D' && skip[l[2:]]
	})
	for _, l := range lines {
		mark(leads, path.Dir(l[2:]))
	}
	list := []string{}
	for _, l := range lines {
		word := map[byte]string{'A': "added", 'C': "changed", 'D': "deleted"}[l[0]]
		if l[0] != 'C' || !leads[l[2:]] {
			list = append(list, word+" "+l[2:])
		}
	}
	return list
}

// mark sets a path and what it is in; of one that is set already that is set, too.
func mark(set map[string]bool, p string) {
	for ; len(p) > 1 && !set[p]; p = path.Dir(p) {
		set[p] = true
	}
}

// dropAside removes the containers of an attempt that were to be kept.
func (p *program) dropAside(ctx context.Context, name string) error {
	list, err := p.aside(ctx, name)
	for _, c := range list {
		err = errors.Join(err, p.remove(ctx, c.ID))
	}
	return err
}

// keptImage is an image that was made of what a task has left.
type keptImage struct {
	ID      string `json:"Id"`
	Created time.Time
	Config  struct{ Labels map[string]string }
}

// of tells whether the image is that of an environment.
func (i *keptImage) of(env, home string) bool {
	l := i.Config.Labels
	return env != "" && l[labelVersion] == "1" && l[labelKept] == env && l[labelHome] == home && l[labelUser] == uid()
}

// keptImages lists this user's with these labels.
func (p *program) keptImages(ctx context.Context, labels ...string) ([]keptImage, error) {
	args := []string{"image", "ls", "--quiet", "--no-trunc"}
	for _, l := range append(labels, labelUser+"="+uid(), labelVersion+"=1") {
		args = append(args, "--filter", "label="+l)
	}
	out, err := p.ask(ctx, askLimit, args...)
	if err != nil {
		return nil, err
	}
	ids := strings.Fields(out)
	slices.Sort(ids)
	var all []keptImage
	for _, id := range slices.Compact(ids) { // one for each of its names
		i, err := p.keptImage(ctx, id)
		switch {
		case err == nil && i.Config.Labels[labelKept] != "":
			all = append(all, *i)
		case err != nil && !absent(err):
			return nil, err
		}
	}
	return all, nil
}

func (p *program) keptImage(ctx context.Context, id string) (*keptImage, error) {
	out, err := p.ask(ctx, askLimit, "image", "inspect", id)
	if err != nil {
		return nil, err
	}
	var list []keptImage
	if err := json.Unmarshal([]byte(out), &list); err != nil || len(list) != 1 {
		return nil, errors.Join(fmt.Errorf("%s image inspect told of %d images, not 1", p.path, len(list)), err)
	}
	return &list[0], nil
}

// removeImage removes one; who has made a container of it, or given it another name, uses it.
func (p *program) removeImage(ctx context.Context, id string) error {
	_, err := p.ask(ctx, changeLimit, "image", "rm", id)
	if err == nil || absent(err) {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindOf(err), Msg: "remove the image " + short(strings.TrimPrefix(id, pinned)) + " of what a task has left", Err: err,
		Hint: "is it used otherwise? " + p.path + " ps --all --filter ancestor=" + id}
}
