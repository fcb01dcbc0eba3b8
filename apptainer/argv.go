package apptainer

import (
	"slices"

	"berth/jobs"
)

// GuestPath is where the guest program stands inside.
const GuestPath = "/.berth/node"

// Backend makes containers with Apptainer or SingularityCE.
type Backend struct {
	// On starts the programs that [Backend.Check] asks; nil is only good for
	// Argv.
	On jobs.Starter
}

// Name returns "singularity".
func (*Backend) Name() string { return jobs.BackendSingularity }

// Level returns the containment of a container with the host's network.
func (*Backend) Level() jobs.Level { return jobs.LevelFS }

// Argv returns the container's command line. Every flag is one that all
// supported versions know, unless the profile names a newer version:
//
//   - --containall, --no-home: own /tmp, HOME, PID and IPC namespaces; the
//     host's home directory and the site's bind paths stay out.
//   - --cleanenv, --no-eval: nothing of the caller's environment, and values
//     are not evaluated by a shell.
//   - --workdir: /tmp and /var/tmp on real scratch; without it they share a
//     64 MiB tmpfs ("sessiondir max size" in apptainer.conf).
//   - --mount: the only bind syntax that takes ':' and ',' in a path, by CSV
//     quoting.
//   - the last of them cover what a task must not see or write, see [Covers].
//   - --overlay, or with the driver "kernel" --writable, when what stands for
//     the image is an overlay that is mounted already. That is so in a user
//     namespace, where a setuid starter has no power: hence --userns.
//   - --fakeroot, --hostname (which takes a UTS namespace), --net --network none: only
//     where asked for.
func (*Backend) Argv(in jobs.Invocation, guestArgs []string) ([]string, error) {
	return argvOver(in, nil, guestArgs)
}

// argvOver is Argv with what is mounted over all else.
func argvOver(in jobs.Invocation, last []jobs.Mount, guestArgs []string) ([]string, error) {
	argv := []string{"apptainer", "exec", "--containall", "--no-home", "--cleanenv", "--no-eval"}
	argv = append(argv, cwdFlag(in.Profile.Versions.Apptainer), "/tmp")
	argv = append(argv, "--workdir", jobs.PlaceholderScratch)
	if in.Overlay.Driver == jobs.DriverKernel {
		argv = append(argv, "--userns")
	} else {
		argv = append(argv, "--overlay", jobs.PlaceholderOverlay)
	}
	if in.Fakeroot {
		argv = append(argv, "--fakeroot")
	}
	if in.Hostname != "" {
		argv = append(argv, "--hostname", in.Hostname)
	}
	if isolated, err := in.Isolated(); err != nil {
		return nil, err
	} else if isolated {
		argv = append(argv, "--net", "--network", "none")
	}
	switch in.GPU {
	case "":
	case "nvidia":
		argv = append(argv, "--nv")
	case "amd":
		argv = append(argv, "--rocm")
	default:
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "unknown kind of GPU " + in.GPU, Hint: `the profile's key is gpu = "nvidia" or gpu = "amd"`}
	}
	mounts := slices.Concat([]jobs.Mount{{Source: in.Guest, Destination: GuestPath}}, in.Mounts, coversOf(in.Place), last)
	for _, m := range mounts {
		w, err := m.Word()
		if err != nil {
			return nil, err
		}
		argv = append(argv, "--mount", w)
	}
	if in.Overlay.Driver == jobs.DriverKernel {
		argv = append(argv, "--writable")
	}
	argv = append(argv, jobs.PlaceholderImage, GuestPath)
	return append(argv, in.GuestWords(guestArgs)...), nil
}

// cwdFlag is --cwd from Apptainer 1.2 and SingularityCE 4.0 on; the older
// spelling is known to every version of both, newer ones accept it silently.
// Versions 2 and 3 are Singularity's, from before the two parted.
func cwdFlag(version string) string {
	if versionAtLeast(version, 1, 2) && !versionAtLeast(version, 2, 0) || versionAtLeast(version, 4, 0) {
		return "--cwd"
	}
	return "--pwd"
}
