package runner

import (
	"fmt"

	"berth/jobs"
)

// conclude makes the exit record.
func (r *attempt) conclude(out *outcome) jobs.ExitRecord {
	rec := jobs.ExitRecord{Version: 1, Attempt: r.info.ID, Exit: out.exit, Started: out.started, Node: r.claim.Host,
		OOMKills: r.oomKills(), MaxRSS: out.maxRSS, Left: out.left, Result: out.result, Done: out.done, Artifacts: out.arts,
		ArtifactFiles: out.artFiles, ArtifactBytes: out.artBytes, LeftOut: out.leftOut, Kept: out.keptTree}
	rec.Image, rec.Overlay, rec.NetworkUse = r.image, r.use, r.egress.Load().Close()
	rec.Usage, rec.Agent = r.egress.Load().Usage(), out.agent
	rec.Peak = r.cgroupPeak(rec.OOMKills)
	w := r.stop.Why()
	switch {
	case w != nil && w.state == jobs.StateError && w.fuse && rec.OOMKills > 0, w == nil && out.err != nil && !out.started.IsZero() && rec.OOMKills > 0:
		// What fails with a process killed for memory has failed for that.
		rec.State, rec.Hint = jobs.StateOutOfMemory, "raise [resources] memory"
		if rec.Reason = fmt.Sprintf("the kernel killed %s of the job for memory", processes(rec.OOMKills)); w != nil {
			rec.Reason += ": " + w.reason
		} else {
			rec.Reason += ": " + out.err.Error()
		}
		out.err = nil
	case w != nil:
		rec.State, rec.Class, rec.Reason, rec.Hint = w.state, w.class, w.reason, w.hint
		if w.state == jobs.StateOutOfMemory {
			rec.Exit.OOM = true
		}
	case out.err != nil:
		rec.State, rec.Class, rec.Reason, rec.Hint = jobs.StateError, classOf(out.err), out.err.Error(), jobs.HintOf(out.err)
		rec.Blame = jobs.BlameOf(out.err)
	default:
		r.concludeCommand(&rec)
	}
	if rec.Code = codeOf(rec, out.err); w != nil && w.code != 0 {
		rec.Code = w.code
	}
	return rec
}

// concludeCommand sets the state after a command that ended by itself. berth's own
// record counts and not the scheduler's: Slurm calls a job OUT_OF_MEMORY when any
// child was killed, even if the command went on and succeeded.
func (r *attempt) concludeCommand(rec *jobs.ExitRecord) {
	e := &rec.Exit
	killed := e.Signal == 9 || e.Code == 137
	switch peak := max(rec.MaxRSS, rec.Peak); {
	case killed && rec.OOMKills > 0:
		e.OOM = true
	case killed && r.jobCgroup == nil && r.box == nil && r.spec.Resources.Memory > 0 && peak >= r.spec.Resources.Memory/10*9:
		// No cgroup counts OOM kills here, so a SIGKILL close to the memory limit
		// is taken for one.
		e.OOM = true
		r.note(fmt.Sprintf("no kernel's count says so: it was killed with %d MiB of its %s in use", peak.MiB(), r.spec.Resources.Memory))
	}
	switch {
	case e.OOM:
		rec.State, rec.Reason, rec.Hint = jobs.StateOutOfMemory, "the command"+r.whose+" was killed for memory", "raise [resources] memory"
	case !e.OK():
		rec.State, rec.Reason = jobs.StateFailed, "the command"+r.whose+" "+ended(*e)
		rec.Hint = "berth logs " + jobs.Short(r.spec.ID)
	default:
		rec.State = jobs.StateCompleted
		for _, d := range rec.Done {
			if !d.Exit.OK() {
				rec.State = jobs.StateFailed
				rec.Reason = "the done command " + commandText(d.Command) + " " + ended(d.Exit)
				rec.Hint = "berth logs --done " + jobs.Short(r.spec.ID)
			}
		}
	}
	// Only a child was killed: its parent has gone on, or has failed because of it.
	if n := rec.OOMKills; n > 0 && !e.OOM {
		if rec.State == jobs.StateFailed {
			rec.State, rec.Hint = jobs.StateOutOfMemory, "raise [resources] memory; "+rec.Hint
			rec.Reason += fmt.Sprintf(", after the kernel had killed %s of it for memory", processes(n))
		} else {
			r.note(fmt.Sprintf("the kernel killed %s of the task for memory; the command itself went on", processes(n)))
		}
	}
	if rec.State == jobs.StateCompleted && rec.Result != nil {
		if n := len(rec.Result.Outside()); n > 0 {
			rec.Reason = fmt.Sprintf("it changed %d files outside its scope", n)
		} else if rec.Result.Empty() {
			rec.Reason = "it changed nothing"
		}
	}
}

// cgroupPeak is the most memory that the job has used on this node. Where the
// kernel has killed for memory but remembers no peak, that was the limit.
func (r *attempt) cgroupPeak(kills int) jobs.Bytes {
	g := r.jobCgroup
	if r.box != nil {
		g = r.box
	}
	if p := g.Peak(); p > 0 || kills == 0 {
		return p
	}
	return g.Limit()
}

func processes(n int) string {
	if n == 1 {
		return "a process"
	}
	return fmt.Sprintf("%d processes", n)
}
