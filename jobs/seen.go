package jobs

import "strings"

// Seen is what a guest has found, from inside, of the place that it was started
// in.
type Seen struct {
	// The guest's namespaces, as readlink /proc/self/ns/NAME shows them.
	MountNamespace string `json:"mount_namespace,omitempty"`
	PIDNamespace   string `json:"pid_namespace,omitempty"`
	NetNamespace   string `json:"net_namespace,omitempty"`
	UserNamespace  string `json:"user_namespace,omitempty"`
	// Devices are the network devices inside, but for the loopback.
	Devices []string `json:"devices,omitempty"`
	// Tried says that connections which must fail were tried: to an address outside, the
	// metadata address, the machine's loopback and an abstract socket of it. Reached are
	// those that did not fail; nothing runs then.
	Tried        bool     `json:"tried,omitempty"`
	Reached      []string `json:"reached,omitempty"`
	NoNewPrivs   bool     `json:"no_new_privs"`
	Capabilities string   `json:"capabilities,omitempty"` // effective ones, in hexadecimal
	// What commands have, which is less: the capabilities that they can get, and
	// whether their system calls are filtered.
	CommandCapabilities string `json:"command_capabilities,omitempty"`
	Filtered            bool   `json:"filtered,omitempty"`
	// WritableCgroups is where a tree of cgroups can be written; nothing runs then.
	WritableCgroups string `json:"writable_cgroups,omitempty"`
	// Looked are the kinds of sockets that were looked for.
	Looked []string `json:"looked,omitempty"`
	// Sockets are those that were found, and that the guest could connect to. In
	// a receipt they are strangers', or allowed by the configuration.
	Sockets []Socket `json:"sockets,omitempty"`
	// Abstract are names of other abstract sockets with a listening process: in the
	// host's network they can be reached from every container. At most 32.
	Abstract []string `json:"abstract,omitempty"`
}

// Socket is one by which a task could leave its container.
type Socket struct {
	Path  string `json:"path"` // inside; an abstract one begins with '@'
	What  string `json:"what"` // whose it is: "munge", "Slurm"
	Mount string `json:"mount,omitempty"`
	// Own says that it asks who connects, and so matters only where the user's
	// own process listens.
	Own bool `json:"own,omitempty"`
}

// MostSockets bounds how many are judged. Where a guest finds more, nothing is
// run.
const MostSockets = 200

// Abstract tells whether the socket has no path: no mount has brought it in.
func (s Socket) Abstract() bool { return strings.HasPrefix(s.Path, "@") }
