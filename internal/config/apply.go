package config

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/config/keys"
	"berth/jobs"
)

// Environment puts into options what the configuration says of environments.
// What the options name themselves stays.
func (c *Config) Environment(o *jobs.EnvOptions) error {
	o.Configured = &jobs.EnvConfig{Backend: shown(c.said("terminal.backend").V), For: c.forBackend}
	if c.project != nil {
		o.Configured.Project = filepath.Dir(c.project.path)
	}
	o.Target, o.Offline, o.Auto = c.Target(), c.Offline(), c.Auto()
	scheduler := c.said("scheduler")
	if s := shown(scheduler.V); slices.Contains(jobs.Schedulers(), s) {
		o.Scheduler = s
	}
	o.Configured.PerTask = func(backend string) bool {
		return c.said("terminal.per_task_workspace").V == true || c.on(backend, "terminal.daytona.per_task_workspace").V == true
	}
	o.Configured.Named = c.targetBy == layerFlag || scheduler.Origin.Layer == layerFlag
	var err error
	if o.Login, err = c.login(); err != nil {
		return err
	}
	return c.lent(o)
}

// Timeout is what ends a command, as [engine.ExecRequest] has it: 0 is the
// usual, negative is never.
func (c *Config) Timeout() time.Duration { return c.duration("terminal.timeout") }

func (c *Config) duration(name string) time.Duration {
	v := c.said(name)
	if v.V == nil {
		return 0
	}
	return orNone(get[time.Duration](v))
}

// FreshShells tells whether a command leaves nothing of its shell behind.
func (c *Config) FreshShells() bool {
	return c.said("terminal.persistent_shell").V == false
}

// ConfirmSubmits is the word that says whether a person confirms each job that an agent
// submits; "" is that none is said.
func (c *Config) ConfirmSubmits() string { return shown(c.said("mcp.confirm").V) }

// Offline tells whether no registry is to be asked.
func (c *Config) Offline() bool { return c.said("offline").V == true }

// MaxWaiting is how many results may wait for a verdict before a task is refused that
// would make one more; 0 is any number. The text says where that is set.
func (c *Config) MaxWaiting() (n int, where string) {
	v := c.said("review.max_waiting_reviews")
	return get[int](v), v.Key.Name + " of " + v.Origin.String()
}

// Reviewer is the agent that looks at results where none is named; "" is none.
func (c *Config) Reviewer() string {
	if name := shown(c.said("review.agent").V); name != NoReviewer {
		return name
	}
	return ""
}

// Push is the remote to which merged branches are pushed where none is named; "" is none.
func (c *Config) Push() string {
	if name := shown(c.said("review.push").V); name != NoPush {
		return name
	}
	return ""
}

// OtherReviews says where it is set that another account than a job's author has to
// approve its result; "" is that it is not.
func (c *Config) OtherReviews() string {
	v := c.said("review.by")
	if v.V != byOther {
		return ""
	}
	return v.Key.Name + " of " + v.Origin.String()
}

// Auto are the backends that "auto" tries; nil is that none are configured.
func (c *Config) Auto() []string { return get[[]string](c.said("terminal.auto")) }

// orNone makes the engine's word for "no limit" of the file's 0.
func orNone[T int | jobs.Bytes | time.Duration](v T) T {
	if v == 0 {
		return -1
	}
	return v
}

// place returns what the configuration says of a place on a backend, of a job or of an
// environment, without what a profile says: the engine puts that below. The backend is ""
// or "auto" where it is still to be chosen. The reference is the image of a backend that
// takes names, the notes are for people.
func (c *Config) place(backend string, job bool) (o jobs.EnvOptions, reference string, notes []string, err error) {
	if o.Profile, err = c.ReadProfile(); err != nil {
		return o, "", nil, err
	}
	can := jobs.CapabilitiesOf(backend)
	if backend == "" || backend == jobs.BackendAuto {
		can = jobs.Capabilities{Layers: true, ImageNames: true} // whichever it will be
	}
	for i := range Keys() {
		k := &Keys()[i]
		f := keys.Find(k.Part)
		if f == nil || !c.counts(k, backend, job) {
			continue
		}
		v := c.said(k.Name)
		switch {
		case v.V == nil || v.V == f.Usual || v.Origin.Layer == layerProfile:
		case job && f.Name == "resources.disk" && !can.Layers: // it has no layer of berth's
		case job && can.NeedsHost && !keys.Has(f.Jobs, backend) && k.table() != "network" && !f.Promise: // that is not left out, but refused
			notes = append(notes, fmt.Sprintf("%s = %s (%s) is left out: the backend %s cannot hold it", k.Name, v, v.Origin, backend))
		default:
			f.Put(&o.Place, k.inPlace(v.V))
		}
	}
	bound := c.projectBound()
	switch v := c.on(backend, "terminal.docker_network"); {
	case v.V != false: // who shuts it off in either way means it
	case v.Origin.Layer == layerProject && v.Origin.Target == "":
		bound = &jobs.NetworkBound{Origin: "project " + c.project.path, Mode: jobs.NetworkNone}
	default:
		o.Network = jobs.Network{Mode: jobs.NetworkNone}
	}
	if bound != nil {
		o.Network.Bounds = []jobs.NetworkBound{*bound}
	}
	if can.Layers {
		o.Template = c.template()
		// The engine has the profile of a job, and of an environment only in an allocation.
		if v := c.said("terminal.singularity_image"); o.Template == "" && (!job || v.Origin.Layer != layerProfile) {
			o.Image = shown(v.V)
		}
	}
	if !can.Layers && o.PerTask && c.on(backend, "terminal.daytona.workspace_template").V == nil {
		o.Template = c.template() // a fresh place is made from it, or refused
	}
	if can.ImageNames {
		reference = shown(c.said("terminal.docker_image").V)
	}
	if can.NeedsHost {
		var host jobs.SSHSpec
		host, err = c.ssh()
		o.SSH = &host
	}
	if jobs.IsProgram(backend) {
		o.External = &jobs.ExternalSpec{}
		reference, o.External.Options, err = c.options(backend)
	}
	o.Forward = get[[]string](c.said("terminal.env_passthrough"))
	return o, reference, notes, err
}

// projectBound is what the project's file says of the network; nil is nothing.
func (c *Config) projectBound() *jobs.NetworkBound {
	if c.project == nil || len(c.project.bounds) == 0 {
		return nil
	}
	said := func(name string) []string { return get[[]string](c.project.bounds[name]) }
	return &jobs.NetworkBound{Origin: "project " + c.project.path, Mode: shown(c.project.bounds["network.mode"].V),
		Allow: said("network.allow"), Deny: said("network.deny"), Opaque: said("network.opaque")}
}

// NetworkBounds are what others than the user say of networks: the project's file, and
// the profile that was read.
func (c *Config) NetworkBounds() (out []jobs.NetworkBound) {
	if b := c.projectBound(); b != nil {
		out = append(out, *b)
	}
	if b := c.profile.Network; b.Origin != "" {
		out = append(out, b)
	}
	return out
}

// counts tells whether a key says something of a job, or of an environment, on a
// backend.
func (c *Config) counts(k *Key, backend string, job bool) bool {
	switch {
	case !k.isFor(backend):
		return false
	case job:
		return k.Jobs
	case k.table() == "resources" && !jobs.IsCluster(shown(c.said("scheduler").V)): // a scheduler is asked for them
		return k.Name == "resources.time" && jobs.IsProgram(backend)
	}
	return !k.NotEnvs
}

// inPlace is the key's value as a place has it.
func (k *Key) inPlace(v any) any {
	switch v := v.(type) {
	case int:
		return orNone(v)
	case jobs.Bytes:
		return orNone(v)
	case []string:
		if k.Part == "terminal.bind" {
			return mounts(v)
		}
	}
	return v
}

// mounts reads the words that [binds] has made.
func mounts(words []string) (out []jobs.Mount) {
	for _, word := range words {
		parts := strings.Split(word, ":")
		out = append(out, jobs.Mount{Source: parts[0], Destination: parts[1], Writable: len(parts) > 2})
	}
	return out
}

// on is what is said for a backend.
func (c *Config) on(backend, name string) Value {
	if !Find(name).isFor(backend) {
		return Value{}
	}
	return c.said(name)
}

// forBackend is what the configuration says of environments on one backend: of their
// place, and what no job has.
func (c *Config) forBackend(backend string) (jobs.EnvOptions, []string, error) {
	o, reference, notes, err := c.place(backend, false)
	if err != nil {
		return o, nil, err
	}
	if o.Image == "" {
		o.Image = reference
	}
	if jobs.CapabilitiesOf(backend).Here() {
		o.Scratch, o.Stage = shown(c.said("terminal.scratch_dir").V), o.Profile.Stage
	}
	o.Lifetime = c.duration("terminal.lifetime_seconds")
	o.Destroy = o.Destroy || c.on(backend, "terminal.container_persistent").V == false
	dir := c.said("terminal.cwd")
	if o.Dir, err = cwd(backend, shown(dir.V)); err != nil {
		return o, nil, err
	}
	if o.Dir == "" && dir.V != nil && shown(dir.V) != "." {
		notes = append(notes, fmt.Sprintf("terminal.cwd = %s (%s) is left out: there is no such place in a container; sessions begin in HOME",
			inFile(dir), dir.Origin))
	}
	for _, n := range get[[]string](c.on(backend, "terminal.docker_forward_env")) {
		if !slices.Contains(o.Forward, n) {
			o.Forward = append(slices.Clone(o.Forward), n)
		}
	}
	if c.on(backend, "terminal.docker_run_as_host_user").V == true {
		keys.Find("docker.user").Put(&o.Place, fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid()))
	}
	if c.on(backend, "terminal.docker_mount_cwd_to_workspace").V == true {
		wd, err := os.Getwd()
		if err != nil {
			return o, nil, err
		}
		o.Mounts, o.Dir = append(o.Mounts, jobs.Mount{Source: wd, Destination: Workspace, Writable: true}), Workspace
	}
	o.Project = c.shapedBy(backend)
	return o, notes, nil
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
	for i := range Keys() {
		k := &Keys()[i]
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

// Workspace is where docker_mount_cwd_to_workspace shows the current directory.
const Workspace = "/workspace"

// MountCwd tells whether the current directory is to be seen in containers of
// docker's.
func (c *Config) MountCwd() bool {
	return c.said("terminal.docker_mount_cwd_to_workspace").V == true
}

// cwd is where sessions begin on a backend; "" is HOME, or where berth chooses.
func cwd(backend, dir string) (string, error) {
	can := jobs.CapabilitiesOf(backend)
	home := dir == "~" || strings.HasPrefix(dir, "~/")
	switch {
	case dir == "":
		return "", nil
	case !can.Bare:
		if home || !filepath.IsAbs(dir) || strings.HasPrefix(dir, "/home/") || strings.HasPrefix(dir, "/Users/") {
			return "", nil
		}
		return dir, nil
	case can.OtherHost && (dir == "." || dir == "~"):
		return "", nil // its HOME
	case can.OtherHost:
		return dir, nil
	case home:
		h, err := os.UserHomeDir()
		return filepath.Join(h, dir[1:]), err
	}
	return filepath.Abs(dir)
}

// ssh is the host of the backend ssh. Without a host the other words mean
// nothing: launchers set them to their defaults.
func (c *Config) ssh() (jobs.SSHSpec, error) {
	host := shown(c.said("terminal.ssh_host").V)
	if host == "" {
		return jobs.SSHSpec{}, nil
	}
	s, err := jobs.ParseHost(host)
	s.User = cmp.Or(s.User, shown(c.said("terminal.ssh_user").V))
	s.Port = cmp.Or(s.Port, get[int](c.said("terminal.ssh_port")))
	s.Key = shown(c.said("terminal.ssh_key").V)
	return s, err
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
	low, reference, notes, err := c.place(t.Backend, true)
	if err != nil {
		return notes, err
	}
	if t.Overlay.Name != "" {
		low.Resources.Disk = 0 // it has its size
	}
	if t.Image == "" && t.Reference == "" && t.Template == "" {
		t.Image, t.Reference, t.Template = low.Image, reference, low.Template
	}
	if t.SSH == nil {
		t.SSH = low.SSH
	}
	low.Caps = jobs.Caps{} // these are bounds
	keys.Under(&t.Place, low.Place, "")
	if err := c.credentials(t); err != nil {
		return notes, err
	}
	if err := c.agent(t); err != nil {
		return notes, err
	}
	if t.External == nil {
		t.External = low.External
	}
	for _, name := range low.Forward { // every command gets them
		given := slices.ContainsFunc(t.Env, func(kv string) bool { n, _, _ := strings.Cut(kv, "="); return n == name })
		if _, set := c.lookupEnv(name); set && !given {
			t.Env = append(slices.Clone(t.Env), name)
		}
	}
	return notes, nil
}

func (c *Config) lookupEnv(name string) (string, bool) {
	for _, kv := range c.src.Environ {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v, true
		}
	}
	return "", false
}
