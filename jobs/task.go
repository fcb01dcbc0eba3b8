package jobs

import "time"

// Command is what to run: one string for the shell, or an argv. Exactly one of
// the two is set.
type Command struct {
	Shell string   `json:"shell,omitempty"`
	Argv  []string `json:"argv,omitempty"`
}

// Words makes a Command from the words after "--": one word is evaluated by
// the shell, several words are an argv.
func Words(words []string) Command {
	if len(words) == 1 {
		return Command{Shell: words[0]}
	}
	return Command{Argv: words}
}

// Empty tells whether nothing was given.
func (c Command) Empty() bool { return c.Shell == "" && len(c.Argv) == 0 }

// Task is what somebody wants done, as written in a task file or after "--".
// Zero values mean "not said"; the engine settles them into a [Spec].
type Task struct {
	Name      string // free text; its [Slug] goes into names
	Command   Command
	Prompt    string // the Markdown body; given as a file and on stdin
	Workspace *Workspace
	Resources Resources
	Terminal  Terminal
	Slurm     SlurmOptions
	Done      []Command // each must exit 0, in a fresh container, after the agent
	Artifacts []string  // path patterns inside the workspace to bring back
	Source    []byte    // the task file as it was read; nil for a command line
}

// Workspace is the repository that a task works on.
type Workspace struct {
	Repo  string   // a directory of a git repository; relative to the task file
	Base  string   // what to start from; "" is HEAD
	Scope []string // paths that may change; empty means all
}

// Resources are what a job asks of its scheduler. Zero means not asked.
type Resources struct {
	CPUs   int           `json:"cpus,omitempty"`
	Memory Bytes         `json:"memory_bytes,omitempty"`
	Disk   Bytes         `json:"disk_bytes,omitempty"` // size of the writable layer
	Time   time.Duration `json:"time_ns,omitempty"`
	GPUs   string        `json:"gpus,omitempty"` // "2" or "TYPE:2", as Slurm's --gpus
	Nodes  int           `json:"nodes,omitempty"`
}

// Terminal is where the task's commands run.
type Terminal struct {
	Backend string // "", "auto", "singularity", "docker", "ssh", "local"
	Image   string // path of a SIF
	// Reference is the image as it was written, which docker takes for the
	// name of one in a registry.
	Reference string
	Overlay   string // name of a persistent overlay; "" is a throw-away one
	Bind      []Mount
	Env       []string // NAME (taken from the caller) or NAME=VALUE
	SSH       SSHSpec  // of backend ssh; its options come from the caller alone
}

// Mount binds a path of the host into the environment.
type Mount struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
	Writable    bool   `json:"writable,omitempty"` // read-only unless said
}

// SlurmOptions are what only Slurm understands.
type SlurmOptions struct {
	Partition  string   `json:"partition,omitempty"`
	Account    string   `json:"account,omitempty"`
	QOS        string   `json:"qos,omitempty"`
	Constraint string   `json:"constraint,omitempty"`
	Extra      []string `json:"extra,omitempty"` // "--option=value", as for sbatch
}

// Profile is what a site needs, from profiles/NAME.toml. Its zero value is a
// site that needs nothing.
type Profile struct {
	Name      string       `json:"name,omitempty"`
	Slurm     SlurmOptions `json:"slurm,omitzero"`
	Modules   []string     `json:"modules,omitempty"`   // loaded in the job script
	Scratch   string       `json:"scratch,omitempty"`   // node-local; may hold $USER, $SLURM_JOB_ID, $TMPDIR
	Forbid    []string     `json:"forbid,omitempty"`    // sbatch options that the site refuses, without dashes: "mem"
	Overlay   string       `json:"overlay,omitempty"`   // driver of new overlays: "fuse" or "ext3"
	GPU       string       `json:"gpu,omitempty"`       // "nvidia" (--nv) or "amd" (--rocm)
	Versions  Versions     `json:"versions,omitzero"`   // flags that only newer programs know
	Image     string       `json:"image,omitempty"`     // default image of the site
	Scheduler string       `json:"scheduler,omitempty"` // "slurm" or "local"
}

// Versions of the programs at a site, such as "24.11" and "1.4.5"; "" is not
// known, and then only flags are used that every supported version knows.
type Versions struct {
	Slurm     string `json:"slurm,omitempty"`
	Apptainer string `json:"apptainer,omitempty"`
}
