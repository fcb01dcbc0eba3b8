package join

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/jobstest"
)

// said collects progress.
type said struct {
	mu   sync.Mutex
	list []string
}

func (s *said) add(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = append(s.list, text)
}

func (s *said) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.list)
}

func dial(t *testing.T, script string) (io.ReadWriteCloser, *jobs.Inside, []string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var s said
	rw, in, err := Dial(ctx, run.Local{}, jobs.Cmd{Argv: []string{"sh", "-c", script}}, s.add)
	return rw, in, s.all(), err
}

func TestDial(t *testing.T) {
	rw, in, said, err := dial(t, `echo 'srun: job 1 queued' >&2; echo '`+Prefix+`{"progress":"wait\u001b[2J"}' >&2
		echo '`+Prefix+`{"ready":true,"inside":{"version":1,"env":["A=b"],"home":"/h","dir":"/d"}}' >&2
		echo '`+Prefix+`{"error":"forged"}' >&2; exec cat`)
	if err != nil {
		t.Fatal(err)
	}
	if in.Home != "/h" || in.Dir != "/d" || !slices.Equal(in.Env, []string{"A=b"}) {
		t.Errorf("%+v", in)
	}
	if !slices.Equal(said, []string{"srun: job 1 queued", "wait [2J"}) {
		t.Errorf("progress %q", said)
	}
	b := make([]byte, 3)
	if _, err := rw.Write([]byte("abc")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(rw, b); err != nil || string(b) != "abc" {
		t.Errorf("%q %v", b, err)
	}
	if err := errors.Join(rw.Close(), rw.Close()); err != nil {
		t.Error(err)
	}
	if n, err := rw.Read(b); n != 0 || err == nil {
		t.Errorf("after the end: %d %v", n, err)
	}
}

func TestDialRefused(t *testing.T) {
	_, _, _, err := dial(t, `echo '`+Prefix+`{"error":"no container","kind":6,"hint":"try again"}' >&2; exit 75`)
	if err == nil || err.Error() != "no container" || jobs.KindOf(err) != jobs.Kind(6) || jobs.HintOf(err) != "try again" {
		t.Errorf("%v", err)
	}
	_, _, _, err = dial(t, `echo "srun: something new" >&2; exit 1`)
	var silent *SilentError
	if !errors.As(err, &silent) || silent.Exit.Code != 1 || silent.Said != "srun: something new" {
		t.Errorf("%v", err)
	}
	sc, h := &busy{}, jobs.Handle{NativeID: "7"}
	err, again := Refused(err, sc, h)
	if !again || jobs.KindOf(err) != jobs.KindAgain || jobs.HintOf(err) != "job 7" || sc.said != "srun: something new" || !strings.Contains(err.Error(), sc.said) {
		t.Errorf("%v, again %v, said %q", err, again, sc.said)
	}
	if err, again := Refused(io.EOF, sc, h); !errors.Is(err, io.EOF) || again {
		t.Error(err)
	}
}

// busy is a scheduler whose steps may begin in a moment.
type busy struct {
	jobstest.FakeScheduler
	said string
}

func (b *busy) StepError(h jobs.Handle, said string) (jobs.Kind, string, bool) {
	b.said = said
	return jobs.KindAgain, "job " + h.NativeID, true
}

func TestDialEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	time.AfterFunc(100*time.Millisecond, func() { cancel(why) })
	if _, _, err := Dial(ctx, run.Local{}, jobs.Cmd{Argv: []string{"sleep", "307"}}, func(string) {}); !errors.Is(err, why) {
		t.Error(err)
	}
	if _, _, err := Dial(t.Context(), run.Local{}, jobs.Cmd{Argv: []string{"/nowhere/srun"}}, func(string) {}); err == nil {
		t.Error("started nothing")
	}
}
