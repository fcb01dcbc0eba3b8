package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"berth/engine"
	"berth/internal/config/sitefile"
	"berth/internal/doctor"
	"berth/jobs"
)

// doctorSite shows what the site's file says on this machine, and tries each key with a
// plan that breaks it. Nothing is started, and no scheduler asked.
func (a *app) doctorSite(ctx context.Context) error {
	began := time.Now()
	host, _ := os.Hostname()
	p := &doctor.Place{Version: doctor.Version, Where: "here", Host: host, Time: began.UTC()}
	add := func(subject string, s doctor.Status, why, do string) {
		p.Findings = append(p.Findings, doctor.Finding{ID: "site", Scope: doctor.Machine, Subject: subject,
			Status: s, Why: why, Do: do, Configured: true})
	}
	f, err := sitefile.Read()
	switch {
	case err != nil:
		add("file", doctor.Fail, strings.ReplaceAll(err.Error(), "\n", "; "), jobs.HintOf(err))
	case f == nil:
		add("file", doctor.Skip, "there is no "+sitefile.Path+": nothing is forbidden, "+
			"and looks ask the scheduler every "+sitefile.DefaultPoll.String()+" at most",
			"")
	default:
		add("file", doctor.OK, f.Path+": it and its directory are root's, and others cannot write them", "")
		e, err := a.planner()
		if err != nil {
			return err
		}
		for _, k := range f.Keys() {
			s, why := provesKey(ctx, e, f, k)
			do := ""
			if s == doctor.Fail {
				do = "please report this: the key is not held"
			}
			add(k.Name+" = "+k.Value, s, why, do)
		}
		add("nodes", doctor.Skip, "not proven: each node holds its own file where an attempt begins there", "berth doctor --site, in an allocation")
	}
	p.TookMS = time.Since(began).Milliseconds()
	if err := a.printPlaces([]*doctor.Place{p}, nil); err != nil {
		return err
	}
	if !p.OK() {
		return exitCode(jobs.CodeTaskFailed)
	}
	return nil
}

// provesKey tries a key of the site's file.
func provesKey(ctx context.Context, e *engine.Engine, f *sitefile.File, k sitefile.Key) (doctor.Status, string) {
	switch k.Name {
	case "site.contact":
		return doctor.OK, "it stands in each refusal"
	case "site.poll":
		return doctor.Skip, "not proven: berth config rpc counts what your processes ask"
	case "review.by":
		return doctor.Skip, "not proven: it is held where a result is merged"
	case "mcp.confirm":
		return doctor.Skip, "not proven: it is held by berth mcp"
	case "jobs.max_submitted", "review.max_waiting_reviews":
		return doctor.Skip, "not proven: it is held where one more job is submitted"
	case "site.tasks_here":
		if !f.Elsewhere {
			return doctor.OK, "tasks run here"
		}
	}
	t, what := breaks(f, k.Name)
	if what == "" {
		return doctor.Skip, "not proven: no plan could break it"
	}
	s, err := e.Plan(ctx, t, engine.Choice{}, true)
	switch {
	case err == nil && s.Network.NarrowedBy() == "site file "+f.Path:
		return doctor.OK, what + " is planned with the network " + s.Network.Mode
	case err == nil:
		return doctor.Fail, what + " is planned"
	case jobs.KindOf(err) == jobs.KindConfig && strings.Contains(err.Error(), "site file "+f.Path):
		return doctor.OK, what + " is refused: " + err.Error()
	}
	return doctor.Skip, "not proven: " + what + " is refused before: " + err.Error()
}

// breaks is a task that breaks a key, and what it is.
func breaks(f *sitefile.File, key string) (t jobs.Task, what string) {
	all := jobs.Schedulers()
	cluster := all[max(0, slices.IndexFunc(all, jobs.IsCluster))]
	t = jobs.Task{Name: "site", Command: jobs.Command{Argv: []string{"true"}}}
	t.Scheduler, t.Backend, t.Image, t.Network.Mode = cluster, jobs.BackendOfClusters, "/site.sif", jobs.NetworkNone
	r := &t.Resources
	switch key {
	case "site.tasks_here":
		t.Scheduler = jobs.SchedulerLocal
		what = "a task on this machine"
	case "site.level":
		t.Backend, t.Network.Mode, t.Image = jobs.BackendBare, "", ""
		what = "a task without a container"
		if f.Level == jobs.LevelEgress && f.Bound.Mode == "" {
			t.Backend, t.Image = jobs.BackendOfClusters, "/site.sif"
			what = "a task with an open network"
		}
	case "network.mode", "network.allow", "network.deny":
		if f.Bound.Mode != jobs.NetworkOpen {
			t.Network.Mode = jobs.NetworkOpen
			what = "a task with an open network"
		}
	case "network.via":
		t.Network = jobs.Network{Mode: jobs.NetworkAllow, Allow: []string{"example.org"}}
		for _, way := range sitefile.Ways {
			if !slices.Contains(f.Via, way) {
				t.Network.Via, what = way, "a task with the way out "+way
			}
		}
		if strings.HasPrefix(jobs.ViaProxy, t.Network.Via) {
			t.Network.Via = jobs.ViaProxy + "http://proxy.example:3128"
		}
	case "jobs.max_time":
		r.Time, what = f.Limits.Time+time.Second, "a job of more time"
	case "jobs.max_cpus":
		r.CPUs, what = f.Limits.CPUs+1, "a job of more CPUs"
	case "jobs.max_memory":
		r.Memory, what = f.Limits.Memory+jobs.MiB, "a job of more memory"
	case "jobs.max_gpus":
		r.GPUs, what = fmt.Sprint(f.Limits.GPUs+1), "a job of more GPUs"
	}
	return t, what
}
