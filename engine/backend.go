package engine

import (
	"cmp"
	"context"
	"path/filepath"
	"strings"

	"berth/internal/config/keys"
	"berth/internal/images"
	"berth/internal/remote/replica"
	"berth/jobs"
)

// wanted is what settling a place has to know beside the place, of a job or of an
// environment.
type wanted struct {
	env      bool     // an environment, which has usual values where nothing is said
	dry      bool     // nothing is asked, see [Engine.Plan]
	auto     []string // the backends that "auto" tries, see [Engine.auto]
	image    string   // as it was written; what a backend takes for a name
	template string   // in place of an image
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
		Hint: cmp.Or(got.Hint, jobs.HintNoBackend)}
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
	return nil, nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "no backend that contains commands can be used here: " + strings.Join(no, "; "), Hint: jobs.HintNoBackend}
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
		return "the task names no image for it"
	case isFile(ref):
		return "the image " + ref + " is a file, and docker takes names such as debian:12"
	}
	return ""
}

// isFile tells whether an image is written as a path.
func isFile(ref string) bool {
	return filepath.IsAbs(ref) || strings.HasPrefix(ref, ".") || strings.HasPrefix(ref, "~") || strings.HasSuffix(ref, ".sif")
}

func (e *Engine) settlePlace(ctx context.Context, s *jobs.Spec, t jobs.Task, c Choice, b jobs.Backend, survey *replica.Survey, dry bool) error {
	s.Backend, s.Level = b.Name(), b.Level()
	if err := refuse(&s.Place, wanted{image: t.Reference, template: t.Template}); err != nil {
		return err
	}
	s.Image, s.SSH, s.External = "", nil, nil // as the backend takes them
	if p, ok := b.(Program); ok {
		return e.settleProgram(ctx, s, t, p, dry)
	}
	switch can := s.Can(); {
	case can.NeedsHost:
		return settleSSH(s, t)
	case can.Bare:
		return settleLocal(s, t)
	case can.ImageNames:
		return settleDocker(s, t, b)
	case can.NoImage:
		return nil
	}
	return e.settleImage(ctx, s, t, c, survey, dry)
}

// refuse refuses what is said of a place and its backend does not have.
func refuse(p *jobs.Place, w wanted) error {
	can := p.Can()
	if w.template != "" && !can.Layers && !(can.ImageNames && w.image != "") {
		return absent("the template "+w.template+", a SIF,", p)
	}
	for i := range keys.Fields {
		f := &keys.Fields[i]
		what, has, counts := "["+f.Table()+"] "+f.Key(), f.Jobs, f.Task
		if w.env {
			what, has, counts = f.Noun, f.Envs, f.Noun != ""
		}
		if counts && f.Said(*p) && !keys.Has(has, p.Backend) {
			return absent(what, p)
		}
	}
	return nil
}

// absent is the error for what the backend of a place does not have.
func absent(what string, p *jobs.Place) error {
	on := p.Backend
	if can := p.Can(); can.Bare && !can.NeedsHost {
		on += ", which runs on the bare host"
	}
	return &jobs.Error{Kind: jobs.KindConfig, Msg: what + " cannot be had on the backend " + on, Hint: "leave it out, or name another --backend"}
}

// settleLocal says what is not contained.
func settleLocal(s *jobs.Spec, t jobs.Task) error {
	s.Notes = append(s.Notes, "backend local: no containment; the command has all the rights of "+s.User)
	if t.Image != "" {
		s.Notes = append(s.Notes, "backend local: the image "+t.Image+" is not used; the command sees this machine's programs")
	}
	return nil
}

// settleSSH settles which host is meant. The job itself is kept by a runner on this
// machine.
func settleSSH(s *jobs.Spec, t jobs.Task) error {
	if s.Clustered() {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the backend ssh goes with the local scheduler, not with " + s.Scheduler, Hint: "--scheduler local"}
	}
	host := valueOf(t.SSH)
	if host.Host == "" {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the backend ssh needs a host",
			Hint: `--host HOST, [terminal] host in the task, or berth config set terminal.ssh_host HOST`}
	}
	s.SSH = &host
	s.Notes = append(s.Notes, "backend ssh: no containment; the command has all the rights of the user on "+host.Host)
	return nil
}

// settleDocker refuses what a throw-away container of docker's cannot give.
// Docker hands out all GPUs of a machine, whatever a scheduler has allocated.
func settleDocker(s *jobs.Spec, t jobs.Task, b jobs.Backend) error {
	if t.Resources.GPUs != "" && s.Clustered() {
		return absent("[resources] gpus", &s.Place)
	}
	if t.Reference == "" {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the task names no image", Hint: `give one for docker with --image debian:12, or [terminal] image in the task`}
	}
	s.Image = strings.TrimPrefix(t.Reference, "docker://")
	if images.IsReference(s.Image) {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "docker cannot take the image " + s.Image,
			Hint: "name one such as docker://debian:12, or use --backend singularity"}
	}
	// Whether it can be written at all is the backend's to say, and soon.
	if _, err := b.Argv(jobs.Invocation{Name: "berth", Guest: "/", Place: jobs.Place{Image: s.Image, Mounts: s.Mounts}}, nil); err != nil {
		return err
	}
	if s.Clustered() {
		s.Notes = append(s.Notes, "backend docker: its containers are outside of the job's cgroup; "+
			"docker itself holds cpus and memory, and only those the task asks for")
	}
	return nil
}
