package queue

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"berth/jobs"
)

// Config is what the queue needs to know.
type Config struct {
	// Dir holds the queue; parts for this host and boot are made inside.
	Dir string
	// Script writes the job script with this remark at its head. It is given,
	// because the program on the nodes waits in the queue too and writes none.
	Script func(l jobs.Launch, remark string) (string, error)
	// Node is the program that waits as "NODE queue-wait ..."; "" is the
	// first word of the launch, which is berth-node.
	Node string
	// Environ is what the little of the environment that a job gets is
	// taken from, as NAME=VALUE; nil is this process's own.
	Environ []string
	// CPUs and Memory bound the jobs that run at once; zero is what this
	// process may use of the machine (sched_getaffinity(2), MemTotal).
	CPUs   int
	Memory jobs.Bytes
}

// Queue is the local scheduler. It is safe for concurrent use, by several
// processes too.
type Queue struct {
	cfg    Config
	memory func() jobs.Bytes // Config.Memory: every start of berth makes a queue, and few ask the machine
}

var _ jobs.Scheduler = (*Queue)(nil)

// New returns the queue in a directory. It touches nothing.
func New(cfg Config) *Queue {
	if cfg.Environ == nil {
		cfg.Environ = os.Environ()
	}
	if cfg.CPUs == 0 {
		cfg.CPUs = runtime.NumCPU()
	}
	q := &Queue{cfg: cfg, memory: sync.OnceValue(machineMemory)}
	if cfg.Memory != 0 {
		q.memory = func() jobs.Bytes { return cfg.Memory }
	}
	return q
}

// Name returns "local".
func (*Queue) Name() string { return jobs.SchedulerLocal }

// Check tells what the machine has; the queue itself needs nothing.
func (q *Queue) Check(context.Context) jobs.Checked {
	if _, err := place(); err != nil {
		return jobs.Checked{Health: jobs.Undetected, Reason: err.Error(), Hint: "the local queue needs Linux and /proc"}
	}
	return jobs.Checked{Health: jobs.Healthy, Reason: fmt.Sprintf("this machine: %s, %d MiB of memory", jobs.Plural(q.cfg.CPUs, "CPU"), q.memory().MiB())}
}

// Render returns the job script.
func (q *Queue) Render(l jobs.Launch) (string, error) {
	return q.cfg.Script(l, "# run on this machine by berth's own queue")
}

// want is a job's share of the machine.
func want(r jobs.Resources) (cpus int, memory jobs.Bytes) {
	return max(r.CPUs, 1), r.Memory
}

// fits refuses what this machine can never give; a job that waits for ever
// would be worse.
func (q *Queue) fits(r jobs.Resources) error {
	rejected := func(hint, format string, args ...any) error {
		return &jobs.Error{Kind: jobs.KindRejected, Msg: fmt.Sprintf(format, args...), Hint: hint}
	}
	cpus, memory := want(r)
	switch {
	case r.CPUs < 0 || r.Memory < 0:
		return rejected("", "a resource is negative")
	case cpus > q.cfg.CPUs:
		return rejected("ask for fewer, or use a cluster: --scheduler slurm", "the job asks for %s and this machine has %d",
			jobs.Plural(cpus, "CPU"), q.cfg.CPUs)
	case memory > q.memory():
		return rejected("ask for less, or use a cluster: --scheduler slurm",
			"the job asks for %d MiB of memory and this machine has %d", memory.MiB(), q.memory().MiB())
	case r.Nodes > 1:
		return rejected("use a cluster: --scheduler slurm", "the job asks for %d nodes and the local queue has this machine only", r.Nodes)
	case r.GPUs != "":
		return rejected(`leave it out; a profile with gpu = "nvidia" or "amd" shows the task all GPUs of the machine`,
			"the local queue cannot give out GPUs")
	}
	return nil
}

// jobEnv is the environment that a job starts with: enough to find programs,
// the user's session and their container daemon, and nothing else.
func jobEnv(environ []string) []string {
	var env []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		switch name {
		case "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS",
			"DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY", "CONTAINER_HOST":
			env = append(env, e)
		}
	}
	return env
}

// here is the part of the queue's directory for this host and boot.
func (q *Queue) here() (dir string, at location, err error) {
	at, err = place()
	if err != nil {
		return "", at, &jobs.Error{Kind: jobs.KindInfra, Msg: "the local queue does not work here", Err: err, Hint: "use a cluster: --scheduler slurm"}
	}
	return filepath.Join(q.cfg.Dir, at.dir()), at, nil
}
