//go:build !berthnode

package engine

import (
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"berth/backends/all"
	"berth/backends/daytona"
	"berth/backends/external"
	"berth/backends/ssh"
	"berth/internal/config"
	"berth/internal/images"
	"berth/internal/images/fetch"
	"berth/internal/node/nodebin"
	"berth/internal/remote/replica"
	"berth/internal/sys/run"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

// Options say how an engine is put together. Zero values are what the command berth has.
type Options struct {
	// Home is the state directory, which the nodes have to see. "" is $BERTH_HOME, else
	// $XDG_STATE_HOME/berth, else ~/.local/state/berth.
	Home string
	// ReadOnly makes no directory: the engine plans and renders.
	ReadOnly bool
	// Config is the user's configuration, see [ReadConfig]; nil is none. It gives what
	// of the next four is nil.
	Config *Config
	// Profile is the site's, whose cache of images, scratch and proxy are used.
	Profile *jobs.Profile
	// Variables returns what backends that are programs get beside this process's own
	// variables, "NAME=value": a service's key.
	Variables func() []string
	// Settings returns the options of a backend that is a program, by its name.
	Settings func(backend string) map[string]string
	// Credentials returns those of the configuration: environments that have some are
	// opened with their keys.
	Credentials func() []jobs.Credential
	// Progress is told, for people, what takes long, and Meter how many bytes of what are
	// done; "" is that it is over. They may be nil.
	Progress func(line string)
	Meter    func(what string, done, of int64)
	// Terminal says that a person sits at this process's terminal, who may be asked for
	// passwords and codes.
	Terminal bool
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// Open puts an engine together: the schedulers, backends and images of this machine, with
// the records of a state directory. There is nothing to close; environments have a Close.
//
// The program's main function has to begin with [Main].
func Open(ctx context.Context, o Options) (*Engine, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := o.settle(); err != nil {
		return nil, err
	}
	open := store.Open
	if o.ReadOnly {
		open = store.At
	}
	st, err := open(o.Home)
	if err != nil {
		return nil, err
	}
	e := assemble(st, o.Variables, o.Settings)
	e.images, err = fetch.Cache(st.Home(), run.Local{}, fetch.Options{Progress: o.Progress, Meter: o.meter(), Profile: o.Profile})
	if err != nil {
		return nil, err
	}
	e.Node = func() (string, error) { return nodebin.Install(st.Bin()) }
	e.Aside = func(log string, words ...string) error {
		program, err := e.Node()
		if err == nil {
			_, err = run.Detach(append([]string{program}, words...), append(os.Environ(), "BERTH_HOME="+st.Home()), "/", log)
		}
		return err
	}
	e.webhook = postNotice
	e.Programs, e.sites = programs, o.sites(asking(st))
	e.credentials = o.Credentials
	e.Templates, e.Terminal, e.Now, e.meter = config.TemplatesDir(), o.Terminal, o.Now, o.Meter
	return e, nil
}

// settle fills in what is not said.
func (o *Options) settle() (err error) {
	if o.Home == "" {
		if o.Home, err = config.Home(); err != nil {
			return err
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Config == nil {
		return nil
	}
	if o.Profile == nil {
		p, err := o.Config.c.ReadProfile()
		if err != nil {
			return err
		}
		o.Profile = &p
	}
	if o.Variables == nil {
		o.Variables = o.Config.c.Keys
	}
	if o.Settings == nil {
		o.Settings = o.Config.c.Options
	}
	if o.Credentials == nil {
		o.Credentials = o.Config.c.Credentials
	}
	return nil
}

func (o *Options) meter() func(images.Meter) {
	if o.Meter == nil {
		return nil
	}
	return func(m images.Meter) { o.Meter(m.What, m.Done, m.Of) }
}

// programs are the backends that are programs: those that are installed, and Daytona,
// which is part of this one. Without a key that says so by itself.
func programs() []string {
	names := external.Names()
	if !slices.Contains(names, daytona.Name) {
		names = append(names, daytona.Name)
		slices.Sort(names)
	}
	return names
}

// sites gives the clusters behind login hosts, each host one.
func (o *Options) sites(a all.Asking) func(jobs.SSHSpec) (site, error) {
	var mu sync.Mutex
	known := map[string]site{}
	on := run.Local{}
	return func(login jobs.SSHSpec) (site, error) {
		mu.Lock()
		defer mu.Unlock()
		key := loginKey(login)
		if s := known[key]; s != nil {
			return s, nil
		}
		h, err := ssh.Backend{On: on}.Host(login)
		if err != nil {
			return nil, err
		}
		known[key] = replica.New(replica.Config{
			Host: h, Git: workspace.New(on), Terminal: o.Terminal, Progress: o.Progress, Scheduler: all.LoginScheduler(a),
		})
		return known[key], nil
	}
}
