package jobs

import "time"

// Place is where commands run: a job's task, and an environment's sessions. It
// says what runs them, with which files, limits and network, and on which
// machine. It is part of [Spec] and of [EnvSpec], every value settled, and it
// holds no secret.
type Place struct {
	Backend string `json:"backend"`
	Level   Level  `json:"level"`
	// Image is the absolute path of a SIF or the directory of an unpacked image
	// (with Login: there), or a reference such as "docker://debian:12"
	// ("debian:12" with docker).
	Image string `json:"image,omitempty"`
	// Stage is when a copy of the image is made on the node's own disk:
	// [StageAuto] and so on; "" is auto.
	Stage   string      `json:"stage,omitempty"`
	Overlay OverlaySpec `json:"overlay,omitzero"` // of an environment without a name; Driver "" is chosen where it opens
	Mounts  []Mount     `json:"mounts,omitempty"`
	// HostSockets are sockets of the host's that may be reached from inside, by
	// what they are ("tmux") or by their path.
	HostSockets []string  `json:"host_sockets,omitempty"`
	Env         []string  `json:"env,omitempty"` // NAME=VALUE for every command, not secret
	Resources   Resources `json:"resources,omitzero"`
	GPU         string    `json:"gpu,omitempty"` // "", "nvidia" or "amd"; what counts is [Place.GPUKind]
	Network     Network   `json:"network,omitzero"`
	// Credentials are keys that are used for it and never seen inside, Caps what ends it
	// where it has asked models for more, by these Prices.
	Credentials []Credential `json:"credentials,omitempty"`
	Caps        Caps         `json:"caps,omitzero"`
	Prices      Prices       `json:"prices,omitzero"`
	Hostname    string       `json:"hostname,omitempty"` // inside the container; "" is the backend's choice
	Fakeroot    bool         `json:"fakeroot,omitempty"`
	Rooms       bool         `json:"rooms,omitempty"`   // each of its commands is to have a room of its own, see [Place.BareProc]
	Dir         string       `json:"dir,omitempty"`     // where sessions begin; "" is HOME
	Scratch     string       `json:"scratch,omitempty"` // as in a profile
	Fate
	// Docker, SSH and External are what these backends alone understand.
	Docker   *DockerSpec   `json:"docker,omitempty"`
	SSH      *SSHSpec      `json:"ssh,omitempty"`
	External *ExternalSpec `json:"external,omitempty"` // set where the backend is a program of its own
	// Scheduler gives the machine. Of an environment "" is none: it is kept where
	// it is used; else an allocation is held while the environment runs.
	Scheduler string       `json:"scheduler,omitempty"`
	Slurm     SlurmOptions `json:"slurm,omitzero"`
	Profile   Profile      `json:"profile,omitzero"`
	// Login is the host on which the scheduler's commands run; nil is this
	// machine. A job's record there is then the first one, and this one a copy.
	Login  *SSHSpec `json:"login,omitempty"`
	Target string   `json:"target,omitempty"` // the target of the configuration that was chosen
}

// Fate is what becomes of a place that runs what is not trusted.
type Fate struct {
	// PerTask is that no other task finds what this one leaves: it has a layer of its own,
	// and a name of its own where it is an environment that is not named.
	PerTask bool `json:"per_task_workspace,omitempty"`
	// Destroy is that its files end with its use, and that berth looks afterwards.
	Destroy bool `json:"auto_destroy,omitempty"`
	// DestroyAfter is how long it is there at the latest; 0 is for as long as it is wanted.
	DestroyAfter time.Duration `json:"auto_destroy_after_ns,omitempty"`
}

// Looks reports whether berth looks, after the place was destroyed, for what is left.
func (f Fate) Looks() bool { return f.PerTask || f.Destroy || f.DestroyAfter > 0 }

// Destroyed is what was found when a place had been destroyed.
type Destroyed struct {
	Time time.Time `json:"time"`
	Gone []string  `json:"gone,omitempty"` // what was looked for and is not there, for people
	Left []string  `json:"left,omitempty"` // what is, or may be, there still, and where
}

// Clustered reports whether the place is in a job of a cluster's scheduler, on a
// node of its choice, and not on this machine.
func (p *Place) Clustered() bool { return IsCluster(p.Scheduler) }

// Devices are the variables that say which GPUs a process sees: numbers or other names, with
// commas between them. NVIDIA's comes first.
var Devices = []string{"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ZE_AFFINITY_MASK"}

// GPUKind is which GPUs a container is to see: the kind that was named, and where
// GPUs were asked of a scheduler the profile's, else NVIDIA's; "" is none.
func (p *Place) GPUKind() string {
	switch {
	case p.GPU != "" || p.Resources.GPUs == "":
		return p.GPU
	case p.Profile.GPU != "":
		return p.Profile.GPU
	}
	return "nvidia"
}

// Invocation is a place as one command line opens it.
type Invocation struct {
	Place
	Name  string // of the attempt in its scheduler; a container may carry it
	User  string // UID:GID that owns the mounts, where who runs inside can be chosen
	Guest string // path of berth-node on the host; bound read-only where there is a container
}
