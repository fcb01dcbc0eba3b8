package jobstest

import (
	"os"
	"path/filepath"
	"testing"

	"berth/jobs"
)

// TestScheduler holds a scheduler to the obligations of [jobs.Scheduler].
// newEnv makes a fresh environment for each case.
func TestScheduler(t *testing.T, newEnv func(t *testing.T) Env) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Env)
	}{
		{"check says healthy", checkHealthy},
		{"render is pure and repeatable", renderPure},
		{"a job runs and ends", runAndEnd},
		{"a job fails with its exit code", failWithCode},
		{"names lead to handles", findByName},
		{"a lost reply is found again", lostReply},
		{"a refused job leaves nothing", refused},
		{"cancel a pending job", cancelPending},
		{"cancel a running job", cancelRunning},
		{"cancel twice, and what is over", cancelTwice},
		{"cancel and ask about the unknown", unknown},
		{"an id alone is not a job", idOfAnotherName},
		{"many in one question", many},
		{"nothing asked, nothing answered", nothing},
		{"a failing query is an error and no state", broken},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, newEnv(t)) })
	}
}

func checkHealthy(t *testing.T, env Env) {
	if c := env.Scheduler.Check(t.Context()); c.Health != jobs.Healthy || c.Reason == "" {
		t.Errorf("%+v", c)
	}
	if env.Scheduler.Name() == "" {
		t.Error("no name")
	}
}

func renderPure(t *testing.T, env Env) {
	j := newJob(t, env)
	first, err1 := env.Scheduler.Render(j.launch)
	second, err2 := env.Scheduler.Render(j.launch)
	if err1 != nil || err2 != nil || first == "" || first != second {
		t.Errorf("%v, %v, same: %v", err1, err2, first == second)
	}
	j.launch.Argv = append(j.launch.Argv, "line\nbreak")
	if s, err := env.Scheduler.Render(j.launch); err == nil {
		t.Errorf("a line break was rendered:\n%s", s)
	}
}

func runAndEnd(t *testing.T, env Env) {
	j := newJob(t, env).submit(t)
	if j.handle.Version == 0 || j.handle.Scheduler != env.Scheduler.Name() || j.handle.NativeID == "" || j.handle.Name != j.launch.Name {
		t.Errorf("handle %+v", j.handle)
	}
	if st, known := j.status(t); !known || (st.State != jobs.StatePending && st.State != jobs.StateRunning) {
		t.Errorf("after the submission: known %v, %+v", known, st)
	}
	j.start(t)
	j.end(0)
	st := j.await(t, "over", over)
	if env.Remembers && st.State != jobs.StateCompleted {
		t.Errorf("%+v", st)
	}
}

func failWithCode(t *testing.T, env Env) {
	j := newJob(t, env).submit(t)
	j.start(t)
	j.end(7)
	st := j.await(t, "over", over)
	if env.Remembers && (st.State != jobs.StateFailed || st.Code != 7) {
		t.Errorf("%+v", st)
	}
}

func findByName(t *testing.T, env Env) {
	a, b := newJob(t, env).submit(t), newJob(t, env).submit(t)
	found, err := env.Scheduler.Find(t.Context(), []string{a.launch.Name, "berth-never-submitted-000000000000", b.launch.Name})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 2 || found[a.launch.Name].NativeID != a.handle.NativeID || found[b.launch.Name].NativeID != b.handle.NativeID {
		t.Errorf("found %+v; submitted %s, %s", found, a.handle.NativeID, b.handle.NativeID)
	}
}

func lostReply(t *testing.T, env Env) {
	if env.LoseReply == nil {
		t.Skip("this scheduler's reply cannot be lost")
	}
	j := newJob(t, env)
	j.endWithTest(t)
	env.LoseReply(t)
	if h, err := env.Scheduler.Submit(t.Context(), j.launch, j.script); jobs.KindOf(err) != jobs.KindUnclear {
		t.Fatalf("handle %+v, error %v; want kind unclear", h, err)
	}
	eventually(t, env, "the job is found by its name", func() bool {
		found, err := env.Scheduler.Find(t.Context(), []string{j.launch.Name})
		if err != nil {
			t.Fatal(err)
		}
		h, ok := found[j.launch.Name]
		j.handle = h
		return ok
	})
	j.start(t)
}

func refused(t *testing.T, env Env) {
	j := newJob(t, env, env.Bad)
	h, err := env.Scheduler.Submit(t.Context(), j.launch, j.script)
	if jobs.KindOf(err) != jobs.KindRejected || jobs.HintOf(err) == "" {
		t.Errorf("handle %+v, error %v, hint %q", h, err, jobs.HintOf(err))
	}
	if found, err := env.Scheduler.Find(t.Context(), []string{j.launch.Name}); err != nil || len(found) != 0 {
		t.Errorf("found %+v, %v", found, err)
	}
}

func cancelPending(t *testing.T, env Env) {
	j := newJob(t, env, func(l *jobs.Launch) { env.Hold(t, l) }).submit(t)
	j.await(t, "pending", func(st jobs.Status, known bool) bool { return known && st.State == jobs.StatePending })
	j.cancel(t)
	st := j.await(t, "over", over)
	if env.Remembers && st.State != jobs.StateCancelled {
		t.Errorf("%+v", st)
	}
	if _, err := os.Stat(filepath.Join(j.launch.Dir, "started")); err == nil {
		t.Error("the cancelled job ran")
	}
}

func (j *job) cancel(t *testing.T) {
	t.Helper()
	if err := j.env.Scheduler.Cancel(t.Context(), []jobs.Handle{j.handle}); err != nil {
		t.Fatalf("cancel: %v", err)
	}
}

func cancelRunning(t *testing.T, env Env) {
	j := newJob(t, env).submit(t)
	j.start(t)
	j.cancel(t)
	st := j.await(t, "over", over)
	if env.Remembers && st.State != jobs.StateCancelled {
		t.Errorf("%+v", st)
	}
}

func cancelTwice(t *testing.T, env Env) {
	j := newJob(t, env).submit(t)
	j.start(t)
	j.cancel(t)
	j.cancel(t)
	j.await(t, "over", over)
	j.cancel(t)
}

func unknown(t *testing.T, env Env) {
	j := newJob(t, env).submit(t)
	h := j.handle
	h.NativeID, h.Name = h.NativeID+"9", "berth-never-submitted-000000000000"
	strange := jobs.Handle{Version: 1, Scheduler: env.Scheduler.Name(), NativeID: "no id; at all", Name: "berth-strange-000000000000"}
	if err := env.Scheduler.Cancel(t.Context(), []jobs.Handle{h, strange}); err != nil {
		t.Errorf("cancel: %v", err)
	}
	answer, err := env.Scheduler.Status(t.Context(), []jobs.Handle{h, j.handle, strange})
	if err != nil || len(answer) != 1 || answer[j.handle.Name].State == "" {
		t.Errorf("%+v, %v", answer, err)
	}
}

// A reinstalled scheduler uses job ids again; names stay unique.
func idOfAnotherName(t *testing.T, env Env) {
	j := newJob(t, env).submit(t)
	j.start(t)
	wrong := j.handle
	wrong.Name = "berth-another-000000000000"
	if answer, err := env.Scheduler.Status(t.Context(), []jobs.Handle{wrong}); err != nil || len(answer) != 0 {
		t.Errorf("%+v, %v", answer, err)
	}
	if err := env.Scheduler.Cancel(t.Context(), []jobs.Handle{wrong}); err != nil {
		t.Errorf("cancel: %v", err)
	}
	if st, known := j.status(t); !known || st.State != jobs.StateRunning {
		t.Errorf("the job with that id was hit: %+v", st)
	}
}

func many(t *testing.T, env Env) {
	const n = 20
	var handles []jobs.Handle
	for range n {
		j := newJob(t, env, func(l *jobs.Launch) { env.Hold(t, l) }).submit(t)
		handles = append(handles, j.handle)
	}
	answer, err := env.Scheduler.Status(t.Context(), handles)
	if err != nil || len(answer) != n {
		t.Fatalf("%d answers, %v", len(answer), err)
	}
	for name, st := range answer {
		if st.State != jobs.StatePending {
			t.Errorf("%s: %+v", name, st)
		}
	}
	if err := env.Scheduler.Cancel(t.Context(), handles); err != nil {
		t.Fatal(err)
	}
	eventually(t, env, "all are over", func() bool {
		answer, err := env.Scheduler.Status(t.Context(), handles)
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range answer {
			if !st.State.Final() {
				return false
			}
		}
		return true
	})
}

func nothing(t *testing.T, env Env) {
	s := env.Scheduler
	found, err1 := s.Find(t.Context(), nil)
	answer, err2 := s.Status(t.Context(), nil)
	err3 := s.Cancel(t.Context(), nil)
	if err1 != nil || err2 != nil || err3 != nil || len(found) != 0 || len(answer) != 0 {
		t.Error(found, answer, err1, err2, err3)
	}
}

func broken(t *testing.T, env Env) {
	j := newJob(t, env).submit(t)
	j.start(t)
	env.Break(t)
	if answer, err := env.Scheduler.Status(t.Context(), []jobs.Handle{j.handle}); err == nil {
		t.Errorf("status answered %+v", answer)
	}
	if found, err := env.Scheduler.Find(t.Context(), []string{j.launch.Name}); err == nil {
		t.Errorf("find answered %+v", found)
	}
}
