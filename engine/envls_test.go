package engine

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"berth/backends/local"
	"berth/internal/node/keeper"
	"berth/internal/sys/run"
	"berth/jobs"
)

// hosts are other machines: "hangs" takes whoever asks and says nothing, "asks" wants a
// password, and on others nothing runs.
type hosts struct {
	local.Backend
	asked chan string
}

func (hosts) Name() string { return "hosts" }

func (h hosts) Connect(ctx context.Context, s *jobs.EnvSpec, terminal bool) error {
	person := terminal && !run.IsUnattended(ctx)
	h.asked <- s.Name
	switch {
	case s.SSH.Host == "hangs":
		<-ctx.Done()
		return context.Cause(ctx)
	case s.SSH.Host == "asks" && !person:
		return &jobs.Error{Kind: jobs.KindAuth, Msg: "a password is wanted"}
	}
	return nil
}

func (hosts) Dial(context.Context, *jobs.EnvSpec, keeper.OpenOptions) (io.ReadWriteCloser, *keeper.Report, error) {
	return nil, nil, ErrNotRunning
}

func (hosts) Far(context.Context, *jobs.EnvSpec) (jobs.Cmd, error) { return jobs.Cmd{}, nil }

// A host that hangs is told apart and holds up no other; a person is asked only afterwards.
func TestShowAll(t *testing.T) {
	f := newFixture(t)
	for _, terminal := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h := hosts{asked: make(chan string, 10)}
			f.Backends, f.Terminal = []jobs.Backend{h}, terminal
			var list []*Environment
			for _, at := range []string{"first hangs", "second hangs", "third asks", "fourth idles"} {
				name, host, _ := strings.Cut(at, " ")
				spec := jobs.EnvSpec{Name: name, Place: jobs.Place{Backend: "hosts", SSH: &jobs.SSHSpec{Host: host}}}
				list = append(list, &Environment{e: f.Engine, dir: t.TempDir(), Spec: spec})
			}
			shown := f.ShowAll(t.Context(), list, true)
			close(h.asked)
			for i, want := range []string{"did not answer within 20s", "did not answer within 20s", "a password is wanted", ""} {
				if i == 2 && terminal {
					want = ""
				}
				got := ""
				if s := shown[i]; s.Err != nil {
					got = s.Err.Error()
				}
				if s := shown[i]; s.Spec.Name != list[i].Spec.Name || s.Silent != (i < 2) || (got == "") != (want == "") || !strings.Contains(got, want) {
					t.Errorf("%s: %q %+v", list[i].Spec.Name, got, s)
				}
			}
			var asked []string
			for name := range h.asked {
				asked = append(asked, name)
			}
			if slices.Contains(asked, "second") || terminal && asked[len(asked)-1] != "third" {
				t.Errorf("asked: %v", asked)
			}
		})
	}
}
