package docker

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"berth/jobs"
)

// Where the guest program stands inside.
const (
	guestDir  = "/.berth"
	guestPath = "/.berth/node"
)

// DefaultPids bounds the processes of a container.
const DefaultPids = 256

// capabilities are what root inside needs to install software and to be a
// supervisor; everything else is dropped. KILL is the guest's: it ends the
// processes of users that root has become.
var capabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "SETGID", "SETUID", "KILL"}

// hardened are the flags that every container has. With a user of its own
// nothing inside is root, and with no new privileges nothing becomes it, so it
// has no capability at all.
//
//   - --log-driver none: what the guest says is berth's control stream, which
//     the daemon would write to its disk; attached streams work without.
//   - --stop-signal: the guest heeds its stream and not TERM, and a daemon that
//     shuts down would wait for it.
//   - --no-healthcheck: an image's check would run beside the guest, unseen.
//   - --tmpfs: bounded; /run and /var/tmp hold no programs. Where something
//     else is mounted there (taken), that is it.
func hardened(user string, taken map[string]bool) []string {
	argv := []string{
		"--log-driver", "none", "--stop-signal", "KILL", "--no-healthcheck", "--restart", "no",
		"--cap-drop", "ALL",
	}
	if root := strings.SplitN(user, ":", 2)[0]; user == "" || root == "0" || root == "root" {
		for _, c := range capabilities {
			argv = append(argv, "--cap-add", c)
		}
	}
	if user != "" {
		argv = append(argv, "--user", user)
	}
	argv = append(argv, "--security-opt", "no-new-privileges")
	for _, t := range [][2]string{{"/tmp", "exec,size=512m"}, {"/var/tmp", "noexec,size=256m"}, {"/run", "noexec,size=64m"}} {
		if !taken[t[0]] {
			argv = append(argv, "--tmpfs", t[0]+":rw,nosuid,nodev,"+t[1])
		}
	}
	return append(argv, "--workdir", "/", "--entrypoint", guestPath)
}

// cpuFlags and memoryFlags are the limits as flags; 0 is none. Memory and swap
// together are held to the memory, so that there is no swap.
func cpuFlags(n int) []string {
	if n == 0 {
		return nil
	}
	return []string{"--cpus", strconv.Itoa(n)}
}

func memoryFlags(b jobs.Bytes, swap bool) []string {
	if b == 0 {
		return nil
	}
	argv := []string{"--memory", strconv.FormatInt(int64(b), 10)}
	if swap {
		argv = append(argv, "--memory-swap", strconv.FormatInt(int64(b), 10))
	}
	return argv
}

func gpuFlags(kind string) ([]string, error) {
	switch kind {
	case "":
		return nil, nil
	case "nvidia":
		return []string{"--gpus", "all"}, nil
	case "amd":
		return []string{"--device", "/dev/kfd", "--device", "/dev/dri"}, nil
	}
	return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "unknown kind of GPU " + kind, Hint: `gpu = "nvidia" or gpu = "amd"`}
}

// placeFlags are those for what a place says in the same way of jobs and environments.
func placeFlags(p *jobs.Place) (argv []string, err error) {
	if p.Hostname != "" {
		argv = append(argv, "--hostname", p.Hostname)
	}
	if isolated, err := p.Isolated(); err != nil {
		return nil, err
	} else if isolated {
		argv = append(argv, "--network", "none")
	}
	gpu, err := gpuFlags(p.GPU)
	return append(argv, gpu...), err
}

// Argv returns the command line of an attempt: a container that is removed
// when it ends, unless it may be kept. The image has been pulled by then. Its place has no files that
// persist but the mounts, and runs as p.User, whose clone is mounted.
func (*Backend) Argv(p jobs.Invocation, guestArgs []string) ([]string, error) {
	return runArgv(names[0], nil, p, guestArgs)
}

// runArgv is Argv with the program that is here, and what this daemon needs.
func runArgv(program string, flags []string, p jobs.Invocation, guestArgs []string) ([]string, error) {
	if err := checkImage(p.Image); err != nil {
		return nil, err
	}
	if p.Name == "" {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "a container needs a name"}
	}
	argv := append([]string{program, "run"}, flags...)
	if p.Overlay.Keep == "" {
		argv = append(argv, "--rm")
	}
	argv = append(argv, "-i", "--name", p.Name, "--label", labelVersion+"=1", "--label", labelAttempt+"="+p.Name)
	taken := map[string]bool{}
	for _, m := range p.Mounts {
		if err := checkMount(m); err != nil {
			return nil, err
		}
		taken[path.Clean(m.Destination)] = true
	}
	argv = append(argv, hardened(p.User, taken)...)
	argv = append(argv, "--pids-limit", strconv.Itoa(DefaultPids))
	argv = append(argv, cpuFlags(p.Resources.CPUs)...)
	argv = append(argv, memoryFlags(p.Resources.Memory, true)...)
	for _, flags := range []func() ([]string, error){
		func() ([]string, error) { return placeFlags(&p.Place) },
		func() ([]string, error) {
			return mountFlags(append([]jobs.Mount{{Source: p.Guest, Destination: guestPath}}, p.Mounts...))
		},
	} {
		f, err := flags()
		if err != nil {
			return nil, err
		}
		argv = append(argv, f...)
	}
	argv = append(argv, p.Image)
	return append(argv, guestArgs...), nil
}

// checkMount refuses a bind of the user's that would give the host away, or
// cover what is berth's.
func checkMount(m jobs.Mount) error {
	if isSocket(m.Source) {
		return socketError(m.Source)
	}
	return checkDestination(m.Destination)
}

// mountFlags writes binds as --mount, the one syntax that takes ':' and ','
// in paths.
func mountFlags(mounts []jobs.Mount) ([]string, error) {
	var argv []string
	for _, m := range mounts {
		w, err := m.Word()
		if err != nil {
			return nil, err
		}
		argv = append(argv, "--mount", w)
	}
	return argv, nil
}

// checkDestination refuses the places inside that are berth's or the kernel's.
func checkDestination(d string) error {
	clean := path.Clean(d)
	kept := clean == "/" || slices.ContainsFunc([]string{guestDir, "/proc", "/sys", "/dev"}, func(k string) bool {
		return clean == k || strings.HasPrefix(clean, k+"/")
	})
	if !kept || clean == "/dev/shm" {
		return nil
	}
	return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("nothing may be mounted at %q inside a container", d),
		Hint: "choose another destination, such as /data"}
}

// checkImage refuses what cannot be a reference to an image and would be taken
// for a flag, or for a file that docker cannot run.
func checkImage(image string) error {
	if err := jobs.CheckText("the image", image); err != nil {
		return err
	}
	switch {
	case image == "":
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "no image is named", Hint: "--image debian:12"}
	case strings.HasPrefix(image, "-"), strings.ContainsAny(image, " \t"):
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q cannot name an image", image), Hint: "write for example debian:12"}
	case strings.Contains(image, "://"):
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the image %q is not one of the backend docker", image),
			Hint: "write for example debian:12, without a scheme"}
	case strings.HasPrefix(image, "/"), strings.HasPrefix(image, "."), strings.HasSuffix(image, ".sif"):
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the image %q is a file, and the backend docker takes references", image),
			Hint: "write for example debian:12; or --backend singularity"}
	}
	return nil
}
