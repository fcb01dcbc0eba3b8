package docker

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/sys/pattern"
	"berth/jobs"
)

// volume is a word as for --volume, read.
type volume struct {
	source      string // an absolute path, or the name of a volume, or "" for one without a name
	destination string
	options     []string
}

var (
	volumeName    = pattern.Lazy(`^[a-zA-Z0-9][a-zA-Z0-9_.-]+$`)
	volumeOptions = []string{"ro", "rw", "z", "Z", "nocopy", "private", "rprivate", "slave", "rslave", "delegated", "cached", "consistent"}
)

// parseVolume reads SOURCE:DESTINATION[:OPTIONS] or DESTINATION. A relative
// source is refused, because it is relative to no known directory; so are the
// propagations that let mounts made inside appear on the host.
func parseVolume(word string) (v volume, err error) {
	fail := func(what string) (volume, error) {
		return volume{}, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the volume %q %s", word, what),
			Hint: "write /on/the/host:/inside:ro, or NAME:/inside"}
	}
	if err := jobs.CheckText("a volume", word); err != nil {
		return volume{}, err
	}
	parts := strings.Split(word, ":")
	switch len(parts) {
	case 1:
		v.destination = parts[0]
	case 2, 3:
		v.source, v.destination = parts[0], parts[1]
		if v.source == "" {
			return fail("has no source")
		}
		if len(parts) == 3 {
			v.options = strings.Split(parts[2], ",")
		}
	default:
		return fail("has more than two colons")
	}
	for _, o := range v.options {
		if !slices.Contains(volumeOptions, o) {
			return fail(fmt.Sprintf("has the option %q, which is none of: %s", o, strings.Join(volumeOptions, " ")))
		}
	}
	if !path.IsAbs(v.destination) {
		return fail("has a destination that is not an absolute path")
	}
	if err := checkDestination(v.destination); err != nil {
		return volume{}, err
	}
	switch {
	case v.source == "", volumeName().MatchString(v.source):
		return v, nil
	case !path.IsAbs(v.source):
		return fail("has a source that is neither an absolute path nor a volume's name")
	case isSocket(v.source):
		return volume{}, socketError(v.source)
	}
	return v, nil
}

// sockets are where daemons listen that give whoever can write to them root
// on the host.
var sockets = []string{
	"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/var/run/containerd/containerd.sock",
	"/run/podman/podman.sock", "/var/run/podman/podman.sock", "/run/crio/crio.sock",
}

// isSocket tells whether a path is, by its name, such a socket or a directory
// that has it.
func isSocket(p string) bool {
	p = path.Clean(p)
	switch path.Base(p) {
	case "docker.sock", "podman.sock", "containerd.sock", "crio.sock":
		return true
	}
	return slices.ContainsFunc(sockets, func(s string) bool { return within(s, p) })
}

// within tells whether p is dir or stands below it.
func within(p, dir string) bool { return dir == "/" || p == dir || strings.HasPrefix(p, dir+"/") }

func socketError(source string) error {
	return &jobs.Error{Kind: jobs.KindConfig,
		Msg: fmt.Sprintf("%s cannot be mounted: it is, or holds, the socket of a container daemon, "+
			"by which everything on this host can be changed", source),
		Hint: "mount the directories that are needed, one by one"}
}

// exposes is isSocket that looks at this machine, too: links are followed, and
// the daemon that the program talks to may listen elsewhere.
func exposes(source string, getenv func(string) string) bool {
	if isSocket(source) {
		return true
	}
	real, err := filepath.EvalSymlinks(source)
	if err != nil {
		return false // docker refuses what does not exist
	}
	if fi, err := os.Stat(real); err == nil && fi.Mode()&os.ModeSocket != 0 && strings.Contains(filepath.Base(real), "docker") {
		return true
	}
	listen := slices.Clone(sockets)
	for _, name := range []string{"DOCKER_HOST", "CONTAINER_HOST"} {
		if sock, ok := strings.CutPrefix(getenv(name), "unix://"); ok {
			listen = append(listen, sock)
		}
	}
	if dir := getenv("XDG_RUNTIME_DIR"); dir != "" {
		listen = append(listen, filepath.Join(dir, "docker.sock"), filepath.Join(dir, "podman", "podman.sock"))
	}
	for _, s := range listen {
		at, err := filepath.EvalSymlinks(s)
		if err == nil && within(at, real) {
			return true
		}
	}
	return false
}
