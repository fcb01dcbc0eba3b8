package doctor

import (
	"context"
	"os"
	"os/user"
	"time"

	"berth/jobs"
	"berth/slurm/examine"
)

// Checks is the table of all checks, in the order in which findings are shown.
// docs/doctor.md has the same rows.
func Checks() []Check {
	const layers = 20 * time.Second // starts containers, on a machine that may be busy
	return []Check{
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

		{ID: "apptainer.program", Scope: Backend, Name: "singularity", run: checkBox, Limit: 20 * time.Second,
			About: "apptainer or singularity is on PATH and runs; else the module that has it"},
		{ID: "apptainer.flaws", Scope: Backend, Name: "singularity: version", run: needsBox(checkBoxFlaws), Limit: 20 * time.Second,
			About: "its version, against known flaws; below 1.4.4 ext3 layers are not to be trusted"},
		{ID: "apptainer.mode", Scope: Backend, Name: "singularity: rights", run: needsBox(checkBoxMode), Limit: 20 * time.Second,
			About: "setuid root, or user namespaces: which layers are available follows from it"},
		{ID: "apptainer.conf", Scope: Backend, Name: "singularity: conf", run: needsBox(checkBoxConf), Limit: 20 * time.Second,
			About: "directives of apptainer.conf or singularity.conf with which berth does not work, or not wholly"},
		{ID: "overlay.kernel", Scope: Backend, Name: "layer: kernel", Limit: layers,
			run: checkLayer(jobs.DriverKernel, "an overlay of the kernel, mounted by berth: containers start fastest",
				"containers use another layer; nothing is to be done"),
			About: "two containers over a layer of berth's own mount see the same after directories of the image were removed and moved"},
		{ID: "overlay.fuse", Scope: Backend, Name: "layer: fuse", Limit: layers,
			run: checkLayer(jobs.DriverFuse, "a directory through fuse-overlayfs, which jobs use without a profile",
				`jobs need overlay = "kernel" or "ext3" in a profile, whichever works`),
			About: "the same over a directory through fuse-overlayfs, the layer of jobs without a profile"},
		{ID: "overlay.ext3", Scope: Backend, Name: "layer: ext3", Limit: layers,
			run:   checkLayer(jobs.DriverExt3, "a sparse ext3 image", "no layer of a bounded size is available, and none on a network file system"),
			About: "the same over an ext3 image, for layers of a size, on network file systems, and with a setuid Apptainer"},
		{ID: "apptainer.fakeroot", Scope: Backend, Name: "fakeroot", run: needsBox(checkFakeroot), Limit: layers,
			About: "root inside: which of its ways, by trying"},
		{ID: "apptainer.network", Scope: Backend, Name: "no network", run: needsBox(checkNoNetwork), Limit: layers,
			About: "a container without a network, by trying"},
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
			About: "/dev/fuse can be opened: images and layers of an Apptainer that is not setuid are mounted by it"},
		{ID: "fuse.helpers", Scope: Machine, Name: "FUSE helpers", run: checkFUSEHelpers, Limit: 20 * time.Second,
			About: "squashfuse_ll, fuse-overlayfs and fuse2fs, where Apptainer is not setuid"},
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
			About: "Lmod or Environment Modules, and which modules have Apptainer"},
		{ID: "git", Scope: Machine, Name: "git", run: checkGit,
			About: "git and its version; tasks with a workspace need it on both sides"},
		{ID: "gpus", Scope: Machine, Name: "GPUs", run: checkDevices,
			About: "the GPUs of this machine"},
		{ID: "network", Scope: Machine, Name: "network", run: checkNetwork,
			About: "a default route, proxies; a connection to the profile's proxy, or to what --contact names, and to no other host"},
		{ID: "logout", Scope: Machine, Name: "logout", run: checkLogout,
			About: "KillUserProcesses of logind: whether warm environments outlive a logout"},
	}
}

// ofSlurm is a check of the Slurm that is here.
func ofSlurm(id, name string, c examine.Check, limit time.Duration) Check {
	return Check{ID: id, Scope: Scheduler, Name: name, About: c.About, Limit: limit, Submit: true,
		run: func(ctx context.Context, l *look) []Finding { return c.Run(ctx, l.slurm) }}
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
