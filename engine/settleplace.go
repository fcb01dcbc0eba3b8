package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"berth/internal/config/keys"
	"berth/internal/images"
	"berth/internal/sys/private"
	"berth/jobs"
)

// NoImage is what an error says, or begins with, where a task needs an image and neither it nor
// the configuration names one.
const NoImage = "the task names no image"

// wanted is what settling a place has to know beside the place, of a job or of an
// environment.
type wanted struct {
	env      bool     // an environment, which has usual values where nothing is said
	name     string   // of the environment
	dry      bool     // nothing is asked, see [Engine.Plan]
	auto     []string // the backends that "auto" tries, see [Engine.auto]
	image    string   // as it was written; what a backend takes for a name
	template string   // in place of an image
	user     string   // whose rights commands have where nothing is contained
}

// chooseBackend returns the backend that is named, or the first that contains and can
// be used here, with notes about the choice.
func (e *Engine) chooseBackend(ctx context.Context, p *jobs.Place, w wanted) (jobs.Backend, []string, error) {
	// On the nodes of a cluster the container program is checked there: login nodes
	// often have none.
	name, ask := unlessAuto(p.Backend), !w.dry && !p.Clustered()
	if name == "" && ask {
		return e.firstBackend(ctx, p, w)
	}
	b, err := e.backend(cmp.Or(name, jobs.BackendOfClusters))
	if program, ok := b.(Program); ok && err == nil && !w.dry {
		err = program.Installed()
	}
	if err != nil || !ask {
		return b, nil, err
	}
	got := b.Check(ctx)
	if got.Health == jobs.Healthy {
		return b, nil, nil
	}
	if got.Health == jobs.Undetected && jobs.CapabilitiesOf(name).Layers {
		got.Hint = "put it on PATH first (on a cluster: module load), or name another --backend" // no profile counts here
	}
	return nil, nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the backend " + name + " cannot be used here: " + got.Reason,
		Hint: cmp.Or(got.Hint, e.hintNoBackend(ctx))}
}

// auto are the backends that "auto" tries, in this order: those that are configured,
// else all that contain and have images.
func (e *Engine) auto(words []string) []jobs.Backend {
	var out []jobs.Backend
	for _, b := range e.Backends {
		if len(words) == 0 && b.Level() != jobs.LevelNone && !jobs.CapabilitiesOf(b.Name()).NoImage {
			out = append(out, b)
		}
	}
	for _, w := range words {
		if b, err := e.backend(w); err == nil && b.Level() != jobs.LevelNone {
			out = append(out, b)
		}
	}
	return out
}

// firstBackend returns the first backend with containment that can be used here. The
// note has the reasons against those before it.
func (e *Engine) firstBackend(ctx context.Context, p *jobs.Place, w wanted) (jobs.Backend, []string, error) {
	var no []string
	for _, b := range e.auto(w.auto) {
		got := b.Check(ctx)
		why := got.Reason
		if got.Health == jobs.Healthy {
			why = unfit(b.Name(), p, w)
		}
		switch {
		case got.Health != jobs.Healthy || why != "":
			no = append(no, b.Name()+": "+why)
		case len(no) > 0:
			return b, []string{"backend " + b.Name() + " was chosen (" + strings.Join(no, "; ") + ")"}, nil
		case w.env:
			return b, []string{"backend " + b.Name() + " was chosen"}, nil
		default:
			return b, nil, nil
		}
	}
	return nil, nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "no backend that contains commands can be used here: " + strings.Join(no, "; "),
		Hint: e.hintNoBackend(ctx)}
}

// hintNoBackend is [jobs.HintNoBackend], after the way that is open here: a login
// node often has no container program, and its nodes have.
func (e *Engine) hintNoBackend(ctx context.Context) string {
	for _, sc := range e.Schedulers {
		if jobs.IsCluster(sc.Name()) && sc.Check(ctx).Health == jobs.Healthy {
			return "run it on a node, in an allocation: --scheduler " + sc.Name() + "; or " + jobs.HintNoBackend
		}
	}
	return jobs.HintNoBackend
}

// unfit tells why a backend that works cannot be used for a place; "" is that it
// can. Nothing is guessed: a SIF is no image of docker's.
func unfit(backend string, p *jobs.Place, w wanted) string {
	can := jobs.CapabilitiesOf(backend)
	if can.NoImage && (p.Image != "" || w.template != "" || p.Overlay.Name != "") {
		return "an image or an overlay is named, and it has none"
	}
	if !can.ImageNames {
		return ""
	}
	switch ref := strings.TrimPrefix(w.image, "docker://"); {
	case images.IsReference(ref):
		return "the image " + ref + " is none that docker takes"
	case ref == "" && w.template != "":
		return "the template " + w.template + " is a SIF"
	case ref == "" && !w.env:
		return NoImage + " for it"
	case isFile(ref):
		return "the image " + ref + " is a file, and docker takes names such as debian:12"
	}
	return ""
}

// isFile tells whether an image is written as a path.
func isFile(ref string) bool {
	return filepath.IsAbs(ref) || strings.HasPrefix(ref, ".") || strings.HasPrefix(ref, "~") || strings.HasSuffix(ref, ".sif")
}

// settlePlace settles what belongs to the backend of a place, and refuses what it does
// not have. An image that berth itself puts layers over is settled by the caller. The
// notes are for people.
func settlePlace(p *jobs.Place, b jobs.Backend, w wanted) (notes []string, err error) {
	p.Backend = b.Name()
	if err := settleNetwork(p); err != nil {
		return nil, err
	}
	p.Level = p.Network.Level(b.Level())
	can, on := p.Can(), "backend "+p.Backend
	if p.Clustered() && (can.OtherHost || can.Daemon && w.env) {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the " + on + " goes with the local scheduler, not with " + p.Scheduler,
			Hint: "--scheduler local"}
	}
	if p.Network.Learn && !can.Here() {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "learning what a task reaches (--learn) is not available on the " + on,
			Hint: "--backend singularity, docker or bwrap"}
	}
	if err := refuse(p, w); err != nil {
		return nil, err
	}
	image, host, external := p.Image, valueOf(p.SSH), valueOf(p.External)
	p.Image, p.SSH, p.External = "", nil, nil // as the backend takes them
	if !can.Daemon {
		p.Docker = nil
	}
	switch {
	case can.NeedsHost && host.Host == "":
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "the " + on + " needs a host",
			Hint: "--host HOST, or berth config set terminal.ssh_host HOST"}
	case can.NeedsHost:
		p.SSH = &host
		return []string{on + ": no containment; commands have all the rights of the user on " + host.Host}, nil
	case can.Bare:
		notes = []string{on + ": no containment; commands have all the rights of " + cmp.Or(w.user, "this user")}
		if image != "" {
			notes = append(notes, on+": the image "+image+" is not used; commands see this machine's programs")
		}
		return notes, nil
	case can.Layers || can.NoImage:
		return nil, nil
	}
	p.Image = strings.TrimPrefix(w.image, "docker://")
	switch {
	case p.Image == "" && can.ImageNames && w.env:
		return nil, noEnvImage(w.name, "debian:12", "terminal.docker_image debian:12")
	case p.Image == "" && can.ImageNames:
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: NoImage,
			Hint: "give one for " + p.Backend + " with --image debian:12, or [terminal] image in the task"}
	case images.IsReference(p.Image) || !can.ImageNames && isFile(p.Image):
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the " + on + " cannot take the image " + p.Image, Hint: "name one such as debian:12"}
	}
	if !can.ImageNames {
		p.External = &external
		return nil, nil
	}
	if p.Clustered() {
		// Docker hands out all GPUs of a machine, whatever a scheduler has allocated.
		if p.Resources.GPUs != "" {
			return nil, absent("[resources] gpus", p)
		}
		notes = []string{on + ": its containers are outside of the job's cgroup; " +
			p.Backend + " itself holds cpus and memory, and only those the task asks for"}
	}
	// Whether it can be written at all is the backend's to say, and soon.
	_, err = b.Argv(jobs.Invocation{Name: "berth", Guest: "/", Place: jobs.Place{Image: p.Image, Mounts: p.Mounts}}, nil)
	return notes, err
}

// refuse refuses what is said of a place and its backend does not have.
func refuse(p *jobs.Place, w wanted) error {
	can := p.Can()
	if w.template != "" && !can.Layers && !(can.ImageNames && w.image != "") {
		err := absent("the template "+w.template+", a SIF", p)
		err.Hint = "leave the template out, or name another --backend; where it is said: berth config show --origin"
		if can.ImageNames {
			err.Hint = "name an image that " + p.Backend + " has: --image debian:12; or make one with what the template installs, by a Dockerfile"
		}
		return err
	}
	for i := range keys.Fields {
		f := &keys.Fields[i]
		what, has, counts := "["+f.Table()+"] "+f.Key(), f.Jobs, f.Task
		if w.env {
			what, has, counts = f.Noun, f.Envs, f.Noun != ""
		}
		if counts && f.Said(*p) && !keys.Has(has, p.Backend) {
			if by := p.Network.NarrowedBy(); by != "" && f.Name == "network.mode" {
				what += " of " + by
			}
			err := absent(what, p)
			if f.Promise {
				err.Hint = "name another --backend, or leave it out; where it is said: berth config show --origin"
			}
			if f.Usual != "" {
				err.Hint = fmt.Sprintf("make it %q, or name another --backend; where it is said: berth config show --origin", f.Usual)
			}
			return err
		}
	}
	return nil
}

// absent is the error for what the backend of a place does not have.
func absent(what string, p *jobs.Place) *jobs.Error {
	on := p.Backend
	if can := p.Can(); can.Bare && !can.NeedsHost {
		on += ", which runs on the bare host"
	}
	return &jobs.Error{Kind: jobs.KindConfig, Msg: what + ": not available on the backend " + on, Hint: "leave it out, or name another --backend"}
}

// missingBinds are notes about sources that are not here: more often a path that is misspelled, which each attempt
// would meet on another node, than one that nodes alone have.
func missingBinds(mounts []jobs.Mount) (notes []string) {
	for _, m := range mounts {
		if _, err := os.Stat(m.Source); errors.Is(err, fs.ErrNotExist) {
			notes = append(notes, "the bind source "+m.Source+" does not exist on this machine: the job needs it where it runs")
		}
	}
	return notes
}

// checkBinds refuses, before anything waits for them, binds that let a command choose
// what another one shows, and binds of berth's own directories, for which the node looks
// again. A job's need not be on this machine.
func (e *Engine) checkBinds(p *jobs.Place, w wanted) error {
	if err := checkMounts(p.Mounts); err != nil || p.Login != nil {
		return err
	}
	if p.Level == jobs.LevelFS || p.Level == jobs.LevelEgress {
		if _, _, err := (private.Places{State: e.Store.Home()}).Covers(p.Mounts, "/"); err != nil {
			return err
		}
	}
	for _, m := range p.Mounts {
		if _, err := os.Stat(m.Source); err != nil && w.env {
			return &jobs.Error{Kind: jobs.KindNotFound, Msg: "the bind source " + m.Source + " does not exist",
				Hint: "make it, or correct the path before the first colon"}
		}
	}
	return nil
}
