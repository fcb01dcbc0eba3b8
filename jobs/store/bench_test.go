package store

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/sys/ids"
	"berth/jobs"
)

// fill records n jobs as a submission, or the end, leaves them, without waiting
// for the disk.
func fill(t testing.TB, s *Store, n int, ended bool) {
	t.Helper()
	for i := range n {
		id, err := ids.New()
		must(t, err)
		aid, err := ids.New()
		must(t, err)
		now := time.Now().UTC()
		spec := jobs.Spec{
			Version: 1, ID: id, Name: fmt.Sprintf("Fix the parser %d", i), Slug: "fix-the-parser", Command: jobs.Command{Shell: "make test && agent --go"}, Prompt: true, Workspace: &jobs.WorkspaceSpec{Repo: "/home/alice/src/project", GitDir: "/home/alice/src/project/.git", Base: strings.Repeat("0123abcd", 5), BaseRef: "main", Branch: "berth/fix/" + jobs.Short(id), Scope: []string{"src/", "test/"}}, EnvNames: []string{"API_KEY"}, Done: []jobs.Command{{Shell: "make check"}}, Artifacts: []string{"out/*.log"}, Created: now, User: "alice", Host: "login1", Notes: []string{"the working tree has uncommitted changes, which the task does not see: it starts from commit 0123abcd0123"},
			Place: jobs.Place{
				Resources: jobs.Resources{CPUs: 4, Memory: 8 * jobs.GiB, Time: 2 * time.Hour}, Scheduler: "slurm", Backend: "singularity", Level: jobs.LevelFS, Image: "/scratch/images/agent.sif", Overlay: jobs.OverlaySpec{Driver: "fuse"}, Mounts: []jobs.Mount{{Source: "/data", Destination: "/data"}}, Env: []string{"A=1", "LANG=C.UTF-8"}, Slurm: jobs.SlurmOptions{Partition: "batch", Account: "proj"}, Profile: jobs.Profile{Name: "site", Modules: []string{"apptainer"}, Scratch: "/local/$USER", Versions: jobs.Versions{Slurm: "24.11", Apptainer: "1.4.5"}},
			},
		}
		info := jobs.AttemptInfo{Version: 1, ID: aid, Number: 1, Name: jobs.JobName(spec.Slug, aid), Created: now}
		dir := s.JobDir(id)
		adir := AttemptDir(dir, 1)
		must(t, os.MkdirAll(adir, 0o700))
		put := func(path string, v any) {
			b, err := encode(v)
			must(t, err)
			must(t, os.WriteFile(path, b, 0o600))
		}
		put(filepath.Join(dir, fileJob), spec)
		put(filepath.Join(adir, fileAttempt), info)
		put(filepath.Join(adir, fileSubmitted), jobs.Submitted{Version: 1, Handle: jobs.Handle{Version: 1, Scheduler: "slurm", NativeID: "12345", Name: info.Name, Opaque: []byte(`{"since":1700000000}`)}, Time: now})
		if ended {
			put(filepath.Join(adir, fileClaim), jobs.Claim{Version: 1, Attempt: aid, NativeID: "12345", Host: "n1", BootID: "boot", PID: 12, Time: now})
			must(t, Beat(adir, 1, now))
			put(filepath.Join(adir, fileExit), jobs.ExitRecord{Version: 1, Attempt: aid, State: jobs.StateCompleted, Exit: jobs.Exit{Started: true}, Started: now, Ended: now, Node: "n1", MaxRSS: jobs.GiB,
				Result: &jobs.Result{Branch: spec.Workspace.Branch, Base: spec.Workspace.Base, Commit: spec.Workspace.Base, Tree: spec.Workspace.Base, Files: 3, Insertions: 10, Taken: true},
				Done:   []jobs.DoneResult{{Command: jobs.Command{Shell: "make check"}, Exit: jobs.Exit{Started: true}}}, Notes: []string{"memory is held by the cgroup"}})
		}
	}
}

// age makes the records look as if they had not changed for an hour.
func age(t testing.TB, s *Store) {
	t.Helper()
	changed(t, s, time.Now().Add(-time.Hour))
}

// changed makes the records look as if they had last changed then.
func changed(t testing.TB, s *Store, then time.Time) {
	t.Helper()
	ids, err := s.ids("")
	must(t, err)
	for _, id := range ids {
		dir := s.JobDir(id)
		for _, d := range []string{dir, filepath.Join(dir, dirAttempts), AttemptDir(dir, 1)} {
			must(t, os.Chtimes(d, then, then))
		}
	}
}

// BenchmarkList reads 1,000 records: from their files, and through the index.
func BenchmarkList(b *testing.B) {
	for _, c := range []struct {
		name           string
		ended, indexed bool
	}{{"pending/files", false, false}, {"pending/index", false, true}, {"ended/files", true, false}, {"ended/index", true, true}} {
		b.Run(c.name, func(b *testing.B) {
			s := open(b)
			fill(b, s, 1000, c.ended)
			if c.indexed {
				age(b, s)
			}
			if _, err := s.List(); err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			for b.Loop() {
				recs, err := s.List()
				if err != nil || len(recs) != 1000 {
					b.Fatal(len(recs), err)
				}
			}
		})
	}
}
