package jobs

import (
	"fmt"
	"strings"
	"time"
)

// Command is what to run: one string for the shell, or an argv. Exactly one of
// the two is set.
type Command struct {
	Shell string   `json:"shell,omitempty"`
	Argv  []string `json:"argv,omitempty"`
}

// Limits of commands, in bytes.
const (
	MaxCommand  = 16 << 20  // of a text for the shell, however it comes
	MaxArgument = 128 << 10 // the kernel's, of one argument (execve(2)): a longer text comes in another way
)

// CheckLength refuses a text for the shell that is too long.
func (c Command) CheckLength() error {
	if n := len(c.Shell); n > MaxCommand {
		return &Error{Kind: KindUsage, Msg: fmt.Sprintf("the command has more than %d bytes", MaxCommand),
			Hint: "copy it there as a file (berth cp), and run that"}
	}
	return nil
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

// Task is the user's request, as written in a task file or after "--".
// Zero values mean "not said"; the engine settles them into a [Spec].
type Task struct {
	Name      string // free text; its [Slug] goes into names
	Command   Command
	Agent     *Agent // whose adapter makes or knows the command; nil is none
	Prompt    string // the Markdown body; given as a file and on stdin
	Workspace *Workspace
	Further   []Workspace // repositories beside that one, each with a name
	// Place is where it is to run, with these meanings:
	//   - Backend and Scheduler "" and "auto" are chosen.
	//   - Env has NAME, too, whose value is taken from the caller.
	//   - HostSockets, and the options of SSH and External, come from the caller alone.
	Place
	// Reference is the image as it was written, which docker takes for the name of
	// one in a registry; Image is then that path, or that reference.
	Reference string
	Template  string    // name of a workspace template, in place of an image
	Retry     *Retry    // nil is not said
	After     []string  // jobs that must have ended before it begins, as for [ParseAfter]
	Resume    *Resume   // nil is not said; zero fields are not, too
	Done      []Command // each must exit 0, in a fresh container, after the agent
	Submit    *Submit   // nil is that it may ask berth nothing
	DoneOver  string    // [DoneOverBefore] or [DoneOverTask]; "" is the first
	Labels    []string  // words by which jobs are found together, see [CheckLabel]
	Ports     []int     // on which services of the task listen, for people: berth forward
	Artifacts []string  // path patterns inside the workspace to bring back
	Results   ResultLimits
	Source    []byte // the task file as it was read; nil for a command line
	File      string // its absolute path; "" for a command line
}

// Workspace is the repository that a task works on.
type Workspace struct {
	Name  string   // of a further one, see [CheckWorkspaceName]
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
	// Tasks is how many times the command runs side by side, once in each of
	// Slurm's tasks ("ntasks"); 0 and 1 are once.
	Tasks int `json:"ntasks,omitempty"`
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
	Extra      []string `json:"extra,omitempty"` // further options of a submission, "--option=value"
	// MPI is how ranks find each other: "pmix", "none", or "" for the site's
	// own choice.
	MPI string `json:"mpi,omitempty"`
}

// Profile is what a site needs, from profiles/NAME.toml. Its zero value is a
// site that needs nothing.
type Profile struct {
	Name      string       `json:"name,omitempty"`
	Slurm     SlurmOptions `json:"slurm,omitzero"`
	Modules   []string     `json:"modules,omitempty"`   // loaded in the job script
	Scratch   string       `json:"scratch,omitempty"`   // node-local; may hold variables, such as $USER and $TMPDIR
	Forbid    []string     `json:"forbid,omitempty"`    // options of a submission that the site refuses, without dashes: "mem"
	Overlay   string       `json:"overlay,omitempty"`   // driver of new overlays: "kernel", "fuse" or "ext3"
	GPU       string       `json:"gpu,omitempty"`       // "nvidia" or "amd"
	Versions  Versions     `json:"versions,omitzero"`   // flags that only newer programs know
	GPUType   string       `json:"gpu_type,omitempty"`  // of GPUs that are asked for by number only, where the site demands one
	Proxy     Proxy        `json:"proxy,omitzero"`      // the way out of the nodes
	Image     string       `json:"image,omitempty"`     // default image of the site
	Scheduler string       `json:"scheduler,omitempty"` // "slurm" or "local"
	Stage     string       `json:"stage,omitempty"`     // [StageAlways] or [StageNever]; "" is [StageAuto]
	// ImageCache is a directory for images in place of the state directory's, or
	// another user's cache that is searched first; it may hold $USER and others.
	ImageCache string `json:"image_cache,omitempty"`
	// ModuleInit is a file of the nodes that defines the shell function "module".
	ModuleInit string `json:"module_init,omitempty"`
	// Beat is how often an attempt gives a sign of life; 0 is the usual 10 s.
	Beat time.Duration `json:"beat_ns,omitempty"`
	// NodesMute tells that the site's nodes may not submit jobs.
	NodesMute bool `json:"nodes_mute,omitempty"`
	// Purge are the directories from which the site removes old files.
	Purge []Purge `json:"purge,omitempty"`
	// Network bounds the networks of places there, and Via is their way out where the
	// user names none, see [Network.Via].
	Network NetworkBound `json:"network,omitzero"`
	Via     string       `json:"via,omitempty"`
	// Caps are the most that a task there may have as its caps; 0 is any.
	Caps Caps `json:"caps,omitzero"`
}

// Purge is a directory below which a site removes files that were not used for so
// many days.
type Purge struct {
	Dir  string `json:"dir"`
	Days int    `json:"days"`
}

// GPUs writes a request for GPUs as the site wants it: with its type, where
// only a number was asked for.
func (p Profile) GPUs(asked string) string {
	if p.GPUType == "" || asked == "" {
		return asked
	}
	parts := strings.Split(asked, ",")
	for i, one := range parts {
		if !strings.Contains(one, ":") {
			parts[i] = p.GPUType + ":" + one
		}
	}
	return strings.Join(parts, ",")
}

// Proxy is how what runs on the nodes reaches other hosts. It stands in job
// scripts and records and so holds no password.
type Proxy struct {
	HTTP  string `json:"http,omitempty"`  // URL
	HTTPS string `json:"https,omitempty"` // URL
	No    string `json:"no,omitempty"`    // names and addresses that are reached without, separated by commas
}

// Environ returns the variables that programs look for, as NAME=VALUE: some
// read only the lower case, some only the upper.
func (p Proxy) Environ() []string {
	var env []string
	for _, v := range [][2]string{{"http_proxy", p.HTTP}, {"https_proxy", p.HTTPS}, {"no_proxy", p.No}} {
		if v[1] != "" {
			env = append(env, v[0]+"="+v[1], strings.ToUpper(v[0])+"="+v[1])
		}
	}
	return env
}

// Versions of the programs at a site, such as "24.11" and "1.4.5"; "" is not
// known, and then only flags are used that every supported version knows.
type Versions struct {
	Slurm     string `json:"slurm,omitempty"`
	Apptainer string `json:"apptainer,omitempty"`
}
