package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/config/keys"
	"berth/internal/config/sitefile"
	"berth/internal/images"
	"berth/internal/remote/replica"
	"berth/internal/sys/ids"
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
		if id = c.ID; id == "" {
			id, err = ids.New()
		}
		if err != nil {
			return nil, err
		}
	}
	who := identity()
	s := &jobs.Spec{
		ID:          id,
		Name:        t.Name,
		Slug:        jobs.Slug(t.Name),
		Command:     t.Command,
		Agent:       t.Agent,
		Prompt:      t.Prompt != "",
		PromptBytes: len(t.Prompt),
		Done:        t.Done,
		Labels:      t.Labels,
		TaskFile:    t.File,
		Submit:      t.Submit,
		Ports:       t.Ports,
		Notify:      c.Notify,
		Artifacts:   t.Artifacts,
		Results:     t.Results,
		Created:     e.Now().UTC(),
		User:        who.User,
		Host:        host,
		Place:       t.Place,
	}
	keys.Under(&s.Place, jobs.Place{Slurm: s.Profile.Slurm}, "slurm")
	put(&s.Stage, s.Profile.Stage)
	settleRetry(s, t.Retry)
	if err := e.pickScheduler(ctx, s, dry); err != nil {
		return nil, err
	}
	site, err := sitefile.Read()
	if err == nil {
		err = site.Here(&s.Place) // before a backend is looked for, of which a login node has none
	}
	if err != nil {
		return nil, err
	}
	if !dry && (t.Workspace != nil || t.Agent != nil) {
		if err := e.fewWait(site, c); err != nil {
			return nil, err
		}
	}
	if t.Workspace != nil {
		if err := e.settleWorkspace(ctx, s, t); err != nil {
			return nil, err
		}
	} else if len(t.Artifacts) > 0 {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "artifacts are taken from the workspace, and this task has none",
			Hint: `add [workspace] repo = "."`}
	}
	survey, err := e.survey(ctx, s, t)
	if err != nil {
		return nil, err
	}
	if err := e.settleAfter(ctx, s, t.After, dry); err != nil {
		return nil, err
	}
	w := wanted{dry: dry, auto: c.Auto, image: t.Reference, template: t.Template, user: s.User}
	b, notes, err := e.chooseBackend(ctx, &s.Place, w)
	if err != nil {
		return nil, err
	}
	if !s.Pulls() {
		site.Bind(&s.Place)
	}
	said, err := settlePlace(&s.Place, b, w)
	if err != nil {
		return nil, err
	}
	if err := site.Hold(&s.Place, s.Pulls()); err != nil {
		return nil, err
	}
	s.Notes = slices.Concat(s.Notes, notes, said, narrowed(&s.Place))
	if program, ok := b.(Program); ok {
		err = settleProgram(ctx, s, program, dry)
	} else if s.Can().Layers {
		err = e.settleImage(ctx, s, t, c, survey, dry || c.ImageLater)
	}
	if err != nil {
		return nil, err
	}
	if err := e.settleLayer(s, t); err != nil {
		return nil, err
	}
	if t.Slurm.MPI != "" && t.Resources.Tasks <= 1 {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "[slurm] mpi: the command runs once, and has no other rank to find",
			Hint: "give [resources] ntasks too, or leave mpi out"}
	}
	if !s.Pulls() {
		if err := holdCaps(&s.Place, s.Agent); err != nil {
			return nil, err
		}
	}
	if err := settleFate(s); err != nil {
		return nil, err
	}
	if err := e.settleLimits(s); err != nil {
		return nil, err
	}
	if !dry {
		e.settleMost(ctx, s)
	}
	if s.Retry != nil && site != nil {
		r := *s.Retry
		r.Most = site.Most(r.Most)
		s.Retry = &r
	}
	if err := settleResume(s, t.Resume); err != nil {
		return nil, err
	}
	if err := settleDone(s, t.DoneOver); err != nil {
		return nil, err
	}
	if err := e.settleEnv(s, t, dry); err != nil {
		return nil, err
	}
	if err := settleAgent(s); err != nil {
		return nil, err
	}
	if err := settleCredentials(s); err != nil {
		return nil, err
	}
	if err := settleFurther(s); err != nil {
		return nil, err
	}
	if err := e.checkBinds(&s.Place, w); err != nil {
		return nil, err
	}
	if s.Login == nil && !dry {
		s.Notes = append(s.Notes, missingBinds(s.Mounts)...)
	}
	// Last, as it may fetch images.
	if err := e.settleSubmit(ctx, s, dry, c.Offline || c.NoChildImages); err != nil {
		return nil, err
	}
	s.Version = s.Needs()
	return s, checkSpec(s)
}

func (e *Engine) pickScheduler(ctx context.Context, s *jobs.Spec, dry bool) error {
	const auto = "auto"
	name := s.Scheduler
	if s.Login != nil {
		site, err := e.site(s)
		if err != nil {
			return err
		}
		there := site.Scheduler().Name()
		if name != "" && name != auto && name != there {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "the scheduler " + name + " has no login host",
				Hint: "--login goes with " + there + "; the backend ssh runs a command on another host: --backend ssh --host " + s.Login.Host}
		}
		name = there
	}
	if name == "" || name == auto {
		name = s.Profile.Scheduler
	}
	if (name == "" || name == auto) && unlessAuto(s.Backend) != "" && s.Can().OtherHost {
		name = jobs.SchedulerLocal // the host, or the service, is reached from here
	}
	if name == "" || name == auto {
		name = ""
		for _, sc := range e.Schedulers {
			if dry && jobs.IsCluster(sc.Name()) || !dry && sc.Check(ctx).Health != jobs.Undetected {
				name = sc.Name()
				break
			}
		}
	}
	if name == "" {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "no scheduler can be used on this machine",
			Hint: "the schedulers are: " + names(e.Schedulers) + "; --scheduler local needs nothing"}
	}
	s.Scheduler = name
	_, err := e.scheduler(name)
	return err
}

func (e *Engine) settleImage(ctx context.Context, s *jobs.Spec, t jobs.Task, c Choice, survey *replica.Survey, dry bool) error {
	abs, err := e.imageHere(ctx, s, t, c, dry)
	if err != nil {
		return err
	}
	if survey != nil {
		if err := e.settleFarImage(ctx, s, t, survey, abs, dry); err != nil {
			return err
		}
		return e.settleOverlay(s, survey.Directories, survey.Mark)
	}
	if err := e.settleFile(ctx, s, abs, dry); err != nil {
		return err
	}
	if t.Overlay.Name == "" {
		return e.settleOverlay(s, true, nil)
	}
	if err := overlay.CheckName(t.Overlay.Name); err != nil {
		return err
	}
	m, err := overlay.ReadMark(filepath.Join(e.Store.Overlays(), t.Overlay.Name))
	if err != nil {
		return err
	}
	if m != nil && !dry { // the node looks again
		id, err := overlay.LowerID(abs)
		if err != nil {
			return err
		}
		if err := m.CheckImage(t.Overlay.Name, overlay.Image{Path: abs, ID: id, Sum: s.ImageSum}); err != nil {
			return err
		}
	}
	return e.settleOverlay(s, overlay.TakesDirectories(e.Store.Overlays()), m)
}

// imageHere is the path of the image that a task asks for. One of a template or a reference is in the cache of this machine.
func (e *Engine) imageHere(ctx context.Context, s *jobs.Spec, t jobs.Task, c Choice, dry bool) (string, error) {
	image := imageOf(t)
	if t.Template != "" {
		var err error
		if image, err = e.settleTemplate(ctx, s, t, c, dry); err != nil {
			return "", err
		}
	}
	if image == "" {
		return "", &jobs.Error{Kind: jobs.KindUsage, Msg: NoImage,
			Hint: `give a SIF or a reference such as docker://debian:12 with --image, [terminal] image in the task, or image in the profile`}
	}
	if images.IsReference(image) {
		return e.settleReference(ctx, s, image, dry, c.Offline)
	}
	return filepath.Abs(image)
}

// settleFile settles an image that is a file or a directory of this machine: what it is now,
// unless that is known of a reference.
func (e *Engine) settleFile(ctx context.Context, s *jobs.Spec, path string, dry bool) (err error) {
	s.Image = path
	if dry || s.ImageRef != "" {
		return nil
	}
	if s.ImageDir, err = imageFile(path); err == nil && s.ImageDir == "" {
		s.ImageSum, err = e.content(ctx, path)
	}
	return err
}

// imageFile looks at an image that is a file or a directory of this machine, and
// returns the id of an unpacked one ("" is a file).
func imageFile(path string) (dir string, err error) {
	id, err := overlay.LowerID(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", noImage(path)
	case err != nil:
		return "", err
	case !strings.HasPrefix(id, overlay.PrefixDir):
		return "", images.CutOff(path)
	case !overlay.IsUnpacked(path):
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "the directory " + path + " is no unpacked image",
			Hint: "name a SIF, or make one: apptainer build --sandbox DIR docker://debian:12"}
	}
	return id, nil
}

func noImage(path string) error {
	return &jobs.Error{Kind: jobs.KindNotFound, Msg: "image " + path + " does not exist",
		Hint: "name one that does, or a reference such as docker://debian:12"}
}

// settleOverlay chooses the driver at submit, so that the script shows the true
// command line: the overlay's own mark, else the profile's, which doctor has
// found by trying, else ext3 where a size is to be held, else a directory, or
// ext3 for a named overlay on a file system where a directory cannot be right.
// The size of a directory is watched by the runner.
// m is the mark of the one that exists already. On the node it is tried again.
func (e *Engine) settleOverlay(s *jobs.Spec, directories bool, m *overlay.Mark) error {
	o := s.Overlay
	o.Size = s.Resources.Disk
	site := "the profile"
	if s.Profile.Name != "" {
		site += " " + s.Profile.Name
	}
	if m != nil && m.Driver == jobs.DriverKernel && s.ImageDir == "" && s.Stage == jobs.StageNever {
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "overlay " + o.Name + ` has the driver kernel, which takes an unpacked image, and stage is "never"`,
			Hint: "leave stage out, or change the driver: berth overlay convert " + o.Name + " --driver ext3"}
	}
	if m != nil && m.Driver == jobs.DriverFuse && s.ImageDir != "" {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "overlay " + o.Name + " has the driver fuse, which is not right over an unpacked image",
			Hint: "berth overlay convert " + o.Name + " --driver kernel"}
	}
	switch memory := s.Resources.Memory; {
	case m != nil:
		if o.Size != 0 && m.Driver == jobs.DriverExt3 && m.Size != o.Size {
			return &jobs.Error{Kind: jobs.KindUsage,
				Msg:  fmt.Sprintf("overlay %s exists already (%s), and [resources] disk cannot resize it to %s", o.Name, describe(m), o.Size),
				Hint: "remove disk from the task, or use another overlay name"}
		}
		o.Driver, o.Why = m.Driver, "what the overlay was written with"
	case o.Size != 0 && s.Profile.Overlay == "":
		o.Driver, o.Why = jobs.DriverExt3, "a size is asked for"
	case o.Name != "" && !directories && s.Profile.Overlay != jobs.DriverFuse:
		o.Driver, o.Why = jobs.DriverExt3, "overlays are on a network file system"
	case s.ImageDir != "" && s.Profile.Overlay == jobs.DriverFuse:
		o.Driver, o.Why = jobs.DriverKernel, "the image is unpacked, and "+site+" says fuse, which is not right over it"
	case s.Profile.Overlay == jobs.DriverKernel && s.ImageDir == "" && memory != 0 && memory < overlay.UnpackMemory:
		o.Driver, o.Why = jobs.DriverFuse, fmt.Sprintf("%s says kernel, and unpacking an image may take %s of memory", site, overlay.UnpackMemory)
	case s.Profile.Overlay == jobs.DriverKernel && s.Stage == jobs.StageNever:
		o.Driver, o.Why = jobs.DriverFuse, site+` says kernel, which takes an unpacked image, and stage is "never"`
	case s.Profile.Overlay != "":
		o.Driver, o.Why = s.Profile.Overlay, site+" says so"
	case s.ImageDir != "":
		o.Driver, o.Why = jobs.DriverKernel, "the image is unpacked"
	default:
		o.Driver, o.Why = jobs.DriverFuse, "no profile says what was found right"
	}
	s.Overlay = o
	return overlay.CheckSize(o.Driver, o.Size, 0)
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
