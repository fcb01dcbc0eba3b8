package jobs

import "time"

// SpecVersion is the schema version of job.json.
const SpecVersion = 1

// Names of the schedulers and backends.
const (
	SchedulerSlurm = "slurm"
	SchedulerLocal = "local"

	BackendAuto        = "auto"
	BackendSingularity = "singularity"
	BackendLocal       = "local"
)

// Spec is a job as it was submitted, every value settled. It is job.json, is
// written once and never changes. It holds no secret and no prompt.
type Spec struct {
	Version   int            `json:"version"`
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	Slug      string         `json:"slug"`
	Command   Command        `json:"command"`
	Prompt    bool           `json:"prompt,omitempty"` // prompt.md stands beside
	Workspace *WorkspaceSpec `json:"workspace,omitempty"`
	Resources Resources      `json:"resources,omitzero"`
	Scheduler string         `json:"scheduler"`
	Backend   string         `json:"backend"`
	Level     Level          `json:"level"`
	Image     string         `json:"image,omitempty"` // absolute path of a SIF
	Overlay   OverlaySpec    `json:"overlay,omitzero"`
	Mounts    []Mount        `json:"mounts,omitempty"`
	Env       []string       `json:"env,omitempty"`       // NAME=VALUE, not secret
	EnvNames  []string       `json:"env_names,omitempty"` // taken from the caller; values are never recorded
	SSH       *SSHSpec       `json:"ssh,omitempty"`       // the host of backend ssh
	Slurm     SlurmOptions   `json:"slurm,omitzero"`
	Profile   Profile        `json:"profile,omitzero"`
	Done      []Command      `json:"done,omitempty"`
	Artifacts []string       `json:"artifacts,omitempty"`
	Created   time.Time      `json:"created"`
	User      string         `json:"user"`
	Host      string         `json:"host"` // where it was submitted
	Notes     []string       `json:"notes,omitempty"`
}

// WorkspaceSpec is the repository and commit that a job starts from.
type WorkspaceSpec struct {
	Repo    string   `json:"repo"`    // top of the user's work tree, or the bare repository
	GitDir  string   `json:"git_dir"` // its common git directory
	Base    string   `json:"base"`    // full commit id
	BaseRef string   `json:"base_ref,omitempty"`
	Branch  string   `json:"branch"` // where the result comes back
	Scope   []string `json:"scope,omitempty"`
}

// Overlay drivers, as recorded in an overlay's mark. An upper directory may be
// opened only by the driver that wrote it.
const (
	DriverFuse = "fuse" // a directory over a SIF, through fuse-overlayfs
	DriverExt3 = "ext3" // a sparse ext3 image
)

// OverlaySpec is the writable layer of a container.
type OverlaySpec struct {
	Name   string `json:"name,omitempty"` // "" is thrown away with the attempt
	Driver string `json:"driver,omitempty"`
	Size   Bytes  `json:"size_bytes,omitempty"` // ext3 only
}

// Level is how far a task is kept from its host.
type Level string

// Levels of containment, lowest first.
const (
	LevelNone   Level = "none"   // the user's own rights on the bare host
	LevelFS     Level = "fs"     // a container with its own filesystem, open network
	LevelEgress Level = "egress" // a container, network only through an allow-list
	LevelVM     Level = "vm"     // its own kernel
)
