package engine

import (
	"cmp"
	"context"
	"os"
	"os/user"
	"time"

	"berth/internal/images"
	"berth/internal/node/notice"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

// Engine holds the parts, which [Open] puts together: a program may replace those that
// are exported before it uses the engine. All of them are safe for concurrent use.
type Engine struct {
	Store      *store.Store
	Schedulers []jobs.Scheduler // in the order in which "auto" tries them
	Backends   []jobs.Backend   // likewise
	// Program returns the backend that is a program of this name, installed or
	// not, the same for the same name; nil for a word that can be none.
	Program func(name string) Program
	// Programs returns the names of those that are installed.
	Programs func() []string
	// Templates is the directory of the user's own workspace templates, or "".
	Templates string
	// Node puts the program for the nodes in place and returns its path.
	Node func() (string, error)
	// Aside starts the program for the nodes with these words as a process of its
	// own, which goes on when this one ends; what it says is appended to the
	// file log. When it is nil, what is to be done aside is done in place.
	Aside func(log string, words ...string) error
	// Getenv is the caller's environment.
	Getenv func(string) (string, bool)
	Now    func() time.Time
	// Terminal says that a person sits at this process's terminal, who may be
	// asked for passwords and codes by the programs that want them.
	Terminal bool
	// Sleep waits, or returns the context's error.
	Sleep func(context.Context, time.Duration) error

	git *workspace.Git
	// sites gives the cluster behind a login host, the same for the same host;
	// nil when there are none.
	sites func(jobs.SSHSpec) (site, error)
	// meter shows how far what an environment is opened with is, see [Options].Meter; it may be nil.
	meter func(what string, done, of int64)
	// images is the cache of images; nil when there is none.
	images *images.Cache
	guards guards
	// credentials are those of the user's configuration; nil is none.
	credentials func() []jobs.Credential
	// webhook posts a notice; nil in the program for the nodes.
	webhook notice.Webhook
}

// Choice is what the caller picked for this call, beside the task.
type Choice struct {
	Offline bool   // no registry is asked: a reference is what the cache has of it
	ID      string // of the job to be planned; "" is a fresh one
	// NoChildImages keeps images of [submit] from being fetched: they must be here.
	NoChildImages bool
	// Notify is how the user is told that the job has ended; nil is not at all.
	Notify *jobs.Notify
	// Auto are the backends that "auto" tries; none is all that contain and have images.
	Auto []string
	// MaxWaiting is how many results may wait for a verdict before a task is refused that
	// would make one more; 0 is any number. WaitingBy says where that is set, for people.
	MaxWaiting int
	WaitingBy  string
	// ImageLater is that the image's file need not stand at its path yet.
	ImageLater bool
}

// Sleep is the real clock's wait, for [Engine.Sleep].
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (e *Engine) scheduler(name string) (jobs.Scheduler, error) {
	for _, s := range e.Schedulers {
		if s.Name() == name {
			return s, nil
		}
	}
	return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "unknown scheduler " + name, Hint: "the schedulers are: " + names(e.Schedulers)}
}

func (e *Engine) backend(name string) (jobs.Backend, error) {
	for _, b := range e.Backends {
		if b.Name() == name {
			return b, nil
		}
	}
	if e.Program != nil {
		if b := e.Program(name); b != nil {
			return b, nil
		}
	}
	return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "unknown backend " + name,
		Hint: "the backends are: auto " + names(e.Backends) + " modal daytona, and programs of your own: berth help backend-protocol"}
}

func names[T interface{ Name() string }](list []T) string {
	s := ""
	for i, v := range list {
		if i > 0 {
			s += " "
		}
		s += v.Name()
	}
	return s
}

// Identity is whom jobs of this process's user run as.
func Identity() jobs.Identity { return identity() }

// identity is who submits, as far as it can be told without a name service
// that this static program cannot ask.
func identity() jobs.Identity {
	id := jobs.Identity{User: cmp.Or(os.Getenv("USER"), os.Getenv("LOGNAME")), Home: os.Getenv("HOME"), Shell: os.Getenv("SHELL")}
	if u, err := user.Current(); err == nil {
		id.User, id.Home = u.Username, u.HomeDir
		if h := os.Getenv("HOME"); h != "" {
			id.Home = h
		}
	}
	if id.Shell == "" {
		id.Shell = "/bin/sh"
	}
	return id
}
