package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"berth/internal/workspace"
	"berth/jobs"
)

// keepWork keeps the task's work tree from one place in the attempt's directory,
// because something of it did not come back. It says in the record what of that
// failed, and in a note where the rest is.
func (r *attempt) keepWork(ctx context.Context, from string, out *outcome, why string) {
	out.keptTree = &jobs.KeptTree{}
	to := filepath.Join(r.dir, workspace.WorkDir)
	if ctx.Err() != nil { // what that was for has ended, and the scheduler has not killed yet
		var done context.CancelFunc
		ctx, done = context.WithTimeout(context.WithoutCancel(ctx), r.lastTime())
		defer done()
	}
	k, err := workspace.Keep(ctx, from, to)
	if err == nil || from != to && k.Files > 0 {
		out.kept, out.keptTree.Dir = true, workspace.WorkDir
	}
	if k.Closed {
		why += "; it cannot be entered before chmod 700"
	}
	lost := k.Lost
	if k.Moved && lost > 0 { // they are there, and closed
		why += fmt.Sprintf("; %d directories that are too deep are of mode 0 now", lost)
		lost = 0
	}
	out.keptTree.Files, out.keptTree.Bytes = lost, jobs.Bytes(k.SkippedBytes)
	if err != nil {
		out.keptTree.Error = jobs.Printable(err.Error())
	} else if i := slices.IndexFunc(k.Skipped, func(s workspace.Skipped) bool { return s.Kind != workspace.NoContent }); lost > 0 && i >= 0 {
		out.keptTree.Error = jobs.Printable(fmt.Sprintf("%s: %s", k.Skipped[i].Path.Printable(), k.Skipped[i].Reason))
	} else if lost > 0 {
		out.keptTree.Error = "the list of what could not be kept is full of special files"
	}
	switch {
	case out.kept && out.keptTree.Error == "":
		r.note(why + "; the task's files are kept, untrusted as the task left them, in " + to + ": " + fetches(r.spec.ID))
	case out.kept:
		r.note(fmt.Sprintf("%s; the task's files are kept, untrusted as the task left them, in %s, but for %s: %s: %s",
			why, to, lostText(lost, k.SkippedBytes), out.keptTree.Error, fetches(r.spec.ID)))
	default:
		r.note(why + "; the task's files could not be kept: " + out.keptTree.Error)
	}
}

// lastTime is what is left to keep something when collecting was ended.
func (r *attempt) lastTime() time.Duration {
	left := 30 * time.Second
	if !r.jobEnd.IsZero() {
		left = min(left, time.Until(r.jobEnd)-time.Second)
	}
	if w := r.stop.Why(); w != nil && w.hurry > 0 {
		left = min(left, time.Until(w.at.Add(w.hurry))-500*time.Millisecond)
	}
	return max(left, 200*time.Millisecond)
}

// maxListed bounds the names of artifacts in the record, in bytes of JSON: a byte
// of a name can be six there.
const maxListed = 2 << 20

// listed are the names of the artifacts, as many as fit, and how many and how
// long all are.
func listed(all []workspace.Artifact) (names []string, files int, size jobs.Bytes) {
	room := maxListed
	for _, a := range all {
		size += jobs.Bytes(a.SizeBytes)
		name := fmt.Sprint(a.Path)
		if room <= 0 {
			continue
		}
		const indent = 8 // with a comma and the end of the line
		b, err := json.Marshal(name)
		if room -= len(b) + indent; err == nil && room > 0 {
			names = append(names, name)
		}
	}
	return names, len(all), size
}

func fetches(id string) string { return "berth collect " + jobs.Short(id) + " brings them" }

func lostText(n int, size int64) string {
	s := fmt.Sprintf("%d paths", n)
	if n == 1 {
		s = "1 path"
	}
	if size > 0 {
		s += " of " + jobs.Bytes(size).Rough()
	}
	return s + " that are lost"
}
