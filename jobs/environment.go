package jobs

import "time"

// EnvVersion is the schema version of env.json.
const EnvVersion = 1

// More names of backends.
const (
	BackendDocker = "docker"
	BackendSSH    = "ssh"
)

// DriverKernel is an overlay that berth mounts itself in a user and mount
// namespace of its own, with userxattr, over an unpacked image.
const DriverKernel = "kernel"

// Values of an environment when nobody says otherwise.
const (
	DefaultEnvironment = "default"
	DefaultSession     = "default"
	DefaultImage       = "nikolaik/python-nodejs:python3.11-nodejs20" // of docker; singularity takes it as docker://
	DefaultTimeout     = 180 * time.Second                            // of one command
	DefaultLifetime    = 300 * time.Second                            // of an idle environment
)

// EnvSpec is an environment as it was made, every value settled. It is
// env.json in the environment's directory, is written once and never changes.
// It holds no secret.
type EnvSpec struct {
	Version int    `json:"version"`
	ID      string `json:"id"` // UUIDv7; names its sockets, labels and containers
	Name    string `json:"name"`
	Backend string `json:"backend"`
	Level   Level  `json:"level"`
	// Image is a SIF's absolute path, the directory of an unpacked image, or a
	// reference such as "docker://debian:12" ("debian:12" with docker).
	Image      string      `json:"image,omitempty"`
	Overlay    OverlaySpec `json:"overlay,omitzero"` // Name is not used; Driver "" is chosen where it opens
	Persistent bool        `json:"persistent"`       // the files outlive the keeper
	Mounts     []Mount     `json:"mounts,omitempty"`
	Env        []string    `json:"env,omitempty"` // NAME=VALUE for every command, not secret
	// Forward names variables of whoever uses the environment, which every
	// command gets with the values they have there; these are never recorded.
	Forward   []string  `json:"forward,omitempty"`
	Resources Resources `json:"resources,omitzero"`
	// Defaulted names the resources that nobody has asked for: "cpus",
	// "memory". Where such a limit cannot be held it is dropped with a note;
	// one that was asked for is then an error.
	Defaulted []string      `json:"defaulted,omitempty"`
	Strict    bool          `json:"strict,omitempty"`  // a limit that cannot be held is an error
	GPU       string        `json:"gpu,omitempty"`     // "", "nvidia" or "amd"
	Network   string        `json:"network,omitempty"` // "" is the host's, "none"
	Fakeroot  bool          `json:"fakeroot,omitempty"`
	Dir       string        `json:"dir,omitempty"`     // where sessions begin; "" is HOME
	Scratch   string        `json:"scratch,omitempty"` // as in a profile
	Lifetime  time.Duration `json:"lifetime_ns"`       // idle time after which its keeper ends; 0 is never
	Docker    *DockerSpec   `json:"docker,omitempty"`
	Home      string        `json:"home"` // the state directory that has its record
	SSH       *SSHSpec      `json:"ssh,omitempty"`
	Created   time.Time     `json:"created"`
	User      string        `json:"user"`
	Host      string        `json:"host"` // where it was made
	Notes     []string      `json:"notes,omitempty"`
}

// DockerSpec is what only docker and podman understand.
type DockerSpec struct {
	Program   string   `json:"program,omitempty"` // path or name; "" is docker, else podman
	User      string   `json:"user,omitempty"`    // UID:GID; "" is the image's
	Pids      int      `json:"pids,omitempty"`    // limit of processes
	Shm       Bytes    `json:"shm_bytes,omitempty"`
	Volumes   []string `json:"volumes,omitempty"` // as for --volume
	ExtraArgs []string `json:"extra_args,omitempty"`
}

// SSHSpec is how a host is reached. What is empty is left to the user's own
// ssh configuration.
type SSHSpec struct {
	Host    string   `json:"host"` // name, address or alias
	User    string   `json:"user,omitempty"`
	Port    int      `json:"port,omitempty"`
	Key     string   `json:"key,omitempty"`     // path of an identity file
	Options []string `json:"options,omitempty"` // "Name=value", as for ssh -o
}
