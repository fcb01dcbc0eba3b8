package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/apptainer"
	"berth/backends/docker"
	"berth/internal/container"
	"berth/internal/lease"
	"berth/internal/session"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

// expand fills the holes of the argv and resolves its program; nothing else of
// it changes.
func expand(argv []string, holes map[string]string, program string) []string {
	out := slices.Clone(argv)
	for i, w := range out {
		if v, ok := holes[w]; ok {
			out[i] = v
		}
	}
	if out[0] == "apptainer" {
		out[0] = program
	}
	return out
}

// place is what the container needs on this node.
type place struct {
	program string
	layer   *overlay.Layer
}

// prepare makes the place. What it made is undone by cleanup, whatever happens
// in between.
func (r *attempt) prepare(ctx context.Context) (*place, error) {
	base, err := container.ScratchBase(r.spec.Profile.Scratch, os.Getenv)
	if err != nil {
		return nil, err
	}
	for _, dir := range container.SweepScratch(base, lease.Self()) {
		r.log.Info("removed what a killed runner had left", "dir", dir)
	}
	name := r.info.Name
	if r.scratch, err = container.NewScratch(base, name[strings.LastIndexByte(name, '-')+1:], lease.Self(), r.dir); err != nil {
		return nil, err
	}
	p := &place{}
	if r.spec.Backend == jobs.BackendLocal {
		return p, nil
	}
	if r.spec.Backend == jobs.BackendDocker {
		r.docker, err = docker.NewJob(ctx, r.on, r.argv, r.spec.Image, r.info.Name, func(line string) { r.log.Info(line) })
		if err != nil {
			return nil, err
		}
		r.notes = append(r.notes, r.docker.Notes...)
		return p, nil
	}
	if r.spec.Backend == jobs.BackendSSH {
		r.far, err = r.newFar(ctx)
		return p, err
	}
	if p.program, err = apptainer.FindProgram(os.Getenv("PATH")); err != nil {
		return nil, err
	}
	if _, err := overlay.ImageID(r.spec.Image); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "image " + r.spec.Image + " does not exist on " + r.claim.Host, Hint: "put it on a file system that the compute nodes share"}
		}
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "read the image", Err: err, Hint: jobs.HintOf(err)}
	}
	if r.spec.Overlay.Name == "" {
		if r.spec.Overlay.Driver == jobs.DriverFuse && !overlay.TakesDirectories(r.scratch.Dir) {
			r.note("the scratch directory " + base + " is on a network file system, where some changes to the image's directories fail; name a local one, or overlay = \"ext3\", in a profile")
		}
		p.layer, err = overlay.Temporary(ctx, r.on, r.scratch.Dir, r.spec.Overlay)
	} else {
		dir := filepath.Join(filepath.Dir(filepath.Dir(filepath.Dir(r.jobDir))), "overlays", r.spec.Overlay.Name)
		// The submitter looked at this too, from its machine: a file server's
		// own disk is a network file system here.
		if r.spec.Overlay.Driver == jobs.DriverFuse && r.spec.Profile.Overlay == "" && !overlay.TakesDirectories(dir) {
			return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "overlay " + r.spec.Overlay.Name + " would be a directory on a network file system, where changes to the image's directories fail",
				Hint: `put overlay = "ext3" into a profile and submit with --profile, or give the overlay a size: [resources] disk`}
		}
		me := overlay.Owner{Version: 1, Attempt: r.info.ID, Dir: r.dir, Host: r.claim.Host, BootID: r.claim.BootID, PID: r.claim.PID, Start: lease.StartTime(r.claim.PID), Time: time.Now().UTC()}
		p.layer, err = overlay.Persistent(ctx, r.on, dir, r.spec.Overlay, r.spec.Image, me, r.ownerGone(ctx))
	}
	if err != nil {
		return nil, err
	}
	r.notes = append(r.notes, p.layer.Notes...)
	return p, nil
}

// ownerGone tells whether an overlay's owner is provably gone, see
// [lease.Gone]. The container of a runner that was killed may live on until
// its guest has missed the pings, so that time must have passed since the last
// beat even when the process is no more.
func (r *attempt) ownerGone(ctx context.Context) func(overlay.Owner) bool {
	return func(o overlay.Owner) bool {
		me := lease.Process{Host: r.claim.Host, BootID: r.claim.BootID, PID: r.claim.PID}
		return lease.Gone(ctx, o, me, lease.Patience{Look: r.times.beat / 10, Dead: r.times.guestWait, Silent: r.times.silent}, store.HasExit)
	}
}

// watchMemory is the limit where no cgroup holds it: it looks once a second
// and ends the tree when its resident memory is over. A process that grows
// faster than that can pass it, so it is noted as advisory.
func (r *attempt) watchMemory(ctx context.Context) {
	asked := r.spec.Resources.Memory
	if asked == 0 || r.docker != nil || r.far != nil { // docker holds it, or has refused; what runs far away is not seen
		return
	}
	if got := r.cgroup.Limit(); got != 0 && got <= asked+asked/10 {
		return
	}
	r.note(fmt.Sprintf("memory %s is watched by the runner, advisory: no cgroup of this job holds it", asked))
	go container.WatchMemory(ctx, asked, func(used int64) bool {
		r.stop.set(why{state: jobs.StateOutOfMemory, reason: fmt.Sprintf("it used %d MiB of memory, more than the %s it asked for", used>>20, asked), hint: "raise [resources] memory"})
		return false
	})
}

func (r *attempt) setSession(s *session.Session) {
	r.sessionMu.Lock()
	defer r.sessionMu.Unlock()
	r.session, r.lastPong, r.unanswered = s, time.Time{}, 0
}

// unansweredPings is how many pings in a row a guest may leave unanswered: as
// many as it would itself miss, and one more. They are counted, because a clock
// also runs while this process is stopped.
const unansweredPings = 4

// ping tells the guest that its owner stands, and ends the attempt when the
// guest does not answer any more: a task can stop its guest, and would hold
// the job until its time limit.
func (r *attempt) ping() {
	r.sessionMu.Lock()
	s := r.session
	if s == nil {
		r.sessionMu.Unlock()
		return
	}
	if pong := s.LastPong(); pong.After(r.lastPong) {
		r.lastPong, r.unanswered = pong, 0
	} else {
		r.unanswered++
	}
	silent := r.unanswered > unansweredPings
	r.sessionMu.Unlock()
	if silent {
		r.stop.set(why{state: jobs.StateError, reason: "the guest in the container does not answer", hint: "did the task stop it? see " + filepath.Join(r.dir, store.FileRuntime)})
	}
	if err := s.Ping(); err != nil {
		r.log.Warn("the guest could not be pinged", "err", err)
	}
}
