package container

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"berth/internal/link/session"
	"berth/jobs"
)

// TestCompare plays what an image may put in the guest's place. This test's own
// program is the guest; what is not may be read, or may not.
func TestCompare(t *testing.T) {
	if p := compare(os.Getpid(), 0); p.compared || p.why == "" {
		t.Errorf("without a container: %+v", p)
	}
	dir := t.TempDir()
	self, err := os.Open(ownProgram)
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	copied := func(name string, change func(b []byte) []byte) string {
		if _, err := self.Seek(0, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(self)
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, change(b), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}
	guest := copied("guest", func(b []byte) []byte { return b })
	longer := copied("longer", func(b []byte) []byte { return append(b, 0) })
	other := copied("other", func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
	for name, c := range map[string]struct {
		inside   string
		same     bool
		stranger string
	}{
		"the guest":           {`"$GUEST" sleep & wait`, true, ""},
		"the guest alone":     {`exec "$GUEST" sleep`, true, ""},
		"a program beside it": {`"$GUEST" sleep & sleep 60 & wait`, false, "sleep"},
		"a program between":   {`sh -c '"$GUEST" sleep & wait' & wait`, false, "sh"},
		"another namespace":   {`unshare -Upf sleep 60 & "$GUEST" sleep & wait`, false, ""},
		"one byte more":       {`"$LONGER" sleep & wait`, false, "longer"},
		"one byte other":      {`"$OTHER" sleep & wait`, false, "other"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GUEST", guest)
			t.Setenv("LONGER", longer)
			t.Setenv("OTHER", other)
			t.Setenv(envSleep, "1")
			cmd := tree(t, "unshare", "-Urmpf", "--kill-child", "--mount-proc", "sh", "-c", "echo ready; "+c.inside)
			eventually(t, "what is expected of "+name, func() bool {
				p := compare(cmd.Process.Pid, 0)
				if c.same {
					return p.compared && p.stranger == ""
				}
				return !p.compared && p.stranger != "" && strings.Contains(p.stranger, c.stranger)
			})
		})
	}
	if d := describe(os.Getpid()); d != strconv.Quote(mustReadlink(t, ownProgram)) {
		t.Errorf("this process is %s", d)
	}
}

// TestWhoAnswered has the same said of places of other kinds.
func TestWhoAnswered(t *testing.T) {
	nobody := func(context.Context) int { return 0 }
	self := func(context.Context) int { return os.Getpid() }
	for name, c := range map[string]struct {
		op   jobs.Opening
		says string
	}{
		"no container":            {jobs.Opening{Level: jobs.LevelNone}, ""},
		"a service":               {jobs.Opening{Level: jobs.LevelFS, Answer: func(io.Reader) error { return nil }}, "not compared with berth's own: it runs on another machine; an image"},
		"a daemon elsewhere":      {jobs.Opening{Level: jobs.LevelFS, Init: self}, "its first process is not one that this machine's numbers name; an image"},
		"a daemon that is silent": {jobs.Opening{Level: jobs.LevelFS, Init: nobody}, "its first process is not known; an image"},
	} {
		box := &Container{o: Options{Opening: &c.op}}
		p, err := box.whoAnswered(t.Context())
		if err != nil || !strings.Contains(p.words(), c.says) || (c.says == "") != (p.words() == "") {
			t.Errorf("%s: %q, %v", name, p.words(), err)
		}
	}
	// A program of the image is an error, but where it has to run.
	cmd := tree(t, "unshare", "-Urmpf", "--kill-child", "--mount-proc", "sh", "-c", "echo ready; exec sleep 60")
	var first int
	eventually(t, "it stands", func() (ok bool) { first, _, ok = Init(cmd.Process.Pid); return ok })
	box := &Container{session: &session.Session{}, o: Options{Opening: &jobs.Opening{Level: jobs.LevelFS, Init: func(context.Context) int { return first }}}}
	if _, err := box.whoAnswered(t.Context()); jobs.KindOf(err) != jobs.KindConfig || jobs.HintOf(err) == "" || !strings.Contains(err.Error(), "runs there") {
		t.Errorf("another program: %v", err)
	}
	box.o.Opening.RunsFirst = "it has to"
	if p, err := box.whoAnswered(t.Context()); err != nil || !strings.Contains(p.words(), "not compared with berth's own: it has to;") {
		t.Errorf("another program that has to run: %+v, %v", p, err)
	}
	box.o.Opening.RunsFirst, box.ended = "", make(chan struct{})
	close(box.ended)
	if _, err := box.whoAnswered(t.Context()); !errors.Is(err, session.ErrGuestGone) {
		t.Errorf("of a container that has ended: %v", err)
	}
}

// TestCompareStreams: a guest that talks with a program that hides has other pipes.
func TestCompareStreams(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	cmd := exec.Command("unshare", "-Urmpf", "--kill-child", "--mount-proc", ownProgramPath(t), "sleep")
	cmd.Env = append(os.Environ(), envSleep+"=1")
	cmd.Stdin = r
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	eventually(t, "it stands", func() bool { return compare(cmd.Process.Pid, 0).compared })
	if p := compare(cmd.Process.Pid, 0, r); !p.compared {
		t.Errorf("with the pipe that it was given: %+v", p)
	}
	if p := compare(cmd.Process.Pid, 0, r, w); p.compared || !strings.Contains(p.stranger, "streams") {
		t.Errorf("with one that it was not: %+v", p)
	}
}

func ownProgramPath(t *testing.T) string { return mustReadlink(t, ownProgram) }

func mustReadlink(t *testing.T, path string) string {
	t.Helper()
	s, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
