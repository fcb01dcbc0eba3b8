package allocations

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"berth/internal/link/mux"
	"berth/internal/link/session"
	"berth/internal/node/keeper"
	"berth/jobs"
)

// Ground is what a job script has to know of the site.
type Ground struct {
	Dir      string // the environment's directory, as the nodes see it
	Node     string // berth-node there
	Identity jobs.Identity
}

// Place is an environment and what is needed to get at its allocations. It is
// used by one client for one purpose after the other.
type Place struct {
	Spec *jobs.EnvSpec
	// Record is the environment's directory in the ledger of this machine.
	Record string
	// Ground is asked when something is to run there.
	Ground func(context.Context) (Ground, error)
	// Holder is the program that holds the connection on this machine.
	Holder    func() (string, error)
	Scheduler jobs.Cluster
	// Submit hands a launch over, and resolves an unclear answer.
	Submit func(ctx context.Context, l jobs.Launch, script string) (jobs.Handle, error)
	// Immediate bounds the wait in the queue; 0 waits as long as it takes.
	Immediate time.Duration
	Now       func() time.Time
	Sleep     func(context.Context, time.Duration) error
	// Far is the site, when its file system is not this machine's; nil is that
	// it is.
	Far Site
}

// Site is a machine on which the scheduler's commands run, and whose file
// system the nodes see.
type Site interface {
	// PutFiles writes files into a directory there, and makes it; each is 0600.
	// A file that stands already stays as it is.
	PutFiles(ctx context.Context, dir string, files map[string][]byte) error
	// ReadFile reads a file there; without one the error is [fs.ErrNotExist].
	ReadFile(ctx context.Context, path string) ([]byte, error)
	// Local is the command of this machine that runs one there, its streams
	// joined.
	Local(ctx context.Context, c jobs.Cmd) (jobs.Cmd, error)
	// RemoveEnv removes the directory of an environment there, if its record
	// says that it is this one's.
	RemoveEnv(ctx context.Context, dir, id string) error
	// RemoveFile removes a file of that directory, if it is there, on the same condition.
	RemoveFile(ctx context.Context, dir, id, name string) error
}

// Link is the connection to the environment's keeper.
func (p *Place) Link() mux.Link { return mux.Link{Dir: p.Record, ID: p.Spec.ID} }

// Pipes makes ways for much data past that link, where the environment's
// directory is seen from here: see [jobs.Piper].
func (p *Place) Pipes(piper jobs.Piper) session.Pipes {
	if p.Far != nil {
		return nil
	}
	return p.Link().Pipes(piper.Pipes(p.Record))
}

// peek is what stands on the disk of the environment's last keeper, if that is
// to be seen from here.
func (p *Place) peek() *keeper.Info {
	if p.Far != nil {
		return nil
	}
	info, err := keeper.Peek(p.Record)
	if err != nil {
		return nil
	}
	return info
}

// keeps tells whether the keeper that was seen last is the one of this
// allocation and, as far as is recorded, has not ended.
func (p *Place) keeps(a *Allocation) *keeper.Info {
	info := p.peek()
	if info == nil || info.Allocation == "" || info.Allocation != a.Native() || !info.Ended.IsZero() {
		return nil
	}
	return info
}

// there is a path of the record as the nodes see it.
func (p *Place) there(g Ground, path string) string {
	if rel, err := filepath.Rel(p.Record, path); err == nil {
		return filepath.Join(g.Dir, rel)
	}
	return path
}

// said is the last word of the start of an allocation's keeper, or nil.
func (p *Place) said(ctx context.Context, a *Allocation) *keeper.Report {
	if p.Far == nil {
		return a.last(os.ReadFile)
	}
	g, err := p.Ground(ctx)
	if err != nil {
		return nil
	}
	return a.last(func(path string) ([]byte, error) { return p.Far.ReadFile(ctx, p.there(g, path)) })
}

// failure is why that keeper could not open the environment, or nil.
func (p *Place) failure(ctx context.Context, a *Allocation) error {
	if r := p.said(ctx, a); r != nil {
		return r.Err()
	}
	return nil
}
