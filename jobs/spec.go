package jobs

import (
	"time"
)

// SpecVersion is the newest schema version of job.json that this program reads. A record is
// written with the lowest that has all of it, see [Spec.Needs].
const SpecVersion = 2

// Needs is the schema version that whoever reads the spec has to know: 2 with workspaces
// beside the first one, which an earlier berth would leave out without a word, else 1.
func (s *Spec) Needs() int {
	if len(s.Further) > 0 {
		return 2
	}
	return 1
}

// Names of the schedulers.
const (
	SchedulerSlurm = "slurm"
	SchedulerLocal = "local"
)

// Spec is a job as it was submitted, every value settled. It is job.json, is
// written once and never changes. It holds no secret and no prompt.
type Spec struct {
	Version int     `json:"version"`
	ID      string  `json:"id"`
	Name    string  `json:"name"`
	Slug    string  `json:"slug"`
	Command Command `json:"command"`
	Agent   *Agent  `json:"agent,omitempty"`
	Prompt  bool    `json:"prompt,omitempty"` // prompt.md stands beside
	// PromptBytes is how long that is, so that one that was cut is told from
	// the whole one; 0 in records of before it was kept.
	PromptBytes int            `json:"prompt_bytes,omitempty"`
	Workspace   *WorkspaceSpec `json:"workspace,omitempty"`
	// Further are repositories beside that one; there are none without it.
	Further []WorkspaceSpec `json:"further_workspaces,omitempty"`
	// Place is where the task runs. Its scheduler is never "".
	Place
	// ImageFrom is the file on this machine of which Image is a copy on the
	// host of Login; "" when the image was there.
	ImageFrom string `json:"image_from,omitempty"`
	// ImageRef is the reference that was asked for, when it was one; ImageDigest
	// the digest that its registry had under it at submit, ImageSum the SHA-256
	// of the file Image, which the node compares.
	ImageRef    string `json:"image_ref,omitempty"`
	ImageDigest string `json:"image_digest,omitempty"`
	ImageSum    string `json:"image_sum,omitempty"`
	// ImageDir says of an unpacked image which one it is (package overlay, DirID);
	// the node compares it.
	ImageDir string `json:"image_dir,omitempty"`

	EnvNames []string `json:"env_names,omitempty"` // taken from the caller; values are never recorded
	// LoginHome is the state directory on that host.
	LoginHome string    `json:"login_home,omitempty"`
	Submit    *Submit   `json:"submit,omitempty"` // nil is that the task may ask berth nothing
	Done      []Command `json:"done,omitempty"`
	DoneOver  string    `json:"done_over,omitempty"` // [DoneOverTask], or ""
	// Verifies is that the done commands check the result of another job, as a verifier:
	// their network is that of [PhaseVerify].
	Verifies  bool         `json:"verifies,omitempty"`
	Labels    []string     `json:"labels,omitempty"`
	Ports     []int        `json:"ports,omitempty"`
	Artifacts []string     `json:"artifacts,omitempty"`
	Results   ResultLimits `json:"results,omitzero"`
	Retry     *Retry       `json:"retry,omitempty"`  // nil is one attempt
	Resume    *Resume      `json:"resume,omitempty"` // nil starts each attempt from the beginning
	After     []After      `json:"after,omitempty"`  // jobs that must have ended before it begins
	Notify    *Notify      `json:"notify,omitempty"` // nil tells the user nothing
	// Key is the SHA-256 of the caller's idempotency key; "" is none.
	Key string `json:"key,omitempty"`
	// TaskFile is the absolute path of the task file on Host; "" is a command line, or
	// not known. RetryOf is the job of which this one is another try by the user.
	TaskFile string `json:"task_file,omitempty"`
	RetryOf  string `json:"retry_of,omitempty"`
	// Parent is the job whose task has asked for this one, as the Number-th of its
	// children; "" is a person.
	Parent  string    `json:"parent,omitempty"`
	Number  int       `json:"number,omitempty"`
	Created time.Time `json:"created"`
	User    string    `json:"user"`
	Host    string    `json:"host"` // where it was submitted
	Notes   []string  `json:"notes,omitempty"`
}

// ResultLimits bound what is brought back; zero fields are the defaults, which
// package workspace has.
type ResultLimits struct {
	ArtifactFile  Bytes `json:"artifact_file_bytes,omitempty"` // of one artifact
	ArtifactSize  Bytes `json:"artifact_size_bytes,omitempty"` // of all together
	ArtifactFiles int   `json:"artifact_files,omitempty"`
	BranchFile    Bytes `json:"branch_file_bytes,omitempty"` // of one changed file
	BranchSize    Bytes `json:"branch_size_bytes,omitempty"` // of all together
	BranchFiles   int   `json:"branch_files,omitempty"`      // new ones
}

// WorkDir is where the workspace stands inside a container.
const WorkDir = "/work"

// RoomImage is where a container shows its unpacked image, with which the files of rooms below
// it begin, see [Place.Rooms].
const RoomImage = "/.berth/image"

// Schedulers returns the names of all schedulers, in the order in which "auto"
// tries them.
func Schedulers() []string { return []string{SchedulerSlurm, SchedulerLocal} }

// IsCluster reports whether a word chooses the scheduler of a cluster: any one but
// [SchedulerLocal].
func IsCluster(scheduler string) bool {
	switch scheduler {
	case "", "none", BackendAuto, SchedulerLocal:
		return false
	}
	return true
}

// Pulls reports whether a job is berth's own that fetches images, and runs no task.
func (s *Spec) Pulls() bool {
	return s.Backend == BackendBare && len(s.Command.Argv) > 1 && s.Command.Argv[1] == VerbPull
}

// SharesWork tells whether the work tree must be seen by other nodes while the task
// runs: those of its ranks, or of the attempt that takes it up.
func (s *Spec) SharesWork() bool { return s.Resources.Tasks > 1 || s.Resume != nil }

// Invocation is the job's place as the command line of an attempt opens it, but
// for its name and what the machine at hand adds to it.
func (s *Spec) Invocation() Invocation {
	in := Invocation{Place: s.Place}
	in.GPU = s.GPUKind()
	if s.Workspace != nil {
		in.Mounts = append([]Mount{{Source: PlaceholderWork, Destination: WorkDir, Writable: !s.Workspace.ReadOnly}}, in.Mounts...)
	}
	return in
}

// InvocationAt is the invocation of one container, with what is known on its node.
func (s *Spec) InvocationAt(l LineAt) Invocation {
	in := s.Invocation()
	in.Guest = l.Guest
	for i, m := range in.Mounts {
		if m.Source == PlaceholderWork {
			in.Mounts[i].Source = l.Work
		}
	}
	return in
}

// Environment is the place of an attempt as backends open it: an environment that
// is thrown away with the attempt. home is the state directory.
func (s *Spec) Environment(a AttemptInfo, home string) *EnvSpec {
	e := &EnvSpec{Version: EnvVersion, ID: a.ID, Name: s.Name, Place: s.Place, Strict: true, Home: home, User: s.User, Created: a.Created, Host: s.Host}
	if e.Scratch == "" {
		e.Scratch = s.Profile.Scratch
	}
	if s.External != nil {
		x := *s.External
		x.Job = s.ID
		e.External = &x
	}
	return e
}

// KeptEnvironment is the environment as which the place of an attempt is kept, to be looked
// into: it has the attempt's id, its files and no more. What is in it is not trusted, so that
// it has no network, none of the binds and no credential. It is there for at most after.
func (s *Spec) KeptEnvironment(a AttemptInfo, home string, now time.Time, after time.Duration) *EnvSpec {
	e := s.Environment(a, home)
	if s.DestroyAfter > 0 {
		after = min(after, s.DestroyAfter)
	}
	e.Place = Place{Backend: s.Backend, Image: s.Image, Env: s.Env, Hostname: s.Hostname, Scratch: e.Scratch, Profile: s.Profile,
		Network: Network{Mode: NetworkNone}, Fate: Fate{DestroyAfter: after},
		Resources: Resources{CPUs: s.Resources.CPUs, Memory: s.Resources.Memory}}
	e.Level = e.Network.Level(LevelFS)
	e.Persistent, e.Lifetime, e.Created = true, DefaultLifetime, now
	e.Strict, e.Defaulted = false, []string{"cpus", "memory"} // a limit that does not hold here is no reason not to look
	e.Notes = []string{"what job " + Short(s.ID) + " has left: without a network, and without its binds"}
	return e
}

// WorkspaceSpec is the repository and commit that a job starts from.
type WorkspaceSpec struct {
	Name    string   `json:"name,omitempty"` // of a further one
	Repo    string   `json:"repo"`           // top of the user's work tree, or the bare repository
	GitDir  string   `json:"git_dir"`        // its common git directory
	Base    string   `json:"base"`           // full commit id
	BaseRef string   `json:"base_ref,omitempty"`
	Branch  string   `json:"branch"` // where the result comes back
	Scope   []string `json:"scope,omitempty"`
	// Copy says that GitDir is berth's own copy of a repository on the machine
	// that submitted the job ([Spec].Host): the result is taken in there, not
	// here.
	Copy bool `json:"copy,omitempty"`
	// Ignore is what git ignores for the submitter in all repositories, as in a
	// .gitignore: the nodes need not see the file.
	Ignore string `json:"ignore,omitempty"`
	// ReadOnly, of the first one, says that the task may only look at its work tree and so at
	// the further ones, which stand in it; it needs a container.
	ReadOnly bool `json:"read_only,omitempty"`
}

// Overlay drivers, as recorded in an overlay's mark. An upper directory may be
// opened only by the driver that wrote it.
const (
	DriverFuse = "fuse" // a directory over a SIF, through FUSE
	DriverExt3 = "ext3" // a sparse ext3 image
)

// Whether an attempt works on a copy of its named overlay, which takes the
// overlay's place when it has succeeded, or in the overlay itself.
const (
	SnapshotAuto   = "auto" // on a copy where that costs little
	SnapshotAlways = "always"
	SnapshotNever  = "never"
)

// When a throw-away layer is kept.
const (
	KeepFailed = "failed" // when the job did not succeed, and was not cancelled
	KeepAlways = "always"
)

// OverlaySpec is the writable layer of a container.
type OverlaySpec struct {
	Name   string `json:"name,omitempty"` // "" is thrown away with the attempt
	Driver string `json:"driver,omitempty"`
	Why    string `json:"why,omitempty"`        // this driver, in a few words for people
	Size   Bytes  `json:"size_bytes,omitempty"` // of an ext3 image; a directory is watched
	// Inodes is how many files the layer can hold; 0 is one for 16 KiB in an ext3
	// image, and no limit in a directory.
	Inodes int64 `json:"inodes,omitempty"`
	// Keep says after which ends a throw-away layer, or place, is kept; "" is none.
	Keep string `json:"keep,omitempty"`
	// Wait is how long an attempt waits while another user of the overlay holds it.
	Wait time.Duration `json:"wait_ns,omitempty"`
	// Snapshot says whether an attempt works on a copy of a named overlay, see
	// [SnapshotAuto]; "" is that.
	Snapshot string `json:"snapshot,omitempty"`
	// Templates is the directory on the machine at hand where new ext3 images
	// are kept ready, or "".
	Templates string `json:"-"`
}

// What the done commands find outside of the workspace.
const (
	DoneOverBefore = "before" // the layer as it was before the task
	DoneOverTask   = "task"   // what the task has left
)

// DonePhase is the phase whose network the done commands have.
func (s *Spec) DonePhase() string {
	if s.Verifies {
		return PhaseVerify
	}
	return PhaseDone
}

// CheckedOver says over what the done commands run that the task could prepare;
// "" is over nothing, or that there are none.
func (s *Spec) CheckedOver() string {
	switch {
	case len(s.Done) == 0:
		return ""
	case s.DoneOver == DoneOverTask:
		return "the task's own files"
	case s.Can().Bare:
		return "a host that the task could change"
	}
	return ""
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

// When a copy of the image is made on the node's own disk.
const (
	StageAuto   = "auto"   // when it pays
	StageAlways = "always" // unless there is no room
	StageNever  = "never"
)
