package jobs

import "context"

// Placeholders that stand as whole words in a container's argv until the
// runner knows their values on the node. It changes nothing else.
const (
	HoleImage   = "{image}"
	HoleOverlay = "{overlay}"
	HoleScratch = "{scratch}"
)

// Place is what a backend needs to know to write the command line that opens
// an environment for an attempt.
type Place struct {
	Name      string      // of the attempt in its scheduler; a container may carry it
	Dir       string      // working directory inside
	Image     string      // as the user named it; only shown
	Overlay   OverlaySpec // driver settled
	Mounts    []Mount
	Resources Resources
	User      string   // UID:GID that owns the mounts, where who runs inside can be chosen
	GPU       string   // "", "nvidia" or "amd"
	Network   string   // "" is the host's, "none"
	Fakeroot  bool     // root inside, by ids of the user's own
	Apptainer string   // version known from the profile, or ""
	Guest     string   // path of berth-node on the host; bound read-only where there is a container
	SSH       *SSHSpec // the host of backend ssh; else nil
}

// Backend makes environments. A backend that needs no stream of its own gives
// an argv that runs the guest in the environment, over stdin and stdout.
type Backend interface {
	// Name is the word of the configuration: "singularity", "local".
	Name() string
	// Level is the containment that the backend gives.
	Level() Level
	// Check tells whether the backend can be used on this machine.
	Check(ctx context.Context) Checked
	// Argv returns the command line that opens the environment and runs the
	// guest there with guestArgs. It is pure; values known only on the node
	// stand as the Hole words.
	Argv(p Place, guestArgs []string) ([]string, error)
}
