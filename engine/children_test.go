package engine

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"berth/jobs"
	"berth/jobs/store"
)

// A child has none of its parent's options of a submission that would have it ask for
// more than it counts.
func TestChildOptions(t *testing.T) {
	of := &jobs.Spec{ID: "00000000-0000-7000-8000-000000000001"}
	of.Scheduler = jobs.SchedulerSlurm
	of.Slurm.Account = "lab"
	of.Slurm.Extra = []string{"--exclusive", "--gres=gpu:8", "--mem-per-cpu=64G", "--mincpus=64", "--gpus-per-node=8", "--reservation=r", "--exclude=n1"}
	c := &jobs.Child{Job: "00000000-0000-7000-8000-000000000002", Name: "x", Command: jobs.Command{Argv: []string{"true"}}}
	s, err := new(Engine).childOf(of, c)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Slurm.Extra; !slices.Equal(got, []string{"--reservation=r", "--exclude=n1"}) || s.Slurm.Account != "lab" {
		t.Errorf("%q, account %q", got, s.Slurm.Account)
	}
	if len(of.Slurm.Extra) != 7 {
		t.Errorf("its parent has %q", of.Slurm.Extra)
	}
}

// A child has the network and the scope that it asked for within its parent's, and the level
// that goes with it. What is recorded is asked once more: a record of more submits nothing.
func TestChildNarrower(t *testing.T) {
	of := &jobs.Spec{ID: "00000000-0000-7000-8000-000000000001", Workspace: &jobs.WorkspaceSpec{Scope: []string{"src"}}}
	of.Scheduler, of.Backend, of.Level = jobs.SchedulerLocal, jobs.BackendSingularity, jobs.LevelFS
	c := &jobs.Child{Job: "00000000-0000-7000-8000-000000000002", Name: "x", Network: jobs.NetworkNone, Scope: []string{"src/a"}}
	s, err := new(Engine).childOf(of, c)
	if err != nil || s.Network.Mode != jobs.NetworkNone || s.Level != jobs.LevelEgress || !slices.Equal(s.Workspace.Scope, c.Scope) {
		t.Errorf("%+v, %v", s, err)
	}
	if of.Network.Mode != "" || of.Workspace.Scope[0] != "src" {
		t.Errorf("its parent is %+v", of)
	}
	of.Network = jobs.Network{Mode: jobs.NetworkAllow, Allow: []string{"a.test"}}
	c.Network, c.Allow = "", []string{"b.test"}
	if s, err := new(Engine).childOf(of, c); jobs.KindOf(err) != jobs.KindUsage {
		t.Errorf("%+v, %v", s, err)
	}
	c.Allow, c.Scope = nil, nil
	if s, err = new(Engine).childOf(of, c); err != nil || !slices.Equal(s.Network.Allow, of.Network.Allow) || !slices.Equal(s.Workspace.Scope, of.Workspace.Scope) {
		t.Errorf("%+v, %v", s, err)
	}
}

// What its task was told has failed is not submitted afterwards, by a process that the
// runner has left behind.
func TestRefusedChild(t *testing.T) {
	dir := t.TempDir()
	if won, err := store.AddChild(dir, jobs.Child{Version: 1, Number: 1, Job: "00000000-0000-7000-8000-000000000002"}); err != nil || !won {
		t.Fatal(won, err)
	}
	if err := store.SetChildRefused(dir, 1, "its runner was killed"); err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(filepath.Join(t.TempDir(), "home"))
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{Store: st}
	_, err = e.SubmitChild(t.Context(), &jobs.Record{Dir: dir}, 1, "")
	if jobs.KindOf(err) != jobs.KindRejected || !strings.Contains(err.Error(), "its runner was killed") {
		t.Error(err)
	}
}
