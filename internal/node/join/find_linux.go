package join

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"berth/internal/node/container"
	"berth/internal/sys/lease"
	"berth/jobs"
	"berth/jobs/store"
)

// target is the place of a task that runs on this machine.
type target struct {
	spec   jobs.Spec
	info   jobs.AttemptInfo
	runner lease.Process
	inside *jobs.Inside
	init   lease.Process // of the container; zero where this machine has none
	room   lease.Process // its room's first process; zero where it has no room
}

// look is how often it is looked whether the place is there.
const look = 250 * time.Millisecond

// find returns the place of an attempt, for which it waits while the attempt
// prepares it, until ctx ends.
func find(ctx context.Context, dir string, progress func(string)) (*target, error) {
	for first := true; ; first = false {
		t, why, err := lookAt(dir)
		if err != nil || t != nil {
			return t, err
		}
		if first {
			progress(why + "; waiting")
		}
		select {
		case <-ctx.Done():
			return nil, &jobs.Error{Kind: jobs.KindAgain, Msg: why,
				Hint: "try again, or see what it does: berth logs --runtime " + jobs.Short(jobID(dir))}
		case <-time.After(look):
		}
	}
}

func jobID(dir string) string { return filepath.Base(store.JobDirOf(dir)) }

// lookAt finds the place, or says why it is not there yet. An error is that it
// will not be.
func lookAt(dir string) (t *target, why string, err error) {
	a, err := store.LoadAttempt(dir)
	if err != nil {
		return nil, "", err
	}
	rec, err := store.LoadDir(store.JobDirOf(dir))
	if err != nil {
		return nil, "", err
	}
	short := jobs.Short(rec.Spec.ID)
	switch {
	case a.Exit != nil || a.Verdict != nil:
		return nil, "", &jobs.Error{Kind: jobs.KindNotFound, Msg: "job " + short + " has ended",
			Hint: "berth logs " + short + " shows what it has written"}
	case a.Claim == nil:
		return nil, "job " + short + " has not begun yet", nil
	}
	t = &target{spec: rec.Spec, info: a.Info, runner: lease.Process{Host: a.Claim.Host, BootID: a.Claim.BootID, PID: a.Claim.PID, Start: a.Claim.Start}}
	if t.inside, err = store.LoadInside(dir); err != nil {
		return nil, "", err
	}
	if in := t.inside; in != nil {
		// Where a job has several tasks, it is that of one of them.
		t.runner = lease.Process{Host: in.Host, BootID: in.BootID, PID: in.PID, Start: in.Start}
	}
	me := lease.Self()
	switch {
	case t.runner.Start == "":
		return nil, "", &jobs.Error{Kind: jobs.KindConfig,
			Msg:  "job " + short + " was begun by an older berth, which does not tell its process from a later one",
			Hint: "submit it again with this one"}
	case !t.runner.Near(me):
		return nil, "", &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("job %s runs on %s, and this is %s", short, t.runner.Host, me.Host),
			Hint: "on " + t.runner.Host + ": berth shell " + short}
	case t.runner.Gone(me) || lease.StartTime(t.runner.PID) != t.runner.Start:
		return nil, "", &jobs.Error{Kind: jobs.KindInfra, Msg: fmt.Sprintf("the runner of job %s, process %d, is no more", short, t.runner.PID),
			Hint: "berth status " + short}
	}
	if t.inside == nil {
		return nil, "the place of job " + short + " is being prepared", nil
	}
	if !t.spec.Can().Enters() {
		return t, "", nil
	}
	pid, start, ok := container.Init(t.runner.PID)
	if !ok {
		return nil, "no container of job " + short + " is open at the moment", nil
	}
	t.init = lease.Process{Host: me.Host, BootID: me.BootID, PID: pid, Start: start}
	if t.inside.Room {
		if t.room.PID, t.room.Start, ok = container.Room(pid); !ok {
			return nil, "the room of job " + short + " is not there at the moment", nil
		}
	}
	if uid, err := owner(pid); err != nil || uid != os.Geteuid() {
		return nil, "", &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("the container of job %s does not belong to this user", short), Err: err,
			Hint: "berth status " + short}
	}
	// The runner it was found below is still the one of the record.
	if lease.StartTime(t.runner.PID) != t.runner.Start {
		return nil, "the runner of job " + short + " has just ended", nil
	}
	return t, "", nil
}

// owner is the user that a process runs as.
func owner(pid int) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range lines(b) {
		var ruid, euid int
		if n, _ := fmt.Sscanf(line, "Uid:\t%d\t%d", &ruid, &euid); n == 2 {
			if ruid != euid {
				return 0, errors.New("it has changed its user")
			}
			return euid, nil
		}
	}
	return 0, syscall.ENOENT
}
