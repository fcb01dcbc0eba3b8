package engine

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"berth/internal/ids"
	"berth/jobs"
)

// planEnv settles a new environment: every value chosen.
func (e *Engine) planEnv(ctx context.Context, name string, o EnvOptions) (*jobs.EnvSpec, error) {
	id, err := ids.New()
	if err != nil {
		return nil, err
	}
	host, _ := os.Hostname()
	s := &jobs.EnvSpec{
		Version: jobs.EnvVersion, ID: id, Name: name, Persistent: !o.Discard, Mounts: o.Mounts, Env: o.Env, Forward: o.Forward, GPU: o.GPU, Network: o.Network,
		Resources: jobs.Resources{CPUs: o.CPUs, Memory: o.Memory, Disk: o.Disk}, Strict: o.Strict, Fakeroot: o.Fakeroot, Dir: o.Dir,
		Lifetime: o.Lifetime, Created: e.Now().UTC(), User: identity().User, Host: host, Home: e.Store.Home(),
	}
	if s.Network == "host" {
		s.Network = ""
	}
	switch {
	case s.Lifetime == 0:
		s.Lifetime = jobs.DefaultLifetime
	case s.Lifetime < 0:
		s.Lifetime = 0
	}
	b, err := e.chooseEnvBackend(ctx, s, o)
	if err != nil {
		return nil, err
	}
	s.Backend, s.Level = b.Name(), b.Level()
	if err := settleEnvPlace(s, o); err != nil {
		return nil, err
	}
	if err := checkMounts(s.Mounts); err != nil {
		return nil, err
	}
	for _, m := range s.Mounts {
		if _, err := os.Stat(m.Source); err != nil && s.Backend != jobs.BackendSSH {
			return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: "the bind source " + m.Source + " does not exist", Hint: "make it, or correct the path before the first colon"}
		}
	}
	return s, nil
}

// chooseEnvBackend returns the named backend, or the first that contains and
// can be used here. The choice and every rejection become notes.
func (e *Engine) chooseEnvBackend(ctx context.Context, s *jobs.EnvSpec, o EnvOptions) (jobs.Backend, error) {
	if o.Backend != "" && o.Backend != jobs.BackendAuto {
		b, err := e.backend(o.Backend)
		if err != nil {
			return nil, err
		}
		if o.Backend == jobs.BackendSSH {
			return b, nil // whether the host can be reached is seen when it is
		}
		if got := b.Check(ctx); got.Health != jobs.Healthy {
			if got.Health == jobs.Undetected && o.Backend == jobs.BackendSingularity {
				// Environments have no profile that could load it.
				got.Hint = "put it on PATH first (on a cluster: module load apptainer), or name another --backend"
			}
			return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the backend " + o.Backend + " cannot be used here: " + got.Reason, Hint: got.Hint}
		}
		return b, nil
	}
	var no []string
	for _, b := range e.Backends {
		if b.Level() == jobs.LevelNone {
			continue // only when named
		}
		got := b.Check(ctx)
		if got.Health == jobs.Healthy {
			s.Notes = append(s.Notes, "backend "+b.Name()+" was chosen"+because(no))
			return b, nil
		}
		no = append(no, b.Name()+": "+got.Reason)
	}
	return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "no backend that contains commands can be used here: " + strings.Join(no, "; "),
		Hint: "install apptainer or docker; or name a place without containment: --backend local, or --backend ssh --host HOST"}
}

func because(no []string) string {
	if len(no) == 0 {
		return ""
	}
	return " (" + strings.Join(no, "; ") + ")"
}

// settleEnvPlace fills in what belongs to the backend and refuses what it does
// not have.
func settleEnvPlace(s *jobs.EnvSpec, o EnvOptions) error {
	contained := s.Level != jobs.LevelNone
	for _, k := range []struct {
		flag      string
		set, fits bool
	}{
		{"an image", o.Image != "", contained},
		{"binds", len(o.Mounts) > 0, contained},
		{"a memory limit", o.Memory != 0, contained},
		{"a CPU limit", o.CPUs != 0, contained},
		{"a disk limit", o.Disk != 0, contained},
		{"a network of its own", s.Network == "none", contained},
		{"fakeroot", o.Fakeroot, s.Backend == jobs.BackendSingularity},
		{"an overlay driver", o.Overlay != "" && o.Overlay != "auto", s.Backend == jobs.BackendSingularity},
		{"GPU flags", o.GPU != "", contained},
		{"throw-away files", o.Discard, contained},
		{"a host", o.SSH.Host != "", s.Backend == jobs.BackendSSH},
		{"an ssh user, port, key or option", o.SSH.User != "" || o.SSH.Port != 0 || o.SSH.Key != "" || len(o.SSH.Options) > 0, s.Backend == jobs.BackendSSH},
		{"a limit of processes", o.Docker.Pids != 0, s.Backend == jobs.BackendDocker},
		{"volumes", len(o.Docker.Volumes) > 0, s.Backend == jobs.BackendDocker},
		{"docker arguments", len(o.Docker.ExtraArgs) > 0, s.Backend == jobs.BackendDocker},
		{"a user inside", o.Docker.User != "", s.Backend == jobs.BackendDocker},
	} {
		if k.set && !k.fits {
			return &jobs.Error{Kind: jobs.KindConfig, Msg: k.flag + " cannot be had on the backend " + s.Backend, Hint: "leave it out, or name another --backend"}
		}
	}
	if contained {
		if s.Resources.CPUs == 0 && !o.Strict {
			s.Resources.CPUs = defaultCPUs
			s.Defaulted = append(s.Defaulted, "cpus")
		}
		if s.Resources.Memory == 0 && !o.Strict {
			s.Resources.Memory = defaultMemory
			s.Defaulted = append(s.Defaulted, "memory")
		}
	}
	switch s.Backend {
	case jobs.BackendSingularity:
		s.Image = o.Image
		if s.Image == "" {
			s.Image = "docker://" + jobs.DefaultImage
		}
		if !strings.Contains(s.Image, "://") {
			abs, err := filepath.Abs(s.Image)
			if err != nil {
				return err
			}
			if _, err := os.Stat(abs); err != nil {
				return &jobs.Error{Kind: jobs.KindNotFound, Msg: "image " + abs + " does not exist", Hint: "give a SIF file, an unpacked image's directory, or a reference such as docker://debian:12"}
			}
			s.Image = abs
		}
		s.Overlay = jobs.OverlaySpec{Driver: o.Overlay, Size: o.Disk}
		if o.Overlay == "auto" {
			s.Overlay.Driver = ""
		}
	case jobs.BackendDocker:
		s.Image = strings.TrimPrefix(o.Image, "docker://")
		if s.Image == "" {
			s.Image = jobs.DefaultImage
		}
		d := o.Docker
		if d.Pids == 0 {
			d.Pids = defaultPids
		}
		if d.Shm == 0 {
			d.Shm = defaultShm
		}
		s.Docker = &d
	case jobs.BackendSSH:
		if o.SSH.Host == "" {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "the backend ssh needs a host", Hint: "--host HOST, or TERMINAL_SSH_HOST"}
		}
		ssh := o.SSH
		s.SSH = &ssh
		s.Notes = append(s.Notes, "backend ssh: no containment; commands have all the rights of the user on "+ssh.Host)
	case jobs.BackendLocal:
		s.Notes = append(s.Notes, "backend local: no containment; commands have all the rights of "+s.User)
	}
	return nil
}
