package docker

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"

	"berth/jobs"
)

// TestChanges: what "diff" says, without what is not the task's.
func TestChanges(t *testing.T) {
	c := container{}
	c.Mounts = append(c.Mounts, struct {
		Type, Name, Source, Destination string

		RW bool
	}{Destination: "/.berth/node"}, struct {
		Type, Name, Source, Destination string

		RW bool
	}{Destination: "/home/alice/"})
	got := c.changes("A /.berth\nA /.berth/node\nC /home\nA /home/alice\nA /home/bob\nC /etc\nC /etc/passwd\nD /etc/issue\nC /empty\nA /deep\nA /deep/f\nA /a\nbreak\nX /y\n")
	want := "added /home/bob|changed /etc/passwd|deleted /etc/issue|changed /empty|added /deep|added /deep/f|added /a"
	if !slices.Equal(got, strings.Split(want, "|")) {
		t.Errorf("%q", got)
	}
	if got := c.changes(""); len(got) != 0 {
		t.Errorf("of nothing: %q", got)
	}
}

// answers is a docker that says for each of its verbs what stands there; what else it is asked
// has no end but that of the time there is.
type answers struct {
	of   map[string]string
	over context.CancelFunc
}

func (a answers) Start(ctx context.Context, c jobs.Cmd) (jobs.Process, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	said, ok := a.of[c.Argv[1]]
	if !ok {
		a.over()
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	_, err := io.WriteString(c.Stdout, said)
	return ended{}, err
}

type ended struct{}

func (ended) Signal(syscall.Signal) error { return nil }
func (ended) Wait() (jobs.Exit, error)    { return jobs.Exit{Started: true}, nil }

// TestKeepBeforeChanges keeps a place in a time that does not do for what has changed in it.
func TestKeepBeforeChanges(t *testing.T) {
	ctx, over := context.WithCancel(t.Context())
	defer over()
	s := &jobs.EnvSpec{ID: "01890000-0000-7000-8000-0123456789ab", Home: "/state"}
	digest := pinned + strings.Repeat("a", 64)
	labels := fmt.Sprintf(`{%q: "1", %q: %q, %q: %q, %q: %q}`, labelVersion, labelEnv, s.ID, labelHome, s.Home, labelUser, uid())
	p := &program{path: "docker", on: answers{over: over, of: map[string]string{
		"ps": "c1\n", "container": `[{"Id": "c1", "Config": {"Labels": ` + labels + `}}]`, "commit": digest + "\n",
	}}}
	note := ""
	at := jobs.OpenPlace{Dir: t.TempDir(), Attempt: &jobs.OpenAttempt{Name: "a", Note: func(text string) { note += text }}}
	if err := p.keep(ctx, s, at, "1000:1000", "/home/a"); err != nil || s.Image != digest {
		t.Errorf("%q: %v", s.Image, err)
	}
	if !strings.Contains(note, "changed in the container is not known") {
		t.Errorf("%q", note)
	}
}
