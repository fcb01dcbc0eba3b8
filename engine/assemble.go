package engine

import (
	"os"
	"time"

	"berth/backends/all"
	"berth/internal/config/sitefile"
	"berth/internal/node/nodebin"
	"berth/internal/sys/run"
	"berth/internal/sys/tally"
	"berth/internal/workspace"
	"berth/jobs/store"
)

// assemble makes an engine of what goes on with jobs, as the program for the nodes does
// it: it plans none. See [all.Program] for the last two.
func assemble(st *store.Store, variables func() []string, options func(backend string) map[string]string) *Engine {
	on := run.Local{}
	program := all.Program(on, st.Home(), st.Owner, variables, options, builtin)
	return &Engine{
		Store:      st,
		Schedulers: all.Schedulers(on, st.Queue(), asking(st)),
		Backends:   all.Backends(on),
		Program: func(name string) Program {
			if b := program(name); b != nil {
				return b
			}
			return nil
		},
		Node:   func() (string, error) { return nodebin.Self(st.Bin()) },
		Getenv: os.LookupEnv,
		Now:    time.Now,
		Sleep:  Sleep,
		git:    workspace.New(on),
	}
}

// asking is how often the schedulers of clusters are asked here, and that it is counted.
func asking(st *store.Store) all.Asking {
	return all.Asking{Poll: sitefile.Poll(), Note: tally.Log{Dir: st.Asked()}.Note}
}
