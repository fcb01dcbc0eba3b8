//go:build compat

package compat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/internal/link/mux"
	"berth/internal/link/session"
	"berth/internal/node/keeper"
	"berth/jobs"
	"berth/jobs/store"
)

// TestLink uses environments as from a login node: through a holder of the
// connection and a far side beside the keeper, each of either version. No
// scheduler is needed: the far command is started here. The client is this
// version's.
func TestLink(t *testing.T) {
	t.Parallel()
	names := map[string]string{before: "old", now: "new"}
	for _, kept := range []string{before, now} {
		for _, far := range []string{before, now} {
			for _, held := range []string{before, now} {
				t.Run(fmt.Sprintf("%s-keeper/%s-far-side/%s-holder", names[kept], names[far], names[held]), func(t *testing.T) {
					t.Parallel()
					link(t, kept, far, held)
				})
			}
		}
	}
}

func link(t *testing.T, kept, far, held string) {
	state := filepath.Join(t.TempDir(), "state")
	berth := func(program string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), "BERTH_HOME="+state, "HOME="+t.TempDir(), "XDG_CONFIG_HOME="+t.TempDir(), "BERTH_ENV=place")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("berth %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	berth(kept, "exec", "--backend", "local", "--", "export X=1")
	t.Cleanup(func() {
		stop := exec.Command(now, "env", "stop", "place")
		stop.Env = append(os.Environ(), "BERTH_HOME="+state)
		if out, err := stop.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	dir := filepath.Join(state, "envs", "place")
	spec, err := store.LoadEnv(dir)
	must(t, err)
	l := mux.Link{Dir: dir, ID: spec.ID, Node: held, Command: func(context.Context) (jobs.Cmd, error) {
		return jobs.Cmd{Argv: []string{far, "connect", "--env", dir, "--mux"}, Dir: "/"}, nil
	}}
	t.Cleanup(func() {
		if err := l.End(context.Background()); err != nil {
			t.Error(err)
		}
	})
	conn, rep, err := l.Dial(t.Context())
	must(t, err)
	if !rep.Ready {
		t.Errorf("%+v", rep)
	}
	pipes := filepath.Join(dir, "pipes")
	must(t, os.Mkdir(pipes, 0o700))
	s, err := session.Open(t.Context(), conn, conn, session.Options{Pipes: l.Pipes(pipes, pipes)})
	must(t, err)
	defer func() { _ = s.Close() }()
	sh := func(text string, in io.Reader) string {
		t.Helper()
		var out bytes.Buffer
		p, err := s.Start(session.StartRequest{Command: jobs.Command{Shell: text}, Session: "default", Stdin: in, Much: true}, &out, io.Discard)
		must(t, err)
		defer time.AfterFunc(patience, func() { _ = p.Terminate(0) }).Stop()
		res, err := p.Wait()
		must(t, err)
		if !res.Exit.OK() {
			t.Errorf("%s: %+v", text, res.Exit)
		}
		return out.String()
	}
	if out := sh("echo $X", nil); out != "1\n" {
		t.Errorf("%q", out)
	}
	much := strings.Repeat("0123456789", 60_000) // more than goes without a file
	if out := sh("cat", strings.NewReader(much)); out != much {
		t.Errorf("%d bytes came back, not %d", len(out), len(much))
	}

	// Operations on files.
	path := filepath.Join(t.TempDir(), "file")
	_, err = s.WriteFile(t.Context(), "default", path, strings.NewReader("one two\n"), session.WriteOptions{})
	must(t, err)
	n, err := s.EditFile(t.Context(), "default", path, session.Edit{Old: "one", New: "three"})
	b, rerr := os.ReadFile(path)
	must(t, rerr)
	if kept == before && err != nil { // editing is another operation now
		if jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(jobs.HintOf(err), "berth env stop") || string(b) != "one two\n" {
			t.Errorf("%v, %q: %q", err, jobs.HintOf(err), b)
		}
	} else if err != nil || n != 1 || string(b) != "three two\n" {
		t.Errorf("%d, %v: %q", n, err, b)
	}
	found, err := s.Search(t.Context(), "default", path, session.Query{Pattern: "two"})
	if err != nil || len(found.Matches) != 1 {
		t.Errorf("%+v, %v", found, err)
	}
	list, err := s.List(t.Context(), "default", filepath.Dir(path), session.ListOptions{})
	if err != nil || len(list.Entries) != 1 {
		t.Errorf("%+v, %v", list, err)
	}

	// Its end is told as what it is.
	berth(now, "env", "stop", "place")
	<-s.Gone()
	if _, _, err := l.Dial(t.Context()); !errors.Is(err, keeper.ErrNotRunning) {
		t.Error(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err, jobs.HintOf(err))
	}
}
