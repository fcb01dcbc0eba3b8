package config

import (
	"slices"

	"berth/internal/agents/adapters"
	"berth/internal/config/keys"
	"berth/internal/config/strict"
	"berth/internal/config/task"
	"berth/internal/workspace/review"
	"berth/jobs"
)

// Groups of backends, for Key.Places.
var (
	contained   = []string{jobs.BackendSingularity, jobs.BackendDocker, jobs.BackendBwrap}
	singularity = []string{jobs.BackendSingularity}
	docker      = []string{jobs.BackendDocker}
	overSSH     = []string{jobs.BackendSSH}
	sandboxed   = []string{jobs.BackendSingularity, jobs.BackendDocker, jobs.BackendBwrap, programs}
	imaged      = []string{jobs.BackendSingularity, jobs.BackendDocker, programs}
	program     = []string{programs}
	modal       = []string{"modal"}
	daytona     = []string{"daytona"}
)

// Upper bounds that only a slip of the finger passes.
const most = 1 << 20

var placeKeys = []Key{
	{Name: "target", Env: []string{"BERTH_TARGET"}, Flag: "target", Jobs: true,
		Meaning: "the target that is used when none is named", Check: targetName, Allow: free},
	{Name: "profile", Env: []string{"BERTH_PROFILE"}, Flag: "profile", Jobs: true,
		Meaning: "the profile: a name, or a path with a slash (not in a project)", Allow: "paths", Safe: plainName, Check: profileName},
	{Name: "scheduler", Flag: "scheduler", Type: Word, Words: append([]string{"auto"}, jobs.Schedulers()...), Default: "auto", Jobs: true,
		Meaning: "who decides when and where; `slurm` holds environments in an allocation, too", Allow: "backend", Safe: safeScheduler},
	{Name: "offline", Env: []string{"BERTH_OFFLINE"}, Flag: "offline", Type: Bool, Default: "false", Jobs: true,
		Meaning: "ask no registry: a reference is what the cache of images has of it", Allow: "network", Safe: onOrSame},
}

// networkKeys are what a project's file and a profile say as bounds, but for the last two.
var networkKeys = []Key{
	{Name: "network.mode", Old: "terminal.network", Flag: "network", Type: Word, Words: append(slices.Clone(jobs.NetworkModes), "host"),
		Default: jobs.NetworkOpen, Jobs: true, Part: "network.mode",
		Meaning: "what can be reached from inside: everything that its machine reaches, what `network.allow` names, or nothing",
		Allow:   "network", Safe: noWider, Bound: true, Check: networkMode},
	{Name: "network.allow", Old: "terminal.allow", Flag: "allow", Type: List, Jobs: true,
		Part: "network.allow", Meaning: "names, addresses and bundles (`*.example.com`, " +
			"`10.0.0.7:5432`, `@pip`) of the mode `allow`, which a list alone is, too",
		Allow: "network", Safe: noWiderList, Bound: true, Check: allowed},
	{Name: "network.deny", Flag: "deny", Type: List, Jobs: true,
		Part: "network.deny", Meaning: "what is refused though `network.allow` names it; the task's own is added",
		Allow: "network", Safe: noFewer, Bound: true, Check: denied},
	{Name: "network.opaque", Type: List, Jobs: true,
		Part: "network.opaque", Meaning: "connections whose first bytes are not looked at, " +
			"because they do not begin with a server's name (`db.example.org:5432`)",
		Allow: "network", Safe: subset, Bound: true, Check: allowed},
	{Name: "network.transparent", Type: Word, Words: []string{jobs.TransparentAuto, jobs.TransparentAlways, jobs.TransparentNever},
		Default: jobs.TransparentAuto, Jobs: true,
		Part: "network.transparent", Meaning: "whether programs reach it without settings: where that can be done, always (else 78), " +
			"or never: by `http_proxy` and such alone", Allow: never},
	{Name: "network.max_up", Type: Size, Jobs: true,
		Part: "network.max_up", Meaning: "most bytes to each name or address of a list, " +
			"of a job's attempt or an opening of an environment", Allow: never},
	{Name: "network.max_down", Type: Size, Jobs: true, Part: "network.max_down", Meaning: "most bytes from it", Allow: never},
	{Name: "network.max_time", Type: Time, Jobs: true, Part: "network.max_time", Meaning: "how long one connection may be open", Allow: never},
	{Name: "network.build.mode", Type: Word, Words: jobs.NetworkModes, Default: jobs.NetworkOpen, Jobs: true, NotEnvs: true,
		Part:    "network.build.mode",
		Meaning: "what image builds reach; `network.build.allow` is their list, and what a task file or a flag says of them comes first",
		Allow:   never},
	{Name: "network.build.allow", Type: List, Jobs: true, NotEnvs: true,
		Part: "network.build.allow", Meaning: "names, addresses and bundles that image builds reach", Allow: never, Check: allowed},
	{Name: "network.via", Default: jobs.ViaNode, Jobs: true,
		Part: "network.via",
		Meaning: "who resolves names and connects: `node`, `login`, or a proxy (`proxy:http://HOST:PORT`, " +
			"`proxy:https://HOST:PORT`, `proxy:socks5h://HOST:PORT`)",
		Allow: never, Check: via},
}

// allowed and denied complain about words that are no rules.
func allowed(v strict.Value, got any) any { return rules(v, got, false) }

func denied(v strict.Value, got any) any { return rules(v, got, true) }

func rules(v strict.Value, got any, deny bool) any {
	for _, item := range v.Items("names") {
		if !keys.Rule(item, item.Source(), deny) || !task.Wildcard(item) {
			return nil
		}
	}
	return got
}

func via(v strict.Value, got any) any {
	if why := keys.Via(shown(got)); why != "" {
		v.Failf("", "%s", why)
		return nil
	}
	return got
}

// networkMode takes the word that Hermes has for the open one.
func networkMode(_ strict.Value, got any) any {
	if got == "host" {
		return jobs.NetworkOpen
	}
	return got
}

var terminalKeys = []Key{
	{Name: "terminal.backend", Env: []string{"TERMINAL_ENV"}, Flag: "backend", Type: Word, Words: backendWords, Default: jobs.BackendAuto, Jobs: true,
		Meaning: "what makes environments; `auto` is the first of `terminal.auto` that can be used", Allow: "backend", Safe: safeBackend},
	{Name: "terminal.auto", Type: List, Jobs: true,
		Meaning: "the backends that `auto` tries, in this order: of `singularity`, `docker` and `bwrap`; without it the first two",
		Allow:   "backend", Safe: subset, Check: autoBackends},
	{Name: "terminal.cwd", Env: []string{"TERMINAL_CWD"},
		Meaning: "where sessions begin; `.` with `local` is the current directory. " +
			"In a container a path of another machine (`/home/`, `/Users/`, `C:\\`, a relative one) is left out with a note",
		Allow: free, Check: noTilde},
	{Name: "terminal.timeout", Env: []string{"TERMINAL_TIMEOUT"}, Flag: "timeout", Type: Time, Default: "180s",
		Meaning: "ends a command of `berth exec`; 0 never", Allow: free},
	{Name: "terminal.lifetime_seconds", Env: []string{"TERMINAL_LIFETIME_SECONDS"}, Flag: "lifetime", Type: Time, Default: "300s",
		Meaning: "how long an environment stays warm without use; 0 for ever", Allow: "limits", Safe: bounded},
	{Name: "terminal.container_cpu", Env: []string{"TERMINAL_CONTAINER_CPU"}, Flag: "cpus", Type: Count, Most: most, Default: "1", Places: sandboxed,
		Part: "resources.cpus", Meaning: "CPUs of an environment; 0 is no limit", Allow: "limits", Safe: bounded},
	{Name: "terminal.container_memory", Env: []string{"TERMINAL_CONTAINER_MEMORY"}, Flag: "memory", Type: Size, Default: "5120MiB", Places: sandboxed,
		Part: "resources.memory", Meaning: "memory of an environment; 0 is no limit", Allow: "limits", Safe: bounded},
	{Name: "terminal.container_disk", Env: []string{"TERMINAL_CONTAINER_DISK"}, Flag: "disk", Type: Size, Default: "0", Places: imaged,
		Part: "resources.disk", Meaning: "size of the writable layer; 0 is no limit. With singularity a size takes the overlay driver ext3",
		Allow: "limits", Safe: bounded},
	{Name: "terminal.container_persistent", Env: []string{"TERMINAL_CONTAINER_PERSISTENT"}, Type: Bool, Default: "true", Places: sandboxed,
		Meaning: "false throws an environment's files away when it stops", Allow: "limits", Safe: onOrSame},
	{Name: "terminal.persistent_shell", Env: []string{"TERMINAL_PERSISTENT_SHELL", "TERMINAL_SSH_PERSISTENT", "TERMINAL_LOCAL_PERSISTENT"},
		Type: Bool, Default: "true",
		Meaning: "false: what a command changes in its shell (directory, variables) is gone with it", Allow: free},
	{Name: "terminal.gpu", Flag: "gpu", Type: Word, Words: []string{"nvidia", "amd"}, Places: imaged,
		Part: "terminal.gpu", Meaning: "the machine's GPUs inside environments", Allow: free},
	{Name: "terminal.bind", Flag: "bind", Type: List, Places: contained, Jobs: true,
		Part: "terminal.bind", Meaning: "`SOURCE[:DESTINATION[:rw]]` of this machine to show inside", Allow: "paths", Safe: subset, Check: binds},
	{Name: "terminal.host_sockets", Type: List, Places: contained, Jobs: true,
		Part: "terminal.host_sockets", Meaning: "sockets of this machine that may be reached inside: what they are (`tmux`, `a display`), or a path",
		Allow: never, Safe: subset},
	{Name: "terminal.env_passthrough", Flag: "forward", Type: List, Jobs: true,
		Meaning: "names of your variables that every command gets; their values are not recorded", Allow: "env", Safe: subset, Check: variableNames},
	{Name: "terminal.scratch_dir", Env: []string{"TERMINAL_SCRATCH_DIR"}, Places: contained, Jobs: true,
		Meaning: "node-local disk for what is thrown away, as in a profile", Allow: "paths", Safe: same, Check: scratchDir},
	{Name: "terminal.singularity_image", Env: []string{"TERMINAL_SINGULARITY_IMAGE"}, Flag: "image", Type: Image,
		Places: singularity, Jobs: true,
		Meaning: "a SIF, an unpacked image, or a reference such as `docker://debian:12`; a word with a tag (`debian:12`) is one, too",
		Allow:   "paths", Safe: safeImage},
	{Name: "terminal.template", Old: "terminal.workspace_template", Flag: "template", Places: singularity, Jobs: true,
		Meaning: "a workspace template (`berth template ls`), in place of an image", Allow: "env", Safe: safeTemplate, Check: templateName},
}

var dockerKeys = []Key{
	{Name: "terminal.docker_image", Env: []string{"TERMINAL_DOCKER_IMAGE"}, Flag: "image", Places: docker, Jobs: true,
		Meaning: "a name such as `debian:12`", Allow: free, Check: dockerImage},
	{Name: "terminal.docker_forward_env", Env: []string{"TERMINAL_DOCKER_FORWARD_ENV"}, Flag: "forward", Type: List, Places: docker,
		Meaning: "as `env_passthrough`, for docker", Allow: "env", Safe: subset, Check: variableNames},
	{Name: "terminal.docker_env", Env: []string{"TERMINAL_DOCKER_ENV"}, Flag: "set", Type: Pairs, Places: docker,
		Part: "terminal.env", Meaning: "variables for every command; they are recorded, so no secrets", Allow: free, Check: variablePairs},
	{Name: "terminal.docker_volumes", Env: []string{"TERMINAL_DOCKER_VOLUMES"}, Flag: "volume", Type: List, Places: docker,
		Part: "docker.volumes", Meaning: "volumes, as for `docker run -v`", Allow: "paths", Safe: subset, Check: volumes},
	{Name: "terminal.docker_mount_cwd_to_workspace", Env: []string{"TERMINAL_DOCKER_MOUNT_CWD_TO_WORKSPACE"}, Flag: "mount-cwd",
		Type: Bool, Default: "false", Places: docker,
		Meaning: "bind the current directory to /workspace, writable, and begin there", Allow: "paths", Safe: offOrSame},
	{Name: "terminal.docker_run_as_host_user", Env: []string{"TERMINAL_DOCKER_RUN_AS_HOST_USER"}, Type: Bool, Default: "false", Places: docker,
		Meaning: "your own user and group id inside", Allow: "docker", Safe: offOrSame},
	{Name: "terminal.docker_network", Env: []string{"TERMINAL_DOCKER_NETWORK"}, Type: Bool, Default: "true", Places: docker,
		Jobs: true, Meaning: "false is `network.mode = \"none\"`, for docker", Allow: "network", Safe: offOrSame},
	{Name: "terminal.docker_extra_args", Env: []string{"TERMINAL_DOCKER_EXTRA_ARGS"}, Type: List, Places: docker,
		Part: "docker.extra_args", Meaning: "flags for `docker run`; those that break the containment are refused",
		Allow: "docker", Safe: subset, Check: dockerFlags},
	{Name: "terminal.docker_shm_size", Env: []string{"TERMINAL_DOCKER_SHM_SIZE"}, Default: "1GiB", Places: docker,
		Part: "docker.shm", Meaning: "size of /dev/shm: `1g`, or as other sizes", Allow: free, Check: dockerSize},
	{Name: "terminal.docker_binary", Env: []string{"HERMES_DOCKER_BINARY"}, Type: Path, Places: docker,
		Part: "docker.program", Meaning: "the docker or podman program", Allow: never},
}

var sshKeys = []Key{
	{Name: "terminal.ssh_host", Env: []string{"TERMINAL_SSH_HOST"}, Flag: "host", Places: overSSH, Jobs: true,
		Meaning: "the host: a name that your ssh knows, or `[USER@]HOST[:PORT]`", Allow: "ssh", Safe: same, Check: sshHost},
	{Name: "terminal.ssh_user", Env: []string{"TERMINAL_SSH_USER"}, Places: overSSH, Jobs: true,
		Meaning: "the user there", Allow: "ssh", Safe: same, Check: sshUser},
	{Name: "terminal.ssh_port", Env: []string{"TERMINAL_SSH_PORT"}, Type: Count, Least: 1, Most: 65535, Places: overSSH, Jobs: true,
		Meaning: "the port there", Allow: "ssh", Safe: same},
	{Name: "terminal.ssh_key", Env: []string{"TERMINAL_SSH_KEY"}, Flag: "ssh-key", Type: Path, Places: overSSH, Jobs: true,
		Meaning: "an identity file", Allow: "ssh", Safe: same},
}

// cloudKeys belong to backends that are programs of their own. The names are
// those that users of Modal and Daytona know already.
var cloudKeys = []Key{
	{Name: "terminal.external", Type: Tables, Places: program, Jobs: true,
		Meaning: "options of backends that are programs, text all of them: `[terminal.external.NAME]`", Allow: never},
	{Name: "terminal.modal_mode", Env: []string{"TERMINAL_MODAL_MODE"}, Type: Word, Words: []string{"auto", "direct", "managed"}, Places: modal, Jobs: true,
		Meaning: "`auto` and `direct` are Modal itself, with your own key; `managed` is not available", Allow: never},
	{Name: "terminal.modal_image", Env: []string{"TERMINAL_MODAL_IMAGE"}, Places: modal,
		Jobs: true, Meaning: "a registry image, or an `im-...` id", Allow: free},
	{Name: "terminal.daytona_image", Env: []string{"TERMINAL_DAYTONA_IMAGE"}, Places: daytona, Jobs: true, Meaning: "a registry image", Allow: free},
	{Name: "terminal.daytona.api_url", Env: []string{"DAYTONA_API_URL"}, Places: daytona, Jobs: true,
		Meaning: "the service's address", Allow: never, Check: httpsURL},
	{Name: "terminal.daytona.api_token", Env: []string{"DAYTONA_API_KEY"}, Places: daytona, Jobs: true, Secret: true,
		Meaning: "the key; better in the variable", Allow: never},
	{Name: "terminal.daytona.workspace_template", Places: daytona, Jobs: true,
		Meaning: "the snapshot that a sandbox is made from, in place of an image", Allow: never},
	{Name: "terminal.daytona.per_task_workspace", Type: Bool, Places: daytona, Jobs: true, Part: "terminal.per_task_workspace",
		Meaning: "`terminal.per_task_workspace`, for Daytona alone", Allow: free},
	{Name: "terminal.daytona.auto_destroy", Type: Bool, Places: daytona, Jobs: true, Part: "terminal.auto_destroy",
		Meaning: "`terminal.auto_destroy`, for Daytona alone", Allow: "limits", Safe: offOrSame},
	{Name: "terminal.daytona.auto_destroy_after_seconds", Type: Time, Places: daytona, Jobs: true,
		Part:    "terminal.auto_destroy_after_seconds",
		Meaning: "`terminal.auto_destroy_after_seconds`, for Daytona alone", Allow: "limits", Safe: bounded},
}

// mcpKeys say what agents may do by way of berth mcp.
var mcpKeys = []Key{
	{Name: "mcp.confirm", Type: Word, Words: []string{"always", "never"}, Default: "always", Jobs: true, NotEnvs: true,
		Meaning: "whether a person confirms each job that an agent submits " +
			"with `berth mcp --enable submit`; `never` is of contained tasks alone", Allow: never},
}

// notifyKeys say how the user is told that jobs have ended.
var notifyKeys = []Key{
	{Name: "notify.mail", Jobs: true, NotEnvs: true,
		Meaning: "an address, or a user of the machine, for the machine's `sendmail`", Check: mailAddress, Allow: never},
	{Name: "notify.command", Type: List, Jobs: true, NotEnvs: true,
		Meaning: "a program and its arguments, which reads the notice as JSON; it is recorded, so no secrets", Check: noticeCommand, Allow: never},
	{Name: "notify.webhook_file", Type: Path, Jobs: true, NotEnvs: true,
		Meaning: "a file of mode 0600 with the URL to which the notice is posted as JSON", Allow: never},
}

// reviewKeys say what is asked of reviews: docs/agents.md.
var reviewKeys = []Key{
	{Name: "review.by", Type: Word, Words: []string{"any", byOther}, Default: "any", NotEnvs: true,
		Meaning: "`other`: a result is merged when another account than its author's has approved it, by `berth review export` and `import`",
		Allow:   never},
	{Name: "review.agent", NotEnvs: true,
		Meaning: "the agent that `berth review run` has look at a result where no `--agent` is given; `--agent none` runs the checks",
		Check:   agentName, Allow: never},
	{Name: "review.push", NotEnvs: true,
		Meaning: "the remote of your repositories to which `berth review merge` pushes the target " +
			"where no `--push` is given; `--push none` does not", Check: remoteName, Allow: never},
	{Name: "review.max_waiting_reviews", Type: Count, Least: 1, Most: most, Jobs: true, NotEnvs: true,
		Meaning: "a task with an agent or a workspace is refused while so many results wait for a verdict", Allow: never},
}

// NoReviewer is the word for no agent, where one is configured.
const NoReviewer = "none"

// NoPush is the word for no remote, where one is configured.
const NoPush = "none"

// remoteName complains about what names no remote.
func remoteName(v strict.Value, got any) any {
	if err := review.CheckRemote(shown(got)); err != nil {
		v.Fail(err)
		return nil
	}
	return got
}

// agentName complains about what names no agent: its adapter is looked for when it is used.
func agentName(v strict.Value, got any) any {
	if err := adapters.CheckName(shown(got)); err != nil {
		v.Fail(err)
		return nil
	}
	return got
}

// byOther is the word that demands the approval of another account.
const byOther = "other"

// maxKeys bound what a project may ask for.
var maxKeys = []Key{
	{Name: "max.cpus", Type: Count, Least: 1, Most: most, Meaning: "most CPUs that a project's file may ask for", Allow: never},
	{Name: "max.memory", Type: Size, Least: 1, Meaning: "most memory that it may ask for", Allow: never},
	{Name: "max.disk", Type: Size, Least: 1, Meaning: "most disk that it may ask for", Allow: never},
	{Name: "max.time", Type: Time, Least: 1, Meaning: "longest time that it may ask for", Allow: never},
	{Name: "max.gpus", Type: Count, Least: 1, Most: most, Meaning: "most GPUs that it may ask for", Allow: never},
	{Name: "max.nodes", Type: Count, Least: 1, Most: most, Meaning: "most nodes that it may ask for", Allow: never},
}
