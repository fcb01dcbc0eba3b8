package doctor

import (
	"os"
	"path/filepath"

	"berth/internal/sys/run"
	"berth/jobs"
	"berth/slurm/examine"
)

// Where is what is to be looked at, and as what: the choices that berth would
// make there. Its exported values travel to other machines as JSON.
type Where struct {
	Version   int           `json:"version"`
	Where     string        `json:"where"`               // "here", "login" or "node"
	Scheduler string        `json:"scheduler,omitempty"` // "" is chosen
	Backend   string        `json:"backend,omitempty"`   // "" is chosen
	SSH       *jobs.SSHSpec `json:"ssh,omitempty"`       // the host of backend ssh
	Login     *jobs.SSHSpec `json:"login,omitempty"`     // the host whose Slurm it is; nil is this machine
	Profile   jobs.Profile  `json:"profile,omitzero"`
	State     string        `json:"state,omitempty"`   // "" is the default there
	Contact   string        `json:"contact,omitempty"` // HOST:PORT that nodes are to reach
	Broken    []Finding     `json:"broken,omitempty"`  // what the caller has found wrong with what is configured

	// On starts programs; nil is this machine.
	On jobs.Starter `json:"-"`
	// Getenv is the environment; nil is this process's.
	Getenv func(string) string `json:"-"`
	// Root stands before every path of the system that is read; "" is /.
	Root string `json:"-"`
	// Keys are further variables for backends that are programs, secrets.
	Keys []string `json:"-"`
	// Options are those of the configuration for the backend of a name that is a
	// program; nil is none.
	Options func(backend string) map[string]string `json:"-"`
	// Builtin are the command lines of backends that are programs and need none to
	// be installed, by their names.
	Builtin map[string][]string `json:"-"`
	// Program is what is bound into containers as the guest; "" is this one.
	Program string `json:"-"`
}

func (w Where) withDefaults() Where {
	if w.On == nil {
		w.On = run.Local{}
	}
	if w.Getenv == nil {
		w.Getenv = os.Getenv
	}
	if w.Where == "" {
		w.Where = "here"
	}
	if w.State == "" {
		w.State = DefaultState(w.Getenv)
	}
	if w.Program == "" {
		w.Program, _ = os.Executable()
	}
	return w
}

// OnNode tells whether this is a compute node, from which no job is submitted.
func (w Where) OnNode() bool { return w.Where == "node" }

// submits tells whether jobs go from here to nodes, which may differ in what a
// profile says of them.
func (w Where) submits() bool {
	return !w.OnNode() && w.Scheduler != jobs.SchedulerLocal && w.Profile.Scheduler != jobs.SchedulerLocal && examine.Submits(w.look)
}

// DefaultState is the state directory when none is named: $BERTH_HOME, else
// $XDG_STATE_HOME/berth, else ~/.local/state/berth; "" without a home.
func DefaultState(getenv func(string) string) string {
	if h := getenv("BERTH_HOME"); h != "" {
		return h
	}
	if h := getenv("XDG_STATE_HOME"); filepath.IsAbs(h) {
		return filepath.Join(h, "berth")
	}
	if h := getenv("HOME"); filepath.IsAbs(h) {
		return filepath.Join(h, ".local", "state", "berth")
	}
	return ""
}

// path is where a path of the system is read.
func (w Where) path(p string) string { return filepath.Join(w.Root+"/", p) }

// look finds a program on PATH, or returns "".
func (w Where) look(name string) string {
	for _, dir := range filepath.SplitList(w.Getenv("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		p := filepath.Join(dir, name)
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return p
		}
	}
	return ""
}
