package apptainer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"berth/internal/images"
	"berth/internal/node/limits"
	"berth/internal/sys/disk"
	"berth/internal/sys/private"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

var _ jobs.Opener = (*Backend)(nil)

// opener opens one environment.
type opener struct {
	b       *Backend
	spec    *jobs.EnvSpec
	at      jobs.OpenPlace
	program string
	runs    Runs // but for the driver
	// anywhere has directories tried also on network file systems.
	anywhere bool
	// ways is that a driver that is refused now is passed over for another one.
	ways bool
}

// Names in the directory of an environment, or in its keeper's scratch.
const (
	dirOverlay = "overlay"
	dirMerged  = "merged"
	dirWorkdir = "w"
	dirConf    = "apptainer"
	dirEmpty   = "empty" // bound read-only over what is not to be seen
)

// Open has the image of an environment on this machine, its layer in place and
// its limits held, and returns the line that runs the guest in the container.
// Nothing runs yet when it returns. Only the first time on a machine are
// programs started for it: an image is converted or unpacked, a driver tried.
func (b *Backend) Open(ctx context.Context, s *jobs.EnvSpec, at jobs.OpenPlace) (*jobs.Opening, error) {
	program, err := FindProgram(os.Getenv("PATH"))
	if err != nil {
		return nil, err
	}
	o := &opener{b: b, spec: s, at: at, program: program, runs: Runs{Stage: s.Stage, Environment: true}}
	if at.Attempt != nil {
		bare := *s
		bare.Overlay = jobs.OverlaySpec{} // what is wanted of it is settled
		o.spec, o.anywhere, o.runs = &bare, true, Runs{Stage: s.Stage, Tasks: s.Resources.Tasks, Time: s.Resources.Time}
	}
	for _, d := range []string{dirWorkdir, dirConf, dirEmpty} {
		if err := os.MkdirAll(filepath.Join(at.Scratch, d), 0o700); err != nil {
			return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make a scratch directory on the node", Err: err,
				Hint: "is there space left on " + filepath.Dir(at.Scratch) + "?"}
		}
	}
	op := &jobs.Opening{Env: o.environ(), OwnPIDNamespace: true, WritableRoot: true, Home: o.home(), Dir: s.Dir,
		Level: s.Network.Level(b.Level()), Program: program}
	op.Explain = Explain(at.On, program, op.Env)
	if at.Attempt != nil {
		op.Level = s.Level
		op.Version = func(ctx context.Context) (string, string) {
			v, _ := Version(ctx, at.On, program)
			return filepath.Base(program), v
		}
		return op, o.attempt(ctx, op)
	}
	if err := checkMounts(s.Mounts); err != nil {
		return nil, err
	}
	if s.Resources.Tasks > 1 {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "an environment is one container, and cannot have several tasks",
			Hint: "leave ntasks out; a job can have them: berth submit --ntasks"}
	}
	img, err := o.findImage(ctx)
	if err != nil {
		return nil, err
	}
	if img.dir {
		op.Notes = append(op.Notes, "the image "+img.path+" is a directory: it must not change as long as the environment stands")
	}
	if isolated, err := s.Isolated(); err != nil {
		return nil, err
	} else if isolated {
		if err := o.hasNetworkNone(ctx); err != nil {
			return nil, err
		}
	}
	if s.Fakeroot {
		op.Notes = append(op.Notes, o.fakerootNote())
		if o.fakerootPretends() {
			op.RunsFirst = "the command fakeroot is a script, which the image's shell runs before the guest and beside it"
		}
	}
	dir := filepath.Join(at.Scratch, dirOverlay)
	if s.Persistent {
		dir, op.Files = filepath.Join(at.Dir, dirOverlay), []string{dirOverlay}
	}
	c, err := o.choose(ctx, img, dir)
	if err != nil {
		return nil, err
	}
	if c.note != "" {
		op.Notes = append(op.Notes, c.note)
	}
	if c.used == nil {
		if c.used, err = o.stage(ctx, img, c.driver); err != nil {
			return nil, err
		}
		c.lower = c.used.Path
	}
	if c.used.Way == jobs.ImageStaged || c.used.Failed != "" {
		op.Notes = append(op.Notes, "image "+c.used.String())
	}
	layer, rebuilt, err := o.layer(ctx, dir, c, img)
	if err != nil {
		return nil, errors.Join(err, c.used.Close())
	}
	giveBack := func() error { return errors.Join(layer.Close(), c.used.Close()) }
	op.Rebuilt, op.Close = rebuilt, giveBack
	if s.Fakeroot {
		op.Close = func() error {
			return errors.Join(run.RemoveFiles(context.WithoutCancel(ctx), at.On, filepath.Join(at.Scratch, dirWorkdir)),
				run.RemoveFiles(context.WithoutCancel(ctx), at.On, filepath.Join(at.Scratch, dirOverlay)), giveBack())
		}
	}
	op.Notes = append(op.Notes, layer.Notes...)
	here, inside := o.b.Pipes(at.Dir)
	if err := disk.FreshDir(here); err != nil {
		_ = giveBack()
		return nil, err
	}
	mounts := append([]jobs.Mount{{Source: here, Destination: inside}}, s.Mounts...)
	if s.Rooms && c.driver == jobs.DriverKernel {
		mounts = append(mounts, jobs.Mount{Source: c.lower, Destination: jobs.RoomImage})
	}
	covers, notes, err := o.private(at.Scratch)
	if err != nil {
		return nil, errors.Join(err, giveBack())
	}
	op.Notes = append(op.Notes, notes...)
	var note string
	if op.Scripts, note = Scripts(ctx, at.On, c.lower, at.Scratch, s.GPUKind()); note != "" {
		op.Notes = append(op.Notes, note)
	}
	if note := noCard("/", s.GPUKind()); note != "" {
		op.Notes = append(op.Notes, note)
	}
	in := jobs.Invocation{Place: s.Place, Guest: at.Guest}
	in.Overlay, in.Mounts, in.GPU = jobs.OverlaySpec{Driver: c.driver}, mounts, s.GPUKind()
	op.OwnMounts = c.driver == jobs.DriverKernel
	op.Argv, err = o.line(in, lineOf{lower: c.lower, layer: layer.Path, scratch: at.Scratch, guest: at.Guest, covers: covers})
	if err == nil {
		err = limits.Hold(ctx, s, op, o.scopeWorks)
	}
	if err != nil {
		_ = giveBack()
		return nil, err
	}
	return op, nil
}

// Pipes is a directory beside the layer, bound read-only: named pipes in it can
// be written all the same, and nothing can be made or removed there.
func (*Backend) Pipes(dir string) (here, inside string) {
	return filepath.Join(dir, "io"), "/.berth/io"
}

// scopeWorks tries to start a program in a scope of the user's systemd. The container
// program's own flags for limits are fatal without systemd as init.
func (o *opener) scopeWorks(ctx context.Context, argv []string) error {
	f := o.probe(ctx, []string{"systemd", "scope"}, func(ctx context.Context) error { return limits.Try(ctx, o.at.On, argv, o.environ()) })
	if !f.OK {
		return errors.New(f.Why)
	}
	return nil
}

// layer opens the writable layer in dir, and makes it where it is missing.
func (o *opener) layer(ctx context.Context, dir string, c chosen, img image) (l *overlay.Layer, rebuilt string, err error) {
	spec := jobs.OverlaySpec{Name: o.spec.Name, Driver: c.driver, Size: o.spec.Overlay.Size, Templates: store.TemplatesIn(o.spec.Home)}
	if !o.spec.Persistent {
		l, err = overlay.Temporary(ctx, o.at.On, o.at.Scratch, spec)
		return l, "", err
	}
	over := overlay.Image{Path: img.path, ID: img.id, Sum: img.sum}
	l, err = overlay.Own(ctx, o.at.On, dir, spec, over)
	if errors.Is(err, overlay.ErrLost) {
		rebuilt = "the files of the environment were removed from " + dir + ", by a person or by the site: it starts from the beginning"
		if err = overlay.Discard(dir); err == nil {
			l, err = overlay.Own(ctx, o.at.On, dir, spec, over)
		}
	}
	if jobs.KindOf(err) == jobs.KindConfig {
		err = &jobs.Error{Kind: jobs.KindConfig, Msg: "open the files of environment " + o.spec.Name, Err: err,
			Hint: "to start from the beginning: berth env rm " + o.spec.Name}
	}
	return l, rebuilt, err
}

// hasNetworkNone has a container without a network tried, once on a machine.
func (o *opener) hasNetworkNone(ctx context.Context) error {
	f := o.networkNone(ctx)
	switch {
	case f.cut:
		return &jobs.Error{Kind: jobs.KindInfra, Blame: jobs.BlameNode,
			Msg: "a container without a network could not be tried on " + images.Hostname(), Err: errors.New(f.Why), Hint: hintCut}
	case !f.OK:
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "network isolation is not available on " + images.Hostname(), Err: errors.New(f.Why),
			Hint: cmp.Or(f.Hint, "leave network out, or open it on another machine")}
	}
	return nil
}

// private covers what of this user's stands below the binds, by what is there now.
func (o *opener) private(scratch string) (covers []jobs.Mount, notes []string, err error) {
	if o.at.Attempt != nil && (o.spec.Level == jobs.LevelNone || o.spec.Level == "") {
		return nil, nil, nil
	}
	places := private.Places{State: o.spec.Home, Base: private.BaseOf(o.at.Scratch), Allow: o.spec.HostSockets}
	return places.Covers(o.spec.Mounts, filepath.Join(scratch, dirEmpty))
}

// lineOf is what the line of one container has beside its invocation.
type lineOf struct {
	lower, layer string // the image as it is run, and the layer over it
	scratch      string
	guest        string       // path of berth-node here
	covers       []jobs.Mount // of private places
	run          []string     // by berth-node inside; nil is the guest
}

// line renders the command line for one container. With the driver kernel it is to be
// started with [jobs.Cmd.OwnMounts].
func (o *opener) line(in jobs.Invocation, l lineOf) ([]string, error) {
	if l.run == nil {
		l.run = []string{"guest"}
	}
	argv, err := argvOver(in, l.covers, l.run)
	if err != nil {
		return nil, err
	}
	if in.Overlay.Driver != jobs.DriverKernel {
		if strings.ContainsAny(l.layer, ":,") {
			return nil, &jobs.Error{Kind: jobs.KindConfig,
				Msg: "the overlay's path " + l.layer + " has a ':' or a ',', which the container program cannot take"}
		}
		return o.fill(argv, l.lower, l.layer, l.scratch), nil
	}
	merged := filepath.Join(l.scratch, dirMerged)
	return overKernel(in, l.lower, l.layer, merged, l.guest, o.fill(argv, merged, "", l.scratch))
}

// overKernel puts the line of a container whose image is merged after the one
// that mounts a layer of the driver kernel there, over the unpacked image lower.
func overKernel(in jobs.Invocation, lower, layer, merged, node string, argv []string) ([]string, error) {
	if err := os.MkdirAll(merged, 0o700); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make a directory to mount the overlay on", Err: err,
			Hint: "is there space left on " + filepath.Dir(merged) + "?"}
	}
	m := overlay.Mount{Lower: lower, Upper: filepath.Join(layer, "upper"), Work: filepath.Join(layer, "work"), Merged: merged}
	m.Dirs, m.Files = mountPoints(in)
	return m.Argv(node, argv), nil
}

// mountPoints are what a writable image must have before the container program
// binds something there: it makes none itself, as it does over its own overlay.
func mountPoints(in jobs.Invocation) (dirs, files []string) {
	dirs = []string{"/proc", "/sys", "/dev", "/tmp", "/var/tmp", scriptsDir}
	files = []string{GuestPath, "/etc/hosts", "/etc/resolv.conf"}
	for _, m := range in.Mounts {
		if fi, err := os.Stat(m.Source); err == nil && !fi.IsDir() {
			files = append(files, m.Destination)
		} else {
			dirs = append(dirs, m.Destination)
		}
	}
	// Apptainer's nvliblist.conf and rocmliblist.conf; only what the host has
	// is bound.
	for _, name := range map[string][]string{
		"nvidia": {"nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"},
		"amd":    {"rocm-smi", "rocminfo"},
	}[in.GPU] {
		if _, err := os.Stat("/usr/bin/" + name); err == nil {
			files = append(files, "/usr/bin/"+name)
		}
	}
	return dirs, files
}

// noCard says that the machine whose root is below root shows no GPU of this kind, of
// which the container program is silent for AMD's: the libraries that it binds are on
// many machines without a card. "" is that it shows one, or that none is asked for.
func noCard(root, kind string) string {
	of := map[string]struct {
		maker string
		files []string
	}{
		"nvidia": {"NVIDIA", []string{"/dev/nvidia[0-9]*", "/dev/nvhost-gpu", "/dev/dxg"}}, // a card, Jetson's, that of WSL
		"amd":    {"AMD", []string{"/dev/kfd", "/dev/dxg"}},
	}[kind]
	for _, pattern := range of.files {
		if found, _ := filepath.Glob(filepath.Join(root, pattern)); len(found) > 0 {
			return ""
		}
	}
	if of.maker == "" {
		return ""
	}
	return "this machine shows no GPU of " + of.maker + " (there is no " + of.files[0] + "): commands will find none"
}

// fill puts the values of this machine in place of the holes.
func (o *opener) fill(argv []string, img, layer, scratch string) []string {
	h := Covers(filepath.Join(scratch, dirEmpty))
	h[jobs.PlaceholderImage], h[jobs.PlaceholderOverlay], h[jobs.PlaceholderScratch] = img, layer, filepath.Join(scratch, dirWorkdir)
	out := h.Fill(argv)
	out[0] = o.program
	return out
}

func (o *opener) environ() []string {
	return Environ(os.Getenv, filepath.Join(o.at.Scratch, dirConf))
}

// home is what HOME is inside: the user's own path, as a new directory; root's for root.
func (o *opener) home() string {
	if o.spec.Fakeroot {
		return "/root"
	}
	return jobs.HomeInside(os.Getenv, o.spec.User)
}

// checkMounts looks for what is to be bound: the container program's own words
// for a missing one come late and name a file of its session.
func checkMounts(mounts []jobs.Mount) error {
	for _, m := range mounts {
		_, err := os.Stat(m.Source)
		switch {
		case err == nil:
		case errors.Is(err, fs.ErrNotExist):
			return &jobs.Error{Kind: jobs.KindNotFound,
				Msg:  fmt.Sprintf("%s, which is to be mounted at %s, does not exist on %s", m.Source, m.Destination, images.Hostname()),
				Hint: "make it, or leave the mount out"}
		default:
			return &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("%s is to be mounted at %s", m.Source, m.Destination), Err: err}
		}
	}
	return nil
}
