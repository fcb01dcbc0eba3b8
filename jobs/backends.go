package jobs

import "slices"

// Names of the backends that are part of berth, and the words that stand for one of
// them.
const (
	BackendAuto        = "auto" // the first that contains a task and works here
	BackendSingularity = "singularity"
	BackendDocker      = "docker"
	BackendBwrap       = "bwrap"
	BackendSSH         = "ssh"
	BackendLocal       = "local"
	// BackendExternal is the word for all backends that are programs of their own,
	// where one is meant and its name does not matter.
	BackendExternal = "external"
)

// Backends with a part of their own: what tasks on a cluster use where none is named,
// and what runs commands of berth's own on the bare host.
const (
	BackendOfClusters = BackendSingularity
	BackendBare       = BackendLocal
)

// HintNoBackend is what to do where none can be used.
const HintNoBackend = "install apptainer (Debian, Fedora: from their archives or apptainer.org), or docker; " +
	"or run on the machine's own programs, contained by bubblewrap: --backend bwrap; or without containment, with your own rights: --backend local"

// Capabilities are what makes one backend differ from another.
type Capabilities struct {
	// Bare is that there is no containment: commands have all rights of a user.
	Bare bool
	// OtherHost is that commands run on a machine that berth does not choose and that
	// has none of this one's files: a workspace goes there and comes back at the end.
	OtherHost bool
	// NeedsHost is that this machine is named by the user, and reached by ssh.
	NeedsHost bool
	// Layers is that images are files or directories here, made by berth from
	// references and templates, with a writable layer of berth's over them.
	Layers bool
	// NoImage is that there is no image: the host's own programs are seen inside.
	NoImage bool
	// ImageNames is that an image is a name, which the backend resolves by itself.
	ImageNames bool
	// Fresh is that each command line opens a container of its own, in which nothing
	// is of the one before.
	Fresh bool
	// Daemon is that a service of the machine makes the containers, outside of the
	// cgroup of a scheduler's job, and holds their limits.
	Daemon bool
}

// Steps reports whether places of the backend can be in an allocation, in each of
// several tasks of a job.
func (c Capabilities) Steps() bool { return !c.OtherHost && !c.Daemon }

// Leaves reports whether the next attempt finds what a task left outside of its
// workspace.
func (c Capabilities) Leaves() bool { return !c.OtherHost && !c.Fresh }

// Here reports whether a backend contains commands by itself, on this machine.
func (c Capabilities) Here() bool { return !c.Bare && !c.OtherHost }

// Service reports whether places are sandboxes of a service, which a program reaches.
func (c Capabilities) Service() bool { return c.OtherHost && !c.NeedsHost }

// Enters reports whether a container is namespaces of this user's on this machine,
// which another process can enter. bubblewrap nests one user namespace in another, and
// its mounts belong to the outer one.
func (c Capabilities) Enters() bool { return c.Here() && !c.Daemon && !c.NoImage }

// backends are those that are part of berth, in the order in which people are shown
// them.
var backends = []struct {
	name string
	can  Capabilities
}{
	{BackendSingularity, Capabilities{Layers: true}},
	{BackendDocker, Capabilities{ImageNames: true, Fresh: true, Daemon: true}},
	{BackendBwrap, Capabilities{NoImage: true, Fresh: true}},
	{BackendSSH, Capabilities{Bare: true, OtherHost: true, NeedsHost: true}},
	{BackendLocal, Capabilities{Bare: true}},
}

// Backends returns the names of the backends that are part of berth.
func Backends() (names []string) {
	for _, b := range backends {
		names = append(names, b.name)
	}
	return names
}

// CapabilitiesOf returns those of a backend; one that is no part of berth is a program
// of its own, whose places are elsewhere.
func CapabilitiesOf(backend string) Capabilities {
	for _, b := range backends {
		if b.name == backend {
			return b.can
		}
	}
	return Capabilities{OtherHost: true}
}

// Can returns what the place's backend can do.
func (p *Place) Can() Capabilities { return CapabilitiesOf(p.Backend) }

// KnownPrograms returns those that are programs of their own, and that berth comes with.
func KnownPrograms() []string { return []string{"modal", "daytona"} }

// MeantBackend returns the backend that people mean who name its program, or "".
func MeantBackend(word string) string {
	if word == "apptainer" {
		return BackendSingularity
	}
	return ""
}

// isBackendWord reports whether a word has a meaning where a backend is named, though
// no program of that name is meant.
func isBackendWord(word string) bool {
	return slices.Contains([]string{BackendAuto, BackendExternal, "podman"}, word) || MeantBackend(word) != "" || slices.Contains(Backends(), word)
}
