package engine

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"berth/internal/node/keeper"
	"berth/jobs"
)

// holding is a backend whose environments have no streams, and that opens one
// under its hold as the real one does.
type holding struct {
	keeps
	mu      sync.Mutex
	opening int
	opened  int
	twice   bool   // two have opened it at once
	during  func() // while it opens
}

func (h *holding) OpenOnce(_ context.Context, _ *jobs.EnvSpec, o jobs.Once) ([]string, error) {
	release, err := o.Hold()
	if err != nil {
		return nil, err
	}
	defer release()
	h.add(&h.opening, 1)
	defer h.add(&h.opening, -1)
	h.during()
	h.add(&h.opened, 1)
	return nil, nil
}

func (h *holding) add(to *int, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*to += n
	h.twice = h.twice || h.opening > 1
}

func (h *holding) Exec(ctx context.Context, s *jobs.EnvSpec, o jobs.Once) (jobs.Exit, []string, error) {
	notes, err := h.OpenOnce(ctx, s, o)
	return jobs.Exit{Started: err == nil}, notes, err
}

// Of two first commands of an environment without streams the second waits, as
// for a keeper that begins, and each opens it alone.
func TestOneShotWaitsForItsOpening(t *testing.T) {
	f := newFixture(t)
	waits := make(chan struct{}, 1)
	h := &holding{}
	var first sync.Once
	h.during = func() {
		first.Do(func() {
			select {
			case <-waits:
			case <-time.After(time.Minute):
				t.Error("the other one does not wait")
			}
		})
	}
	f.Backends = []jobs.Backend{h}
	v := recorded(t, f.Engine, "e", "one", true)
	v.Spec.External = &jobs.ExternalSpec{OneShot: true}
	v.Progress = func(string) {
		select {
		case waits <- struct{}{}:
		default: // it has been said
		}
	}
	other, err := f.FindEnvironment("e")
	must(t, err)
	other.Spec.External, other.Progress = v.Spec.External, v.Progress
	var all sync.WaitGroup
	for _, v := range []*Environment{v, other} {
		all.Go(func() {
			if res, err := v.OneShot().Exec(t.Context(), ExecRequest{Command: jobs.Command{Argv: []string{"true"}}}); err != nil || res.Code != 0 {
				t.Errorf("%+v %v", res, err)
			}
		})
	}
	all.Wait()
	if h.opened != 2 || h.twice {
		t.Errorf("opened %d times, two at once: %v", h.opened, h.twice)
	}

	// Who waits can be interrupted.
	release, err := keeper.Hold(v.dir, "one")
	must(t, err)
	defer release()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	v.Progress = func(string) { cancel(why) }
	if err := v.openOneShot(ctx); !errors.Is(err, why) {
		t.Error(err)
	}
}

// A directory below HOME is found by the shell inside, which knows it.
func TestOnceInHome(t *testing.T) {
	home := t.TempDir()
	if err := os.Mkdir(filepath.Join(home, "a b"), 0o700); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"~": home, "~/a b": filepath.Join(home, "a b"), home: home} {
		argv := onceArgv(jobs.Command{Shell: "pwd"}, dir, nil)
		cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
		cmd.Env = []string{"HOME=" + home}
		if out, err := cmd.Output(); err != nil || string(out) != want+"\n" {
			t.Errorf("%s: %q, %v", dir, out, err)
		}
	}
}
