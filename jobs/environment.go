package jobs

import "time"

// EnvVersion is the schema version of env.json.
const EnvVersion = 1

// DriverKernel is an overlay that berth mounts itself in a user and mount
// namespace of its own, with userxattr, over an unpacked image.
const DriverKernel = "kernel"

// Default values of an environment.
const (
	DefaultEnvironment = "default"
	DefaultSession     = "default"
	DefaultTimeout     = 180 * time.Second // of one command
	DefaultLifetime    = 300 * time.Second // of an idle environment
)

// EnvSpec is an environment as it was made, every value settled. It is
// env.json in the environment's directory, is written once and never changes.
// It holds no secret.
type EnvSpec struct {
	Version int    `json:"version"`
	ID      string `json:"id"` // UUIDv7; names its sockets, labels and containers
	Name    string `json:"name"`
	// Place is where its commands run.
	Place
	Persistent bool `json:"persistent"` // the files outlive the keeper
	// Forward names variables of whoever uses the environment, which every
	// command gets with the values they have there; these are never recorded.
	Forward []string `json:"forward,omitempty"`
	// Defaulted names the resources that have their default value: "cpus",
	// "memory", "disk". A default limit that cannot be enforced is dropped with a
	// note; an explicit one is then an error.
	Defaulted []string      `json:"defaulted,omitempty"`
	Strict    bool          `json:"strict,omitempty"` // a limit that cannot be held is an error
	Lifetime  time.Duration `json:"lifetime_ns"`      // idle time after which its keeper ends; 0 is never
	Home      string        `json:"home"`             // the state directory that has its record
	// Project is the directory whose berth.toml has shaped it; elsewhere it is
	// used only by its name.
	Project string `json:"project,omitempty"`
	// Once is that it was made for one command, or terminal, that had named none.
	Once    bool      `json:"once,omitempty"`
	Created time.Time `json:"created"`
	User    string    `json:"user"`
	Host    string    `json:"host"` // where it was made
	Notes   []string  `json:"notes,omitempty"`
}

// Expires is when it is to be gone at the latest, by [Fate.DestroyAfter]; zero is never.
func (s *EnvSpec) Expires() time.Time {
	if s.DestroyAfter <= 0 {
		return time.Time{}
	}
	return s.Created.Add(s.DestroyAfter)
}

// Expired reports whether that has passed.
func (s *EnvSpec) Expired(now time.Time) bool {
	at := s.Expires()
	return !at.IsZero() && !now.Before(at)
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

// ExternalSpec is what a backend that is a program of its own is asked with.
type ExternalSpec struct {
	Program []string          `json:"program"`           // its command line, without a verb
	Owner   string            `json:"owner"`             // names the state directory at the service
	Options map[string]string `json:"options,omitempty"` // of the configuration, for the program alone
	Allow   []string          `json:"allow,omitempty"`   // of records of before: the list of [Place.Reaches]
	// Life bounds a sandbox's time, whatever becomes of its keeper; never 0.
	Life time.Duration `json:"life_ns"`
	Job  string        `json:"job,omitempty"` // the id of the job whose attempt it is for
	// From is the snapshot that its files begin with, by its user's name.
	From string `json:"from,omitempty"`
	// OneShot says that there are no streams: commands run one by one, and the
	// environment has no keeper.
	OneShot bool `json:"one_shot,omitempty"`
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
