package engine

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"berth/internal/config/keys"
	"berth/internal/images"
	"berth/internal/remote/replica"
	"berth/jobs"
)

// pickBackend settles where the commands of a job run: the backend that is
// named, or the first that contains a task and can be used here.
func (e *Engine) pickBackend(ctx context.Context, s *jobs.Spec, t jobs.Task, c Choice, survey *replica.Survey, dry bool) error {
	name := s.Backend
	// On the nodes of a cluster the container program is checked by the
	// runner: login nodes often have none.
	ask := !dry && !s.Clustered()
	auto := name == "" || name == jobs.BackendAuto
	if auto && ask {
		b, err := e.chooseBackend(ctx, s, t, c.Auto)
		if err != nil {
			return err
		}
		return e.settlePlace(ctx, s, t, c, b, survey, dry)
	}
	if auto {
		name = jobs.BackendOfClusters
	}
	b, err := e.backend(name)
	if err == nil && ask {
		err = installed(b)
	}
	if err != nil {
		return err
	}
	if ask {
		if got := b.Check(ctx); got.Health != jobs.Healthy {
			hint := got.Hint
			if hint == "" {
				hint = jobs.HintNoBackend
			}
			return &jobs.Error{Kind: jobs.KindConfig, Msg: "the backend " + name + " cannot be used here: " + got.Reason, Hint: hint}
		}
	}
	return e.settlePlace(ctx, s, t, c, b, survey, dry)
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

// chooseBackend returns the first backend with containment that can be used
// here. That it is not the first of all is noted, with the reasons.
func (e *Engine) chooseBackend(ctx context.Context, s *jobs.Spec, t jobs.Task, words []string) (jobs.Backend, error) {
	var no []string
	for _, b := range e.auto(words) {
		got := b.Check(ctx)
		why := got.Reason
		if got.Health == jobs.Healthy {
			if why = unfit(b.Name(), t); why == "" {
				if len(no) > 0 {
					s.Notes = append(s.Notes, "backend "+b.Name()+" was chosen ("+strings.Join(no, "; ")+")")
				}
				return b, nil
			}
		}
		no = append(no, b.Name()+": "+why)
	}
	return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "no backend that contains a task can be used here: " + strings.Join(no, "; "), Hint: jobs.HintNoBackend}
}

// unfit tells why a backend that works cannot run this task; "" is that it
// can. Nothing is guessed: a SIF is no image of docker's.
func unfit(backend string, t jobs.Task) string {
	can := jobs.CapabilitiesOf(backend)
	if can.NoImage && (t.Image != "" || t.Template != "" || t.Overlay.Name != "") {
		return "the task names an image or an overlay, and it has none"
	}
	if !can.ImageNames {
		return ""
	}
	switch ref := strings.TrimPrefix(t.Reference, "docker://"); {
	case images.IsReference(ref):
		return "the image " + ref + " is none that docker takes"
	case ref == "" && t.Template != "":
		return "the template " + t.Template + " is a SIF"
	case ref == "":
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
	if err := fits(s, t); err != nil {
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

// fits refuses what the backend of a job does not have.
func fits(s *jobs.Spec, t jobs.Task) error {
	on, can := s.Backend, s.Can()
	if can.Bare && !can.NeedsHost {
		on += ", which runs on the bare host"
	}
	if t.Template != "" && (!can.Here() || can.NoImage) {
		return refuse("[terminal] template", on)
	}
	for i := range keys.Fields {
		if f := &keys.Fields[i]; f.Task && f.Said(t.Place) && !keys.Has(f.Jobs, s.Backend) {
			return refuse("["+f.Table()+"] "+f.Key(), on)
		}
	}
	return nil
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
		return refuse("[resources] gpus", s.Backend)
	}
	if t.Reference == "" && t.Template != "" {
		return contained(t.Template, s.Backend)
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

// refuse returns an error for a key that the backend does not support.
func refuse(key, backend string) error {
	return &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("%s cannot be had on the backend %s", key, backend), Hint: "remove it, or use --backend singularity"}
}
