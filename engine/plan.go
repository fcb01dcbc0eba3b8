package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"berth/internal/ids"
	"berth/jobs"
	"berth/overlay"
)

// Plan settles a task into a spec: every value chosen, every limit either held
// or refused. It starts nothing. With dry, no scheduler and no container program
// is asked, and image and environment need not be here, so that a script can be
// rendered on any machine; the repository is read all the same.
func (e *Engine) Plan(ctx context.Context, t jobs.Task, c Choice, dry bool) (*jobs.Spec, error) {
	if t.Name == "" || t.Command.Empty() {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "a task needs a name and a command"}
	}
	host, _ := os.Hostname()
	id := "00000000-0000-7000-8000-000000000000" // shown by render; a submitted job has its own
	if !dry {
		var err error
		if id, err = ids.New(); err != nil {
			return nil, err
		}
	}
	who := identity()
	s := &jobs.Spec{
		Version: jobs.SpecVersion, ID: id, Name: t.Name, Slug: jobs.Slug(t.Name), Command: t.Command, Prompt: t.Prompt != "",
		Resources: t.Resources, Mounts: t.Terminal.Bind, Slurm: mergeSlurm(c.Profile.Slurm, t.Slurm), Profile: c.Profile,
		Done: t.Done, Artifacts: t.Artifacts, Created: e.Now().UTC(), User: who.User, Host: host,
	}
	if err := e.pickScheduler(ctx, s, t, c, dry); err != nil {
		return nil, err
	}
	if err := e.pickBackend(ctx, s, t, c, dry); err != nil {
		return nil, err
	}
	if err := e.settleLimits(s); err != nil {
		return nil, err
	}
	if err := e.settleEnv(s, t, dry); err != nil {
		return nil, err
	}
	if t.Workspace != nil {
		if err := e.settleWorkspace(ctx, s, t); err != nil {
			return nil, err
		}
	} else if len(t.Artifacts) > 0 {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "artifacts are taken from the workspace, and this task has none", Hint: `add [workspace] repo = "."`}
	}
	if err := checkMounts(s.Mounts); err != nil {
		return nil, err
	}
	return s, checkSpec(s)
}

func (e *Engine) pickScheduler(ctx context.Context, s *jobs.Spec, t jobs.Task, c Choice, dry bool) error {
	const auto = "auto"
	name := c.Scheduler
	if name == "" || name == auto {
		name = c.Profile.Scheduler
	}
	if (name == "" || name == auto) && (c.Backend == jobs.BackendSSH || t.Terminal.Backend == jobs.BackendSSH && c.Backend == "") {
		name = jobs.SchedulerLocal // the host is reached from here
	}
	if name == "" || name == auto {
		name = ""
		if dry {
			name = jobs.SchedulerSlurm
		} else {
			for _, sc := range e.Schedulers {
				if got := sc.Check(ctx); got.Health != jobs.Undetected {
					name = sc.Name()
					break
				}
			}
		}
	}
	if name == "" {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "no scheduler can be used on this machine", Hint: "the schedulers are: " + names(e.Schedulers) + "; --scheduler local needs nothing"}
	}
	s.Scheduler = name
	_, err := e.scheduler(name)
	return err
}

func (e *Engine) settleImage(s *jobs.Spec, t jobs.Task, image string, dry bool) error {
	if image == "" {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the task names no image", Hint: `give a SIF with --image FILE, [terminal] image in the task, or image in the profile; apptainer pull debian.sif docker://debian makes one`}
	}
	abs, err := filepath.Abs(image)
	if err != nil {
		return err
	}
	s.Image = abs
	if !dry {
		if _, err := overlay.ImageID(abs); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return &jobs.Error{Kind: jobs.KindNotFound, Msg: "image " + abs + " does not exist", Hint: "apptainer pull " + filepath.Base(abs) + " docker://IMAGE makes one"}
			}
			return err
		}
	}
	return e.settleOverlay(s, t)
}

// settleOverlay chooses the driver at submit, so that the script shows the true
// command line: the overlay's own mark, else ext3 where a size is to be held,
// else the profile's, else a directory, or ext3 for a named overlay on a file
// system where a directory cannot be right.
func (e *Engine) settleOverlay(s *jobs.Spec, t jobs.Task) error {
	o := jobs.OverlaySpec{Name: t.Terminal.Overlay, Driver: jobs.DriverFuse, Size: t.Resources.Disk}
	if s.Profile.Overlay != "" {
		o.Driver = s.Profile.Overlay
	} else if o.Name != "" && !overlay.TakesDirectories(e.Store.Overlays()) {
		o.Driver = jobs.DriverExt3
	}
	if o.Size != 0 {
		o.Driver = jobs.DriverExt3
	}
	if o.Name != "" {
		if err := overlay.CheckName(o.Name); err != nil {
			return err
		}
		m, err := overlay.ReadMark(filepath.Join(e.Store.Overlays(), o.Name))
		if err != nil {
			return err
		}
		if m != nil && o.Size != 0 && (m.Driver != jobs.DriverExt3 || m.Size != o.Size) {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("overlay %s exists already (%s), and [resources] disk cannot resize it to %s", o.Name, describe(m), o.Size), Hint: "remove disk from the task, or use another overlay name"}
		}
		if m != nil {
			o.Driver = m.Driver
		}
	}
	s.Overlay = o
	return nil
}

func describe(m *overlay.Mark) string {
	switch {
	case m.Driver != jobs.DriverExt3:
		return "a directory"
	case m.Size == 0:
		return overlay.DefaultSize.String()
	}
	return m.Size.String()
}
