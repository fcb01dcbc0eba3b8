package doctor

import (
	"context"
	"os"
	"os/user"
	"slices"
	"time"

	boxes "berth/apptainer/examine"
	"berth/slurm/examine"
)

// Checks is the table of all checks, in the order in which findings are shown.
// docs/doctor.md has the same rows.
func Checks() []Check {
	const asked = 20 * time.Second // of the container program; it starts containers, on a machine that may be busy
	var box []Check
	for _, c := range slices.Concat(boxes.Asked, boxes.Tried) {
		box = append(box, ofBox(Backend, c, asked))
	}
	return slices.Concat([]Check{
		ofSlurm("slurm.programs", "Slurm", examine.Programs, 15*time.Second),
		ofSlurm("slurm.controller", "slurmctld", examine.Controller, 0),
		ofSlurm("slurm.clock", "clock", examine.Clock, 0),
		ofSlurm("slurm.accounting", "accounting", examine.Accounting, 0),
		ofSlurm("slurm.account", "account", examine.Account, 0),
		ofSlurm("slurm.partitions", "partition", examine.Partitions, 0),
		ofSlurm("slurm.limits", "limits of Slurm", examine.Limits, 0),
		ofSlurm("slurm.ending", "end of jobs", examine.Ending, 0),
		ofSlurm("slurm.memory", "memory of jobs", examine.Memory, 0),
		ofSlurm("slurm.tmp", "/tmp of jobs", examine.Tmp, 0),
		ofSlurm("slurm.gpus", "GPUs of Slurm", examine.GPUs, 0),
	}, box, []Check{
		{ID: "bwrap.program", Scope: Backend, Name: "bwrap", run: checkBwrap, Limit: 15 * time.Second,
			About: "bubblewrap: a place without an image can be made"},
		{ID: "docker.daemon", Scope: Backend, Name: "docker", run: checkDocker, Limit: 15 * time.Second,
			About: "docker or podman: the daemon answers, is rootless or not, which limits it holds; runc, against known flaws"},
		{ID: "ssh.program", Scope: Backend, Name: "ssh", run: checkSSH,
			About: "the ssh program, and whether an agent has keys"},
		{ID: "ssh.host", Scope: Backend, Name: "ssh host", run: checkSSHHost, Limit: 15 * time.Second,
			About: "the host that is configured is reached without asking a person, and its key is known"},
		{ID: "program", Scope: Backend, Name: "programs", run: checkPrograms, Limit: programLimit,
			About: "each backend that is a program berth-backend-NAME: it is found and answers, its key works, its quotas"},

		{ID: "namespaces", Scope: Machine, Name: "user namespaces", run: checkNamespaces,
			About: "one is made; else max_user_namespaces, or AppArmor, says why not"},
		{ID: "fuse", Scope: Machine, Name: "FUSE", run: checkFUSE,
			About: "/dev/fuse can be opened: images and layers are mounted by it where the container program is not setuid"},
		ofBox(Machine, boxes.Helpers, asked),
		{ID: "limits", Scope: Machine, Name: "limits", run: checkHeld,
			About: "what limits memory and CPUs: the Slurm job's cgroup, the user's systemd, or nothing"},
		{ID: "scratch", Scope: Machine, Name: "scratch", run: checkScratch,
			About: "the directory for what attempts throw away: its file system, room, number of files"},
		{ID: "state", Scope: Machine, Name: "state", run: checkState,
			About: "the state directory ($BERTH_HOME): private, room, number of files, link(2), programs run there, locks"},
		{ID: "home", Scope: Machine, Name: "home", run: checkHome,
			About: "the home directory: its file system, room, quota"},
		{ID: "purge", Scope: Machine, Name: "purge", run: checkPurge,
			About: "after what time systemd-tmpfiles removes files there; what a site's own scripts do cannot be read"},
		{ID: "image", Scope: Machine, Name: "image", run: checkImage,
			About: "the profile's image is there and is a SIF"},
		{ID: "modules", Scope: Machine, Name: "modules", run: checkModules, Limit: 15 * time.Second,
			About: "Lmod or Environment Modules, and which modules have the container program"},
		{ID: "git", Scope: Machine, Name: "git", run: checkGit,
			About: "git and its version; tasks with a workspace need it on both sides"},
		{ID: "gpus", Scope: Machine, Name: "GPUs", run: checkDevices,
			About: "the GPUs of this machine"},
		{ID: "network", Scope: Machine, Name: "network", run: checkNetwork,
			About: "a default route, proxies; a connection to the profile's proxy, or to what --contact names, and to no other host"},
		{ID: "way", Scope: Machine, Name: "way out", run: checkWay,
			About: "on a node: whether what --contact names, else example.org:443, " +
				"is reached from there, or by a proxy; and so the profile's network.via"},
		{ID: "logout", Scope: Machine, Name: "logout", run: checkLogout,
			About: "KillUserProcesses of logind: whether warm environments outlive a logout"},
	})
}

// ofSlurm is a check of the Slurm that is here.
func ofSlurm(id, name string, c examine.Check, limit time.Duration) Check {
	return Check{ID: id, Scope: Scheduler, Name: name, About: c.About, Limit: limit, Submit: true,
		run: func(ctx context.Context, l *look) []Finding { return c.Run(ctx, l.slurm) }}
}

// ofBox is a check of the container program that is here.
func ofBox(scope Scope, c boxes.Check, limit time.Duration) Check {
	return Check{ID: c.ID, Scope: scope, Name: c.Name, About: c.About, Limit: limit,
		run: func(ctx context.Context, l *look) []Finding { return c.Run(ctx, l.box) }}
}

// IDs of what is concluded from all findings, and of what the caller found.
const (
	IDScheduler     = "scheduler"
	IDBackend       = "backend"
	IDConfiguration = "configuration"
	IDNode          = "node"
)

// user is who this is.
func (l *look) user() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return or(l.Getenv("USER"), or(l.Getenv("LOGNAME"), "uid "+itoa(os.Getuid())))
}
