package config

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/engine"
	"berth/internal/config/keys"
	"berth/jobs"
)

// Environment puts into options what the configuration says of environments.
// What the options name themselves stays.
func (c *Config) Environment(o *engine.EnvOptions) error {
	o.Configured = &engine.EnvConfig{Backend: shown(c.said("terminal.backend").V), For: c.forBackend}
	if c.project != nil {
		o.Configured.Project = filepath.Dir(c.project.path)
	}
	o.Target, o.Offline, o.Auto = c.Target(), c.Offline(), c.Auto()
	scheduler := c.said("scheduler")
	if s := shown(scheduler.V); slices.Contains(jobs.Schedulers(), s) {
		o.Scheduler = s
	}
	o.Configured.Named = c.targetBy == layerFlag || scheduler.Origin.Layer == layerFlag
	var err error
	o.Login, err = c.login()
	return err
}

// Timeout is what ends a command, as [engine.ExecRequest] has it: 0 is the
// usual, negative is never.
func (c *Config) Timeout() time.Duration {
	v := c.said("terminal.timeout")
	if v.V == nil {
		return 0
	}
	return orNone(get[time.Duration](v))
}

// FreshShells tells whether a command leaves nothing of its shell behind.
func (c *Config) FreshShells() bool {
	return c.said("terminal.persistent_shell").V == false
}

// Offline tells whether no registry is to be asked.
func (c *Config) Offline() bool { return c.said("offline").V == true }

// Auto are the backends that "auto" tries; nil is that none are configured.
func (c *Config) Auto() []string { return get[[]string](c.said("terminal.auto")) }

// orNone makes the engine's word for "no limit" of the file's 0.
func orNone[T int | jobs.Bytes | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

// limit is a limit of [engine.EnvOptions]; 0 when it is not set.
func limit[T int | jobs.Bytes | time.Duration](c *Config, name string) T {
	v := c.said(name)
	if v.V == nil {
		return 0
	}
	return orNone(get[T](v))
}

// forBackend is what the configuration says of environments on one backend.
func (c *Config) forBackend(backend string) (engine.EnvOptions, []string, error) {
	var o engine.EnvOptions
	var notes []string
	var err error
	if o.Profile, err = c.ReadProfile(); err != nil {
		return o, nil, err
	}
	o.Lifetime = limit[time.Duration](c, "terminal.lifetime_seconds")
	o.Forward = get[[]string](c.said("terminal.env_passthrough"))
	dir := c.said("terminal.cwd")
	if o.Dir, err = c.cwd(backend, shown(dir.V)); err != nil {
		return o, nil, err
	}
	if o.Dir == "" && dir.V != nil && shown(dir.V) != "." {
		notes = append(notes, fmt.Sprintf("terminal.cwd = %s (%s) is left out: there is no such place in a container; sessions begin in HOME",
			inFile(dir), dir.Origin))
	}
	if slices.Contains(contained, backend) {
		if err := c.container(&o, backend); err != nil {
			return o, nil, err
		}
	}
	switch backend {
	case jobs.BackendSingularity:
		if o.Template = c.template(); o.Template == "" {
			o.Image = shown(c.said("terminal.singularity_image").V)
		}
	case jobs.BackendDocker:
		err = c.docker(&o)
	case jobs.BackendSSH:
		var host jobs.SSHSpec
		host, err = c.SSH()
		o.SSH = &host
	default:
		if jobs.IsProgram(backend) {
			err = c.program(&o, backend)
		}
	}
	c.fields(&o.Place, "terminal", backend, false)
	c.allocation(&o, backend)
	o.Project = c.shapedBy(backend)
	return o, notes, err
}

// template is the template that is used, or "": an image that a stronger layer
// names takes its place.
func (c *Config) template() string {
	for _, l := range c.layers {
		if v, ok := l.values["terminal.template"]; ok {
			return shown(v.V)
		}
		if _, ok := l.values["terminal.singularity_image"]; ok {
			return ""
		}
	}
	return ""
}

// shapedBy is the directory of the project's file, where that decides what
// commands find in an environment: its image, variables, first directory, and
// whatever the user has allowed. What only bounds it does not count.
func (c *Config) shapedBy(backend string) string {
	for i := range Keys {
		k := &Keys[i]
		if k.Name == "offline" {
			continue // it asks for less, and nothing inside is different
		}
		switch k.Allow {
		case "paths", "env", "docker", "ssh", "network":
		default:
			if !isOneOf(k.Name, []string{"terminal.docker_image", "terminal.docker_env", "terminal.cwd"}) {
				continue
			}
		}
		v := c.Get(k.Name)
		if v.Origin.Layer != layerProject || v.Origin.Target != "" || !k.isFor(backend) {
			continue
		}
		if empty(v.V) || v.V == false || v.V == "none" {
			continue // it shuts something off
		}
		return filepath.Dir(c.project.path)
	}
	return ""
}

// container is what holds for backends that contain.
func (c *Config) container(o *engine.EnvOptions, backend string) error {
	o.Resources.CPUs = limit[int](c, "terminal.container_cpu")
	o.Resources.Memory = limit[jobs.Bytes](c, "terminal.container_memory")
	if !jobs.CapabilitiesOf(backend).NoImage {
		o.Resources.Disk = limit[jobs.Bytes](c, "terminal.container_disk")
		o.GPU = shown(c.said("terminal.gpu").V)
	}
	o.Discard = c.said("terminal.container_persistent").V == false
	o.Network = shown(c.said("terminal.network").V)
	o.Scratch = shown(c.said("terminal.scratch_dir").V)
	if o.Scratch == "" {
		o.Scratch = o.Profile.Scratch
	}
	o.Stage = o.Profile.Stage
	var err error
	o.Mounts, err = c.binds()
	o.HostSockets = get[[]string](c.said("terminal.host_sockets"))
	return err
}

func (c *Config) binds() ([]jobs.Mount, error) {
	var out []jobs.Mount
	for _, word := range get[[]string](c.said("terminal.bind")) {
		parts := strings.Split(word, ":")
		if len(parts) < 2 {
			return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "terminal.bind holds " + literal(word) + ", which is no bind"}
		}
		out = append(out, jobs.Mount{Source: parts[0], Destination: parts[1], Writable: len(parts) > 2})
	}
	return out, nil
}

// Workspace is where docker_mount_cwd_to_workspace shows the current directory.
const Workspace = "/workspace"

func (c *Config) docker(o *engine.EnvOptions) error {
	o.Image = shown(c.said("terminal.docker_image").V)
	o.Env = get[[]string](c.said("terminal.docker_env"))
	for _, n := range get[[]string](c.said("terminal.docker_forward_env")) {
		if !slices.Contains(o.Forward, n) {
			o.Forward = append(slices.Clone(o.Forward), n)
		}
	}
	o.Docker = &jobs.DockerSpec{}
	o.Docker.Program = shown(c.said("terminal.docker_binary").V)
	o.Docker.Volumes = get[[]string](c.said("terminal.docker_volumes"))
	o.Docker.ExtraArgs = get[[]string](c.said("terminal.docker_extra_args"))
	o.Docker.Shm = get[jobs.Bytes](c.said("terminal.docker_shm_size"))
	if c.said("terminal.docker_run_as_host_user").V == true {
		o.Docker.User = fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
	}
	if c.said("terminal.docker_network").V == false {
		o.Network = "none" // who shuts it off in either way means it
	}
	if c.MountCwd() {
		dir, err := os.Getwd()
		if err != nil {
			return err
		}
		o.Mounts = append(slices.Clone(o.Mounts), jobs.Mount{Source: dir, Destination: Workspace, Writable: true})
		o.Dir = Workspace
	}
	return nil
}

// MountCwd tells whether the current directory is to be seen in containers of
// docker's.
func (c *Config) MountCwd() bool {
	return c.said("terminal.docker_mount_cwd_to_workspace").V == true
}

// fields puts into a place the values of a table that [keys.Fields] names, for jobs or
// for environments on a backend, which is "" or "auto" where it is still to be chosen.
// What a profile says is left out: the engine puts that below.
func (c *Config) fields(p *jobs.Place, table, backend string, job bool) {
	for i := range keys.Fields {
		f := &keys.Fields[i]
		if f.Meaning == "" || f.Table() != table || f.JobsOnly && !job {
			continue
		}
		if k := Find(f.Name); unlessAuto(backend) != "" && !k.isFor(backend) {
			continue
		}
		if v := c.said(f.Name); v.Origin.Layer != layerProfile {
			f.Put(p, v.V)
		}
	}
}

func unlessAuto(backend string) string {
	if backend == jobs.BackendAuto {
		return ""
	}
	return backend
}

// allocation is what only a cluster's scheduler is asked for. Resources are asked of it there,
// and not of the container in the allocation.
func (c *Config) allocation(o *engine.EnvOptions, backend string) {
	var p jobs.Place
	c.fields(&p, "slurm", backend, false)
	if jobs.IsCluster(shown(c.said("scheduler").V)) {
		c.fields(&p, "resources", backend, false)
	}
	keys.Over(&o.Place, p)
}

// cwd is where sessions begin on a backend; "" is HOME, or where berth chooses.
func (c *Config) cwd(backend, dir string) (string, error) {
	home := dir == "~" || strings.HasPrefix(dir, "~/")
	switch {
	case dir == "":
		return "", nil
	case slices.Contains(contained, backend) || jobs.IsProgram(backend):
		if home || !filepath.IsAbs(dir) || strings.HasPrefix(dir, "/home/") || strings.HasPrefix(dir, "/Users/") {
			return "", nil
		}
		return dir, nil
	case backend == jobs.BackendLocal && !filepath.IsAbs(dir) && !home:
		return filepath.Abs(dir)
	case backend == jobs.BackendLocal && home:
		h, err := os.UserHomeDir()
		return filepath.Join(h, dir[1:]), err
	case dir == "." || dir == "~":
		return "", nil // of another host: its HOME
	}
	return dir, nil
}

// SSH is the host of the backend ssh. Without a host the other words mean
// nothing: launchers set them to their defaults.
func (c *Config) SSH() (jobs.SSHSpec, error) {
	host := shown(c.said("terminal.ssh_host").V)
	if host == "" {
		return jobs.SSHSpec{}, nil
	}
	s, err := jobs.ParseHost(host)
	if err != nil {
		return s, err
	}
	if user := shown(c.said("terminal.ssh_user").V); user != "" && s.User == "" {
		s.User = user
	}
	if port := get[int](c.said("terminal.ssh_port")); port != 0 && s.Port == 0 {
		s.Port = port
	}
	s.Key = shown(c.said("terminal.ssh_key").V)
	return s, nil
}

// login is the host on which the target's Slurm is asked; nil is this one.
func (c *Config) login() (*jobs.SSHSpec, error) {
	if c.target == nil || c.target.login == nil || shown(c.said("scheduler").V) == jobs.SchedulerLocal {
		return nil, nil
	}
	s, err := jobs.ParseHost(shown(c.target.login.V))
	if err != nil {
		return nil, err
	}
	if c.target.key != nil {
		s.Key = shown(c.target.key.V)
	}
	return &s, nil
}

// Task puts into a task what the configuration says and the task does not. The notes
// are for people.
func (c *Config) Task(t *jobs.Task) (notes []string, err error) {
	if t.Profile, err = c.ReadProfile(); err != nil {
		return nil, err
	}
	t.Target = c.Target()
	if t.Login, err = c.login(); err != nil {
		return nil, err
	}
	if t.Scheduler == "" {
		if v := c.said("scheduler"); v.Origin.Layer != layerProfile && shown(v.V) != "auto" {
			t.Scheduler = shown(v.V)
		}
	}
	if t.Backend == "" {
		t.Backend = shown(c.said("terminal.backend").V)
	}
	if s := shown(c.said("terminal.scratch_dir").V); s != "" {
		t.Profile.Scratch = s
	}
	var low jobs.Place
	for _, table := range []string{"terminal", "resources", "slurm"} {
		c.fields(&low, table, t.Backend, true)
	}
	notes = c.held(&low, t)
	keys.Under(&t.Place, low, "")
	return notes, c.taskTerminal(t)
}

// held leaves out what the backend of a task does not have. Of another host, which
// cannot hold a limit, it says so; a task that asks for that itself is refused.
func (c *Config) held(p *jobs.Place, t *jobs.Task) (notes []string) {
	if t.Backend == jobs.BackendSSH {
		for _, name := range []string{"resources.memory", "resources.gpus"} {
			if v := c.said(name); v.V != nil {
				notes = append(notes, fmt.Sprintf("%s = %s (%s) is left out: the backend ssh cannot hold it", name, v, v.Origin))
			}
		}
		p.Resources.Memory, p.Resources.GPUs = 0, ""
	}
	if !slices.Contains([]string{"", jobs.BackendAuto, jobs.BackendSingularity}, t.Backend) || t.Overlay.Name != "" {
		p.Resources.Disk = 0
	}
	return notes
}

func (c *Config) taskTerminal(t *jobs.Task) (err error) {
	if jobs.IsProgram(t.Backend) {
		return c.taskProgram(t)
	}
	bare := t.Backend == jobs.BackendLocal || t.Backend == jobs.BackendSSH
	if t.Backend == jobs.BackendSSH && t.SSH == nil {
		host, err := c.SSH()
		if err != nil {
			return err
		}
		t.SSH = &host
	}
	if !bare && !t.Can().NoImage && t.Image == "" && t.Reference == "" && t.Template == "" {
		if t.Backend != jobs.BackendDocker {
			t.Template = c.template()
		}
		if v := c.said("terminal.singularity_image"); v.V != nil && v.Origin.Layer != layerProfile && t.Template == "" {
			t.Image = shown(v.V)
		}
		t.Reference = shown(c.said("terminal.docker_image").V)
	}
	if !bare {
		t.HostSockets = get[[]string](c.said("terminal.host_sockets"))
	}
	if !bare && t.Mounts == nil {
		if t.Mounts, err = c.binds(); err != nil {
			return err
		}
	}
	c.forwarded(&t.Place)
	return nil
}

// forwarded adds the variables that every command gets.
func (c *Config) forwarded(term *jobs.Place) {
	for _, name := range get[[]string](c.said("terminal.env_passthrough")) {
		given := slices.ContainsFunc(term.Env, func(kv string) bool { n, _, _ := strings.Cut(kv, "="); return n == name })
		if _, set := c.lookupEnv(name); set && !given {
			term.Env = append(slices.Clone(term.Env), name)
		}
	}
}

func (c *Config) lookupEnv(name string) (string, bool) {
	for _, kv := range c.src.Environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v, true
		}
	}
	return "", false
}

// CheckJob refuses a job that would have more than the configuration allows to
// whatever runs in such a place: jobs know no network of their own, but for those
// on a service, which holds it or refuses it.
func (c *Config) CheckJob(s *jobs.Spec) error {
	if s.External != nil {
		return nil
	}
	v := c.said("terminal.network")
	if s.Backend == jobs.BackendDocker && v.V != "none" {
		v = c.said("terminal.docker_network")
	}
	if s.Level == jobs.LevelNone || v.V != "none" && v.V != false {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindConfig,
		Msg:  fmt.Sprintf("%s = %s (%s): a job on the backend %s has the network of its machine, which cannot be shut off yet", v.Key.Name, v, v.Origin, s.Backend),
		Hint: "berth exec has it shut off; or leave the key out where jobs are to run"}
}

func orSaid[T comparable](dst *T, v T) {
	var zero T
	if *dst == zero {
		*dst = v
	}
}
