package keys

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/config/strict"
	"berth/jobs"
	"berth/slurm/options"
)

// most is an upper bound that only a slip of the finger passes.
const (
	most       = 1 << 20
	mostTokens = 1 << 40
)

// never is the word of what no project may set.
const never = "never"

// Which backends have a field.
var (
	here      = jobs.Capabilities.Here
	sandboxed = func(c jobs.Capabilities) bool { return !c.Bare }
	imaged    = func(c jobs.Capabilities) bool { return !c.Bare && !c.NoImage }
	layered   = func(c jobs.Capabilities) bool { return c.Layers }
	daemons   = func(c jobs.Capabilities) bool { return c.Daemon }
	programs  = jobs.Capabilities.Service
	overSSH   = func(c jobs.Capabilities) bool { return c.NeedsHost }
	none      = func(jobs.Capabilities) bool { return false }
	notSSH    = func(c jobs.Capabilities) bool { return !c.NeedsHost }
)

// Fields are all parts of a place that people choose, but for its scheduler,
// profile, target and login host, and the image's template.
var Fields = slices.Concat(placeFields, phaseFields())

var placeFields = []Field{
	{Name: "terminal.backend", In: func(p *jobs.Place) any { return &p.Backend }, Task: true, Flag: "backend",
		Differs: "another backend", Any: jobs.BackendAuto,
		Help: "what makes the container, `NAME`: singularity, docker, bwrap, ssh, local, modal, daytona, or a program berth-backend-NAME " +
			"(default auto: singularity, else docker)",
		Env: "what makes the container, `NAME`: singularity, docker, bwrap, ssh, local, modal, daytona, or a program berth-backend-NAME " +
			"(default auto: singularity, else docker)"},
	{Name: "terminal.image", In: func(p *jobs.Place) any { return &p.Image }, Apart: true, Task: true, Flag: "image",
		Text: func(p *jobs.Place) string { return ImageName(p.Image) },
		Noun: "an image", Jobs: func(c jobs.Capabilities) bool { return !c.NeedsHost && !c.NoImage }, Envs: imaged, Differs: "another image",
		Help: "container `IMAGE`: a SIF file, or a reference such as docker://debian:12",
		Env:  "container `IMAGE`: a SIF file, an unpacked one, or a reference such as docker://debian:12"},
	{Name: "terminal.overlay", In: func(p *jobs.Place) any { return &p.Overlay.Name }, Task: true, Flag: "overlay", Noun: "a named overlay", Jobs: layered,
		Help: "keep changed files in the overlay `NAME` (default: they are removed at the end)"},
	{Name: "terminal.overlay_wait", In: func(p *jobs.Place) any { return &p.Overlay.Wait }, Task: true, Flag: "overlay-wait", Jobs: layered,
		Help: "wait while the overlay is in use, at most `TIME`, such as 30m (default: fail with 75)"},
	{Name: "terminal.overlay_snapshot", In: func(p *jobs.Place) any { return &p.Overlay.Snapshot }, Task: true, Flag: "overlay-snapshot", Jobs: layered,
		Words: []string{jobs.SnapshotAuto, jobs.SnapshotAlways, jobs.SnapshotNever},
		Help:  "`WHEN` to work on a snapshot of the overlay and keep it only on success: auto, always or never (default auto)"},
	{Name: "terminal.keep", In: func(p *jobs.Place) any { return &p.Overlay.Keep }, Task: true, // the engine refuses it where it cannot be
		Words: []string{jobs.KeepFailed, jobs.KeepAlways}},
	{Name: "terminal.stage", In: func(p *jobs.Place) any { return &p.Stage }, Task: true, Flag: "stage",
		Words: []string{jobs.StageAuto, jobs.StageAlways, jobs.StageNever},
		Help:  "`WHEN` to copy the image to the node's own disk: auto (when it is faster), always or never (default auto)",
		Env:   "singularity: `WHEN` to copy the image to the node's own disk: auto (when it is faster), always or never (default auto)"},
	{Name: "terminal.bind", In: func(p *jobs.Place) any { return &p.Mounts }, Text: mounts, Task: true, Flag: "bind",
		Noun: "binds", Jobs: here, Envs: here, Differs: "other binds",
		Help: "mount a path of the machine that the job runs on: `SRC[:DST[:rw]]`, read-only unless rw; repeatable",
		Env:  "mount a path of the machine that it runs on: `SRC[:DST[:rw]]`, read-only unless rw; repeatable"},
	{Name: "terminal.env", In: func(p *jobs.Place) any { return &p.Env }, Over: variables, Task: true, Flag: "env", Differs: "other variables",
		Help: "set an environment variable: `NAME` (with its value here) or NAME=VALUE; repeatable"},
	{Name: "terminal.host_sockets", In: func(p *jobs.Place) any { return &p.HostSockets }},
	{Name: "terminal.scratch_dir", In: func(p *jobs.Place) any { return &p.Scratch }},
	{Name: "terminal.cwd", In: func(p *jobs.Place) any { return &p.Dir }, Differs: "another first directory"},
	{Name: "terminal.gpu", In: func(p *jobs.Place) any { return &p.GPU }, Flag: "gpu", Noun: "GPU flags", Envs: imaged, Differs: "another kind of GPU",
		Env: "make the node's GPUs available, of the `KIND` nvidia or amd"},
	{Name: "terminal.hostname", In: func(p *jobs.Place) any { return &p.Hostname }, Check: hostname, Task: true, Flag: "hostname",
		Noun: "a host name of its own", Jobs: here, Envs: here, Differs: "another host name",
		Help: "`NAME` of the host inside the container (default: the backend's choice)",
		Env:  "`NAME` of the host inside the container (default: the backend's choice)", Meaning: "the name of the host inside a container"},
	{Name: "terminal.per_task_workspace", In: func(p *jobs.Place) any { return &p.PerTask }, Task: true, Flag: "per-task-workspace", Promise: true,
		Noun: "a place for one task alone", Jobs: sandboxed, Envs: sandboxed,
		Env:     "be one task's alone: without --env it has a name of its own",
		Meaning: "whether each task has a place of its own, in which nothing is of another one", Allow: never},
	{Name: "terminal.auto_destroy", In: func(p *jobs.Place) any { return &p.Destroy }, Task: true, Flag: "discard", Promise: true,
		Noun: "throw-away files", Jobs: sandboxed, Envs: sandboxed,
		Env:     "remove its files when it stops, and look whether they are gone",
		Meaning: "whether the files of a place end with its use; berth looks, and records what it finds", Allow: never},
	{Name: "terminal.auto_destroy_after_seconds", In: func(p *jobs.Place) any { return &p.DestroyAfter }, Task: true, Flag: "discard-after", Promise: true,
		Noun: "an end of its files", Jobs: sandboxed, Envs: sandboxed, Differs: "another end of its files",
		Env:     "remove it `TIME` after it was made, such as 2h, whatever runs in it",
		Meaning: "how long a place is there at the latest, whatever runs in it", Allow: never},

	// What only flags of environments say.
	{Name: "terminal.fakeroot", In: func(p *jobs.Place) any { return &p.Fakeroot }, Flag: "fakeroot", Noun: "fakeroot", Envs: layered,
		Env: "singularity: be root inside, as far as the site allows"},
	{Name: "terminal.overlay_driver", In: func(p *jobs.Place) any { return &p.Overlay.Driver }, Flag: "overlay",
		Noun: "an overlay driver", Envs: layered, Differs: "another overlay driver", Any: jobs.BackendAuto,
		Env: "singularity: `DRIVER` of the writable layer: auto, kernel, fuse or ext3 (default auto)"},
	{Name: "docker.user", In: func(p *jobs.Place) any { return &dockerOf(p).User }, Flag: "user",
		Noun: "a user inside", Envs: daemons, Differs: "another docker user",
		Env: "docker: run as `UID:GID` (default: the image's user; yours with a writable --bind)"},
	{Name: "docker.pids", In: func(p *jobs.Place) any { return &dockerOf(p).Pids }, Most: most, Flag: "pids",
		Noun: "a limit of processes", Envs: daemons, Differs: "another limit of processes",
		Env: "docker: limit on the `NUMBER` of processes (default 256)"},
	{Name: "docker.volumes", In: func(p *jobs.Place) any { return &dockerOf(p).Volumes }, Flag: "volume",
		Noun: "volumes", Envs: daemons, Differs: "other volumes",
		Env: "docker: mount a `VOLUME`, as docker run --volume does; repeatable"},
	{Name: "docker.program", In: func(p *jobs.Place) any { return &dockerOf(p).Program }},
	{Name: "docker.shm", In: func(p *jobs.Place) any { return &dockerOf(p).Shm }, Differs: "another size of /dev/shm"},
	{Name: "docker.extra_args", In: func(p *jobs.Place) any { return &dockerOf(p).ExtraArgs },
		Noun: "docker arguments", Envs: daemons, Differs: "other docker arguments"},
	{Name: "external.from", In: func(p *jobs.Place) any { return &external(p).From }, Flag: "from",
		Noun: "a snapshot to begin with", Envs: programs, Differs: "another snapshot to begin with",
		Env: "cloud services: begin with the files of the snapshot `NAME` (berth env snapshots)"},
	{Name: "external.options", In: func(p *jobs.Place) any { return &external(p).Options }, Noun: "an option", Envs: programs,
		Text: func(p *jobs.Place) string { return strings.Repeat("set", min(1, len(p.External.Options))) }},

	{Name: "network.mode", In: func(p *jobs.Place) any { return &p.Network.Mode }, Read: func(v strict.Value) any { return networkMode(v) },
		Task: true, Flag: "network", Noun: "a network of its own", Jobs: sandboxed,
		Envs: sandboxed, Differs: "another network", Usual: jobs.NetworkOpen,
		Help: "network inside, of the `MODE` open, none, or allow: what --allow names (default open)",
		Env:  "network inside, of the `MODE` open, none, or allow: what --allow names (default open)"},
	{Name: "network.allow", In: func(p *jobs.Place) any { return &p.Network.Allow }, Read: reachable,
		Task: true, Flag: "allow", Noun: "a list of what can be reached", Jobs: sandboxed,
		Envs: sandboxed, Differs: "another list of what can be reached",
		Help: "reach `NAME` and nothing else but the other names, such as pypi.org, *.example.com or @pip; repeatable",
		Env:  "reach `NAME` and nothing else but the other names, such as pypi.org, *.example.com or @pip; repeatable"},
	{Name: "network.deny", In: func(p *jobs.Place) any { return &p.Network.Deny }, Read: refused, Adds: true,
		Task: true, Flag: "deny", Noun: "a list of what is refused", Jobs: sandboxed, Envs: sandboxed, Differs: "another list of what is refused",
		Help: "refuse `NAME`, whatever is allowed; repeatable",
		Env:  "refuse `NAME`, whatever is allowed; repeatable"},
	{Name: "network.opaque", In: func(p *jobs.Place) any { return &p.Network.Opaque }, Read: reachable,
		Task: true, Noun: "connections that are not looked at", Jobs: sandboxed,
		Envs: sandboxed, Differs: "another list of connections that are not looked at"},
	{Name: "network.transparent", In: func(p *jobs.Place) any { return &p.Network.Transparent },
		Words: []string{jobs.TransparentAuto, jobs.TransparentAlways, jobs.TransparentNever}, Any: jobs.TransparentAuto,
		Task: true, Noun: "a transparent network", Jobs: sandboxed, Envs: sandboxed, Differs: "another way to its network"},
	{Name: "network.max_up", In: func(p *jobs.Place) any { return &p.Network.MaxUp }, Task: true,
		Noun: "a bound of bytes to a name", Jobs: sandboxed, Envs: sandboxed, Differs: "another bound of bytes to a name"},
	{Name: "network.max_down", In: func(p *jobs.Place) any { return &p.Network.MaxDown }, Task: true,
		Noun: "a bound of bytes from a name", Jobs: sandboxed, Envs: sandboxed, Differs: "another bound of bytes from a name"},
	{Name: "network.max_time", In: func(p *jobs.Place) any { return &p.Network.MaxTime }, Task: true,
		Noun: "a bound of the time of a connection", Jobs: sandboxed, Envs: sandboxed,
		Differs: "another bound of the time of a connection"},
	{Name: "network.via", In: func(p *jobs.Place) any { return &p.Network.Via }}, // the user's alone: no key of task files

	{Name: "caps.max_requests", In: func(p *jobs.Place) any { return &p.Caps.Requests }, Most: most, Task: true, Flag: "max-requests",
		Noun: "a cap", Jobs: here, Envs: here, Differs: "another cap of requests",
		Help:    "end the task (10) that asks models more than this `NUMBER` of times; needs --credential",
		Env:     "refuse requests to models after this `NUMBER` of them, until berth env stop; needs --credential",
		Meaning: "most requests to models of a job with a credential", Allow: never, JobsOnly: true},
	{Name: "caps.max_tokens", In: func(p *jobs.Place) any { return &p.Caps.Tokens }, Most: mostTokens, Task: true, Flag: "max-tokens",
		Noun: "a cap", Jobs: here, Envs: here, Differs: "another cap of tokens",
		Help:    "end the task (10) that uses more than this `NUMBER` of tokens, in and out",
		Meaning: "most tokens, in and out", Allow: never, JobsOnly: true,
		Env: "the same after this `NUMBER` of tokens, in and out"},
	{Name: "caps.max_usd", In: func(p *jobs.Place) any { return &p.Caps.USD }, Read: func(v strict.Value) any { return USD(v) },
		Task: true, Flag: "max-usd",
		Text: func(p *jobs.Place) string { return dollars(p.Caps.USD) }, Noun: "a cap", Jobs: here, Envs: here, Differs: "another cap of US dollars",
		Help:    "end the task (10) that costs more than this `AMOUNT` of US dollars, by [prices] of the configuration",
		Env:     "the same after this `AMOUNT` of US dollars, by [prices] of the configuration",
		Meaning: "most US dollars, by `[prices]`", Allow: never, JobsOnly: true},
	{Name: "caps.max_turns", In: func(p *jobs.Place) any { return &p.Caps.Turns }, Most: most, Task: true, Flag: "max-turns", Noun: "a cap", Envs: none,
		Help:    "end the task (10) whose agent takes more than this `NUMBER` of turns, by its own events",
		Meaning: "most turns of an agent whose events tell them", Allow: never, JobsOnly: true},
	{Name: "caps.max_wall", In: func(p *jobs.Place) any { return &p.Caps.Wall }, Task: true, Flag: "max-wall", Noun: "a cap", Envs: none,
		Help:    "end the task (10) that runs for longer than `TIME`, such as 2h",
		Meaning: "longest time of the command of an agent, or of a job with a credential for a model", Allow: never, JobsOnly: true},
	{Name: "caps.max_idle", In: func(p *jobs.Place) any { return &p.Caps.Idle }, Task: true, Flag: "max-idle", Noun: "a cap", Envs: none,
		Help:    "end the task (10) that writes and asks nothing for `TIME`, such as 15m",
		Meaning: "longest time for which it writes and asks nothing", Allow: never, JobsOnly: true},
	{Name: "caps.max_output", In: func(p *jobs.Place) any { return &p.Caps.Output }, Task: true, Flag: "max-output", Noun: "a cap", Envs: none,
		Help: "end the task (10) that writes more than `SIZE` to its output, such as 1GiB", Meaning: "most output", Allow: never, JobsOnly: true},
	{Name: "caps.models", In: func(p *jobs.Place) any { return &p.Caps.Models }, Task: true, Noun: "a cap", Jobs: here, Envs: here},
	{Name: "caps.server_tools", In: func(p *jobs.Place) any { return &p.Caps.Tools }, Task: true, Noun: "a cap", Jobs: here, Envs: here},

	// A host is named as a whole.
	{Name: "terminal.host", In: func(p *jobs.Place) any { return &p.SSH }, Apart: true, Task: true, Flag: "host",
		Text: func(p *jobs.Place) string { return host(p).Host }, Noun: "a host", Envs: overSSH, Differs: "another host",
		Help: "backend ssh: the host, `[USER@]HOST[:PORT]` ($TERMINAL_SSH_HOST, _USER, _PORT)"},
	{Name: "ssh.user", In: func(p *jobs.Place) any { return &host(p).User }, Apart: true, Noun: sshWords, Envs: overSSH, Differs: "another ssh user"},
	{Name: "ssh.port", In: func(p *jobs.Place) any { return &host(p).Port }, Apart: true, Noun: sshWords, Envs: overSSH, Differs: "another ssh port"},
	{Name: "ssh.key", In: func(p *jobs.Place) any { return &host(p).Key }, Apart: true, Noun: sshWords, Envs: overSSH, Differs: "another ssh key"},
	{Name: "ssh.options", In: func(p *jobs.Place) any { return &host(p).Options }, Apart: true, Noun: sshWords,
		Envs: overSSH, Differs: "other ssh options"},

	{Name: "resources.cpus", In: func(p *jobs.Place) any { return &p.Resources.CPUs }, Most: most, Task: true, Flag: "cpus",
		Noun: "a CPU limit", Envs: sandboxed, Differs: "another number of CPUs",
		Help: "`NUMBER` of CPUs (default: the site's)", Env: "`NUMBER` of CPUs (default 1)",
		Meaning: "CPUs of jobs and of allocations", Allow: "limits"},
	{Name: "resources.memory", In: func(p *jobs.Place) any { return &p.Resources.Memory }, Task: true, Flag: "memory",
		Noun: "a memory limit", Jobs: notSSH, Envs: sandboxed, Differs: "another memory limit",
		Help:    "memory, a `SIZE` such as 8GiB; a bare number is MiB (default: the site's)",
		Env:     "memory, a `SIZE` such as 8GiB; a bare number is MiB (default 5GiB)",
		Meaning: "memory of jobs and of allocations", Allow: "limits"},
	{Name: "resources.disk", In: func(p *jobs.Place) any { return &p.Resources.Disk }, Task: true, Flag: "disk",
		Noun: "a disk limit", Jobs: func(c jobs.Capabilities) bool { return c.Layers || programs(c) },
		Envs: imaged, Differs: "another size of its layer",
		Help: "`SIZE` of the writable layer, such as 5GiB", Env: "`SIZE` of the writable layer, such as 50GiB",
		Meaning: "size of a job's writable layer", Allow: "limits", JobsOnly: true},
	{Name: "resources.time", In: func(p *jobs.Place) any { return &p.Resources.Time }, Task: true, Flag: "time", Differs: "another time limit", Held: true,
		Help:    "time limit, a `TIME` such as 30m or 2h; a bare number is seconds (default: the site's)",
		Env:     "slurm: time limit of an allocation, a `TIME` such as 4h; another allocation follows it",
		Meaning: "time limit of jobs and of allocations", Allow: "limits"},
	{Name: "resources.gpus", In: func(p *jobs.Place) any { return &p.Resources.GPUs },
		Read: func(v strict.Value) any { return GPUs(v) }, Task: true, Flag: "gpus",
		Jobs: func(c jobs.Capabilities) bool { return !c.OtherHost && !c.NoImage }, Differs: "other GPUs", Held: true,
		Help: "GPUs on each node, `N` or TYPE:N, such as 1 or a100:2", Env: "slurm: GPUs on each node, `N` or TYPE:N, such as 1 or a100:2",
		Meaning: "GPUs of jobs and of allocations", Allow: "limits"},
	{Name: "resources.nodes", In: func(p *jobs.Place) any { return &p.Resources.Nodes }, Most: most, Task: true, Flag: "nodes",
		Differs: "another number of nodes", Held: true,
		Help: "`NUMBER` of nodes (default 1)", Env: "slurm: `NUMBER` of nodes; commands run on the first (default 1)",
		Meaning: "nodes of jobs and of allocations", Allow: "limits"},
	{Name: "resources.ntasks", In: func(p *jobs.Place) any { return &p.Resources.Tasks }, Most: most, Task: true, Flag: "ntasks",
		Help:    "run the command this `NUMBER` of times in parallel, each in its own container (default 1)",
		Meaning: "how many times a job's command runs side by side", Allow: "limits", JobsOnly: true},

	{Name: "slurm.partition", In: func(p *jobs.Place) any { return &p.Slurm.Partition }, Check: spaceless, Task: true, Flag: "partition",
		Differs: "another partition", Held: true, Help: "partition, a `NAME` such as gpu (default: the site's)",
		Env: "partition, a `NAME` such as gpu (default: the site's)", Meaning: "Slurm's `--partition`"},
	{Name: "slurm.account", In: func(p *jobs.Place) any { return &p.Slurm.Account }, Check: spaceless, Task: true, Flag: "account",
		Differs: "another account", Held: true, Help: "account `NAME` to charge (default: yours)",
		Env: "account `NAME` to charge (default: yours)", Meaning: "Slurm's `--account`", Allow: "slurm"},
	{Name: "slurm.qos", In: func(p *jobs.Place) any { return &p.Slurm.QOS }, Check: spaceless, Task: true, Flag: "qos",
		Differs: "another QOS", Held: true, Help: "quality of service, a `NAME` (default: the site's)",
		Env: "quality of service, a `NAME` (default: the site's)", Meaning: "Slurm's `--qos`"},
	{Name: "slurm.constraint", In: func(p *jobs.Place) any { return &p.Slurm.Constraint }, Task: true, Flag: "constraint",
		Differs: "another constraint", Held: true, Help: "required node `FEATURES`, as for sbatch --constraint",
		Env: "required node `FEATURES`, as for sbatch --constraint", Meaning: "Slurm's `--constraint`"},
	{Name: "slurm.mpi", In: func(p *jobs.Place) any { return &p.Slurm.MPI }, Read: func(v strict.Value) any { return mpi(v) }, Task: true},
	{Name: "slurm.extra", In: func(p *jobs.Place) any { return &p.Slurm.Extra }, Adds: true, Check: options.Complaint,
		Of: options.What, Task: true, Flag: "slurm",
		Differs: "other options of the scheduler", Held: true, Help: "another option of sbatch, `--option=value`; repeatable",
		Env: "another option of sbatch, `--option=value`; repeatable", Meaning: "other long options of a submission to Slurm", Allow: "slurm"},
}

const sshWords = "an ssh user, port, key or option"

// dockerOf, host and external are these parts of a place, which gets them.
func dockerOf(p *jobs.Place) *jobs.DockerSpec {
	if p.Docker == nil {
		p.Docker = &jobs.DockerSpec{}
	}
	return p.Docker
}

func host(p *jobs.Place) *jobs.SSHSpec {
	if p.SSH == nil {
		p.SSH = &jobs.SSHSpec{}
	}
	return p.SSH
}

func external(p *jobs.Place) *jobs.ExternalSpec {
	if p.External == nil {
		p.External = &jobs.ExternalSpec{}
	}
	return p.External
}

// ImageName makes two ways to name an image the same.
func ImageName(s string) string {
	if s != "" && !strings.Contains(s, "://") {
		if abs, err := filepath.Abs(s); err == nil {
			if _, err := os.Stat(abs); err == nil {
				return abs
			}
		}
	}
	return strings.TrimPrefix(s, "docker://")
}

func dollars(u jobs.USD) string {
	if u == 0 {
		return ""
	}
	return u.String()
}

func mounts(p *jobs.Place) string {
	var out []string
	for _, m := range p.Mounts {
		mode := "ro"
		if m.Writable {
			mode = "rw"
		}
		out = append(out, m.Source+":"+m.Destination+":"+mode)
	}
	return strings.Join(out, " ")
}

// hostname complains about what the kernel, or a resolver, does not take for the name
// of a host.
func hostname(s string) string {
	if len(s) > 63 || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.") != "" || strings.Trim(s, "-.") != s {
		return "must be a host name: letters, digits, dashes and dots, these not first or last, at most 63"
	}
	return ""
}

func spaceless(s string) string {
	if strings.ContainsAny(s, " \u00a0") {
		return "holds white space"
	}
	return ""
}
