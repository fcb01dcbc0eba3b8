package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"berth/internal/workspace"
	"berth/jobs"
	"berth/jobs/store"
)

// NotHere says what of a job's last attempt, which has ended, stays on the login
// host, and how to fetch it: files over the limits, artifacts that had no room
// here, and a work tree that was kept. A job of this machine has none of that.
func NotHere(r *jobs.Record) (out []string) {
	a := r.Current()
	if r.Spec.Login == nil || a == nil || a.Exit == nil {
		return nil
	}
	host, dir := r.Spec.Login.Host, a.Dir
	if st, err := store.At(r.Spec.LoginHome); err == nil {
		dir = store.AttemptDir(st.JobDir(r.Spec.ID), a.N)
	}
	accepted := r.Spec.Retry == nil || a.Decision != nil && a.Decision.Verb == jobs.VerbAccept
	changed := a.Exit.Result != nil && a.Exit.Result.Commit != ""
	for _, f := range files {
		fi, err := os.Lstat(pathOf(r, f))
		what := ""
		switch {
		case f.kind == grows && err == nil && fi.Size() >= f.max:
			what = "is here to its first " + jobs.Bytes(f.max).String()
		case f.kind == final && accepted && changed && errors.Is(err, fs.ErrNotExist):
			what = "is larger than " + jobs.Bytes(f.max).String()
		default:
			continue
		}
		out = append(out, fmt.Sprintf("%s %s, and stays on %s: scp %s:%s .", f.name, what, host, host, filepath.Join(dir, f.name)))
	}
	to := filepath.Join(a.Dir, dirArtifacts)
	if _, err := os.Lstat(to); accepted && len(a.Exit.Artifacts) > 0 && errors.Is(err, fs.ErrNotExist) {
		out = append(out, fmt.Sprintf("%d artifacts of %s had no room here, and stay on %s: scp -r %s:%s .",
			a.Exit.ArtifactFiles, a.Exit.ArtifactBytes.Rough(), host, host, filepath.Join(dir, dirArtifacts)))
	}
	if k := a.Exit.Kept; k != nil && k.Dir != "" {
		out = append(out, fmt.Sprintf("the task's files, untrusted as the task left them, are kept on %s in %s: "+
			"berth collect %s --into DIR there copies what was left out",
			host, filepath.Join(dir, workspace.WorkDir), jobs.Short(r.Spec.ID)))
	}
	return out
}
