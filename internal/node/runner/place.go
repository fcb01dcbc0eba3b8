package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"berth/apptainer"
	"berth/backends/docker"
	"berth/internal/link/session"
	"berth/internal/node/container"
	"berth/internal/node/supervise"
	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

// expand fills the holes of the argv and resolves its program; nothing else of
// it changes.
func expand(argv []string, holes jobs.Placeholders, program string) []string {
	out := holes.Fill(argv)
	if out[0] == "apptainer" {
		out[0] = program
	}
	return out
}

// place is what the container needs on this node.
type place struct {
	program string
	work    string // the work tree
	scratch *container.Scratch
	image   *apptainer.Used // of singularity, else nil
	layer   *overlay.Layer
	// kernel puts what mounts a layer of the driver kernel before the container's
	// line; nil with the other drivers.
	kernel func(layer string, fill func(merged string) []string) ([]string, error)
}

// close gives it back.
func (p *place) close() error {
	if p == nil {
		return nil
	}
	var err error
	if p.layer != nil {
		if err = p.layer.Close(); err != nil {
			err = fmt.Errorf("the overlay could not be given back: %w", err)
		}
	}
	return errors.Join(err, p.image.Close())
}

// work is where the task's work tree stands: on the node's own disk, unless other
// nodes must see it.
func (r *attempt) work() string {
	if r.spec.SharesWork() {
		return r.keptWork()
	}
	return filepath.Join(r.scratch.Dir, workspace.WorkDir)
}

// keptWork is where it is kept beyond the attempt.
func (r *attempt) keptWork() string { return filepath.Join(r.dir, workspace.WorkDir) }

// prepare makes the place. What it made is undone by cleanup, whatever happens
// in between.
func (r *attempt) prepare(ctx context.Context) (*place, error) {
	tail := r.info.Name[strings.LastIndexByte(r.info.Name, '-')+1:]
	if r.rank != nil {
		tail += "-" + r.rank.id // several may be on one node
	}
	var err error
	r.scratch, r.node, err = supervise.Disk{Who: "runner", Tail: tail, For: r.dir, Profile: r.spec.Profile.Scratch, Log: r.log, Note: r.note}.Prepare(ctx)
	if err != nil {
		return nil, err
	}
	p := &place{scratch: r.scratch, work: r.work()}
	if r.spec.Backend == jobs.BackendLocal || r.spec.Backend == jobs.BackendBwrap {
		r.opening, err = r.openPlace(ctx, p)
		return p, err
	}
	if r.spec.Backend == jobs.BackendDocker {
		r.docker, err = docker.NewJob(ctx, r.on, r.argv, r.spec.Image, r.info.Name, func(line string) { r.log.Info(line) })
		if err != nil {
			return nil, err
		}
		r.notes = append(r.notes, r.docker.Notes...)
		return p, nil
	}
	if r.farHere() {
		r.far, err = r.newFar(ctx)
		return p, err
	}
	if p.program, err = apptainer.FindProgram(os.Getenv("PATH")); err != nil {
		return nil, err
	}
	r.askVersions(p.program)
	id, err := overlay.LowerID(r.spec.Image)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "image " + r.spec.Image + " does not exist on " + r.claim.Host,
				Hint: "put it on a file system that the compute nodes share"}
		}
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "read the image", Err: err, Hint: jobs.HintOf(err)}
	}
	if r.spec.ImageDir != "" && r.spec.ImageDir != id {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the unpacked image " + r.spec.Image + " is not the one that was submitted",
			Err:  errors.New("on " + r.claim.Host + " it was made at another time, or stands on a disk of its own"),
			Hint: "submit again; or keep it where the nodes see the same directory, or name a SIF"}
	}
	home := filepath.Dir(filepath.Dir(filepath.Dir(r.jobDir)))
	dir := filepath.Join(r.scratch.Dir, "overlay")
	if name := r.spec.Overlay.Name; name != "" {
		dir = filepath.Join(home, "overlays", name)
	}
	if err := r.ready(ctx, p, home, dir); err != nil {
		return nil, err
	}
	layer := r.spec.Overlay
	layer.Templates = store.TemplatesIn(home)
	r.use = &jobs.OverlayUse{Driver: layer.Driver, Way: jobs.WayTemporary}
	if layer.Name == "" {
		p.layer, err = r.throwAway(ctx, home, layer)
	} else {
		p.layer, err = r.openNamed(ctx, dir, layer)
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	r.layer.Store(p.layer)
	if layer.Name != "" {
		use, err := p.layer.Snapshot(ctx, r.on, r.snapshotAs(layer.Snapshot), r.info.ID)
		if err = r.before(&use, err); err != nil {
			return nil, errors.Join(err, p.close())
		}
		r.use = &use
	}
	r.notes = append(r.notes, p.layer.Notes...)
	return p, nil
}

// watchMemory is the limit where no cgroup holds it: it looks once a second
// and ends the tree when its resident memory is over. A process that grows
// faster than that can pass it, so it is noted as advisory.
func (r *attempt) watchMemory(ctx context.Context) {
	asked := r.spec.Resources.Memory
	if asked == 0 || r.opening != nil && r.opening.HoldsLimits || r.docker != nil || r.far != nil { // docker holds it, or has refused; what runs far away is not seen
		return
	}
	if r.held() {
		return
	}
	r.note(fmt.Sprintf("memory %s is watched by the runner, advisory: no cgroup of this job holds it", asked))
	go container.WatchMemory(ctx, asked, func(used int64) bool {
		r.stop.set(why{state: jobs.StateOutOfMemory,
			reason: fmt.Sprintf("it used %d MiB of memory, more than the %s it asked for", used>>20, asked),
			hint:   "raise [resources] memory"})
		return false
	})
}

// held tells whether a cgroup holds the memory that the task asked for.
func (r *attempt) held() bool {
	asked, got := r.spec.Resources.Memory, r.cgroup.Limit()
	return got != 0 && got <= asked+asked/10
}

func (r *attempt) setSession(s *session.Session) {
	r.sessionMu.Lock()
	defer r.sessionMu.Unlock()
	r.session = s
}

// ping tells the guest that its owner stands, and ends the attempt when the
// guest does not answer any more: a task can stop its guest, and would hold
// the job until its time limit.
func (r *attempt) ping() {
	r.sessionMu.Lock()
	s, rs := r.session, r.ranks
	r.sessionMu.Unlock()
	switch {
	case rs != nil:
		rs.ping()
		return
	case s == nil:
		return
	case s.Unanswered() > r.times.Unanswered:
		r.stop.set(why{state: jobs.StateError, reason: "the guest in the container does not answer",
			hint: "did the task stop it? see " + filepath.Join(r.dir, store.FileRuntime)})
	}
	if err := s.Ping(); err != nil { // it has left, of which who waits for its command hears
		r.log.Warn("the guest could not be pinged", "err", err)
	}
}
