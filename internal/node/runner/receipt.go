package runner

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"berth/internal/node/container"
	"berth/jobs"
	"berth/jobs/store"
)

// versionWait bounds how long an attempt's programs may take to tell their
// versions. They are asked while the container opens.
const versionWait = 3 * time.Second

// versions are asked for once, beside what else is done.
type versions struct {
	once  sync.Once
	told  map[string]string
	known chan struct{}
}

// askVersions begins to ask.
func (r *attempt) askVersions() {
	r.versions.once.Do(func() {
		v := &r.versions
		v.known = make(chan struct{})
		go func() {
			defer close(v.known)
			ctx, cancel := context.WithTimeout(context.Background(), versionWait)
			defer cancel()
			v.told = r.programVersions(ctx)
		}()
	})
}

func (r *attempt) programVersions(ctx context.Context) map[string]string {
	var mu sync.Mutex
	var asking sync.WaitGroup
	told := map[string]string{}
	ask := func(name string, how func() string) {
		asking.Go(func() {
			if v := how(); v != "" {
				mu.Lock()
				told[name] = v
				mu.Unlock()
			}
		})
	}
	ask("berth", ownVersion)
	if r.spec.Clustered() {
		ask(r.spec.Scheduler, func() string { return r.batch.Version(ctx, r.on) })
	}
	if r.opening != nil && r.opening.Version != nil {
		asking.Go(func() {
			if name, v := r.opening.Version(ctx); v != "" {
				mu.Lock()
				told[name] = v
				mu.Unlock()
			}
		})
	}
	asking.Wait()
	return told
}

// ownVersion is the name of this program, which holds its hash, and the commit
// that it was built from.
func ownVersion() string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	v := filepath.Base(self)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v += " (commit " + s.Value + ")"
			}
		}
	}
	return v
}

// writeReceipt records once how the attempt is contained. c is its open container,
// or nil when there is none. The task does not run without this record, because it
// cannot be made later.
func (r *attempt) writeReceipt(c *container.Container, argv []string, p *place) error {
	if r.receipted || r.rank != nil && r.rank.id != "0" {
		return nil
	}
	v := jobs.Receipt{
		Version:     1,
		Attempt:     r.info.ID,
		Time:        time.Now().UTC(),
		Node:        r.claim.Host,
		Scheduler:   r.spec.Scheduler,
		Backend:     r.spec.Backend,
		CheckedOver: r.spec.CheckedOver(),
		Argv:        argv,
		Mounts:      r.spec.Mounts,
		Asked:       r.spec.Level,
		Network:     r.spec.Reaches(),
		Overlay:     r.use,
		Limits:      r.limits(p),
		Notes:       append(agentText(&r.spec), r.notes...),
	}
	if r.spec.Resources.Tasks > 1 {
		v.Ranks = r.spec.Resources.Tasks
	}
	if r.spec.Image != "" {
		v.Image = &jobs.ReceiptImage{Given: r.spec.Image, Reference: r.spec.ImageRef, Digest: r.spec.ImageDigest, Sum: r.spec.ImageSum, Used: r.image}
	}
	if r.opening != nil {
		v.Program, v.Shares = r.opening.Program, r.opening.Shares
	}
	if c != nil {
		g := c.Session().Guest()
		v.Kernel, v.Level, v.Seen = g.Kernel, r.spec.Level, g.Seen
		v.Proof = c.Proof(r.opening.WritableRoot)
		if v.Level == jobs.LevelNone {
			v.Proof = []string{"there is no container: nothing was looked for"}
		}
	}
	if c != nil {
		r.askVersions()
		select {
		case <-r.versions.known:
		case <-time.After(versionWait):
		}
	}
	select {
	case <-r.versions.known: // not closed when the versions were not asked for
		v.Versions = r.versions.told
	default:
	}
	if r.agentTold != "" {
		told := maps.Clone(v.Versions)
		if told == nil {
			told = map[string]string{}
		}
		told["agent "+r.spec.Agent.Name] = r.agentTold // a name alone could be that of another program here
		v.Versions = told
	}
	if _, err := store.SetReceipt(r.dir, v); err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "record how the attempt is contained", Err: err, Hint: "is there space left? df -h " + r.dir}
	}
	r.receipted = true
	return nil
}

// limits are those of the attempt, and who holds each.
func (r *attempt) limits(p *place) (out []jobs.Limit) {
	if r.far != nil {
		return []jobs.Limit{r.timeLimit()}
	}
	res := r.spec.Resources
	by := func(l jobs.Limit) { out = append(out, l) }
	held := r.opening != nil && r.opening.HoldsLimits
	inJob := r.spec.Clustered() && !held
	switch has := r.cgroup.Limit(); {
	case res.Memory > 0 && held:
		by(jobs.Limit{Name: "memory", Value: res.Memory.String(), By: r.spec.Backend})
	case res.Memory > 0 && r.held():
		by(jobs.Limit{Name: "memory", Value: has.String(), By: "the job's cgroup"})
	case res.Memory > 0:
		by(jobs.Limit{Name: "memory", Value: res.Memory.String(), By: "the runner", Advisory: true, Why: "no cgroup of this job holds it"})
	case has > 0 && !held:
		by(jobs.Limit{Name: "memory", Value: has.String(), By: "a cgroup of this machine"})
	}
	if res.CPUs > 0 {
		l := jobs.Limit{Name: "cpus", Value: strconv.Itoa(res.CPUs)}
		switch {
		case held:
			l.By = r.spec.Backend
		case inJob:
			l.By = r.spec.Scheduler
		default:
			l.Why = "the local queue counts them; nothing holds a task to them"
		}
		by(l)
	}
	by(r.timeLimit())
	if p != nil && p.layer != nil {
		switch most := r.layerLimit(p); {
		case most.Bytes > 0 || most.Files > 0:
			by(jobs.Limit{Name: "disk", Value: limitText(most), By: "the runner", Advisory: true,
				Why: "a layer of the driver " + r.spec.Overlay.Driver + " has no size of its own"})
		case r.spec.Overlay.Driver == jobs.DriverExt3:
			if fi, err := os.Stat(p.layer.Path); err == nil {
				by(jobs.Limit{Name: "disk", Value: jobs.Bytes(fi.Size()).String(), By: "the layer's image"})
			}
		}
	}
	return out
}

func (r *attempt) timeLimit() jobs.Limit {
	if t := r.spec.Resources.Time; t > 0 {
		return jobs.Limit{Name: "time", Value: t.String(), By: "the runner"}
	}
	if !r.jobEnd.IsZero() {
		return jobs.Limit{Name: "time", Value: fmt.Sprintf("until %s", r.jobEnd.UTC().Format(time.RFC3339)), By: r.spec.Scheduler}
	}
	return jobs.Limit{Name: "time", Value: "none"}
}
