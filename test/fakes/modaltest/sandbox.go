package modaltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
	"berth/test/fakes/sweep"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Sandbox is one that was made.
type Sandbox struct {
	ID, Name, App, Task string
	Tags                map[string]string
	Definition          *pb.Sandbox
	Dir                 string // its files, and HOME of what runs there
	Created             time.Time

	env      []string
	exitSnap string // image of its last state, where that was asked for

	mu     sync.Mutex
	result *pb.GenericResult
	execs  map[string]*execution
	idle   limit
	over   limit
	ended  chan struct{}
}

// limit ends a sandbox at a time.
type limit struct {
	timer *time.Timer // nil is none
	at    time.Time
}

func limited(d time.Duration, end func()) limit {
	return limit{timer: time.AfterFunc(d, end), at: time.Now().Add(d)}
}

func (l limit) stop() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

type image struct {
	id  string
	dir string // of files that a sandbox begins with; "" is none
}

// Result is how it ended; nil as long as it has not.
func (b *Sandbox) Result() *pb.GenericResult {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.result
}

func (s *Server) create(app string, def *pb.Sandbox, tags []*pb.SandboxTag, v2 bool, env map[string]string) (*Sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.creates = slices.DeleteFunc(s.creates, func(at time.Time) bool { return time.Since(at) > time.Second })
	if s.PerSecond > 0 && len(s.creates) >= s.PerSecond {
		s.refused++
		return nil, status.Errorf(codes.ResourceExhausted, "Sandbox creation rate limit (%d/s) exceeded", s.PerSecond)
	}
	known := false
	for _, id := range s.apps {
		known = known || id == app
	}
	im := s.images[def.GetImageId()]
	switch {
	case !known:
		return nil, status.Error(codes.NotFound, "no such app")
	case im == nil:
		return nil, status.Errorf(codes.NotFound, "Image %s not found", def.GetImageId())
	case def.GetTimeoutSecs() == 0 || def.GetTimeoutSecs() > 86400:
		return nil, status.Error(codes.InvalidArgument, "timeout_secs must be between 1 and 86400")
	case v2 && def.GetResources().GetGpuConfig().GetGpuType() != "":
		return nil, status.Error(codes.InvalidArgument, "GPUs are not supported by this backend")
	case def.GetResources().GetEphemeralDiskMb() != 0:
		return nil, status.Error(codes.InvalidArgument, "ephemeral disk requests are not supported")
	}
	for _, b := range s.sandboxes {
		if def.GetName() != "" && b.Name == def.GetName() && b.App == app && b.Result() == nil {
			return nil, status.Errorf(codes.AlreadyExists, "Sandbox with name '%s' already exists", b.Name)
		}
	}
	id := s.id("sb")
	if v2 {
		id = "sb-v2-" + strings.TrimPrefix(id, "sb-")
	}
	b := &Sandbox{
		ID: id, Name: def.GetName(), App: app, Task: s.id("ta"), Tags: map[string]string{}, Definition: def, Dir: s.home(def.GetName(), id),
		Created: time.Now(), execs: map[string]*execution{}, ended: make(chan struct{}),
	}
	for _, t := range tags {
		b.Tags[t.GetTagName()] = t.GetTagValue()
	}
	for k, v := range env {
		b.env = append(b.env, k+"="+v)
	}
	if err := os.MkdirAll(filepath.Dir(b.Dir), 0o700); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(b.Dir); err != nil {
		return nil, err
	}
	if err := copyTree(im.dir, b.Dir); err != nil {
		return nil, err
	}
	b.over = limited(time.Duration(def.GetTimeoutSecs())*time.Second, func() { s.end(b, pb.GenericResult_GENERIC_STATUS_TIMEOUT) })
	s.sandboxes[id] = b
	s.creates = append(s.creates, b.Created)
	b.watchIdle(s)
	return b, nil
}

// watchIdle begins to count when nothing runs in it. Its caller sees to it that no
// other change of its processes is under way.
func (b *Sandbox) watchIdle(s *Server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.idle.stop()
	most := b.Definition.GetIdleTimeoutSecs()
	if most == 0 || b.result != nil {
		return
	}
	for _, x := range b.execs {
		if !x.over() {
			return
		}
	}
	b.idle = limited(time.Duration(most)*time.Second, func() { s.end(b, pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT) })
}

// end ends everything in a sandbox, and keeps its last state where asked to.
func (s *Server) end(b *Sandbox, why pb.GenericResult_GenericStatus) {
	b.mu.Lock()
	if b.result != nil {
		b.mu.Unlock()
		<-b.ended
		return
	}
	b.result = pb.GenericResult_builder{Status: why}.Build()
	b.idle.stop()
	b.over.stop()
	b.mu.Unlock()
	defer close(b.ended)
	b.killAll()
	if b.Definition.GetExperimentalOptionsV2()["enable_exit_snapshot"] == "true" {
		if id, err := s.snapshot(b); err == nil {
			b.mu.Lock()
			b.exitSnap = id
			b.mu.Unlock()
		}
	}
	_ = os.RemoveAll(b.Dir)
}

func (s *Server) snapshot(b *Sandbox) (string, error) {
	s.mu.Lock()
	id := s.id("im")
	s.mu.Unlock()
	dir := filepath.Join(s.dir, "images", id)
	if err := copyTree(b.Dir, dir); err != nil {
		return "", err
	}
	s.mu.Lock()
	s.images[id] = &image{id: id, dir: dir}
	s.mu.Unlock()
	return id, nil
}

// copyTree copies files as they are; from "" is an empty tree.
func copyTree(from, to string) error {
	if from == "" {
		return os.MkdirAll(to, 0o700)
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	var said bytes.Buffer
	p, err := run.Local{}.Start(context.Background(), jobs.Cmd{Argv: []string{"cp", "-a", "--", from, to}, Stderr: &said})
	if err != nil {
		return err
	}
	if e, err := p.Wait(); err != nil || !e.OK() {
		return errors.Join(err, fmt.Errorf("copy a tree: %s", said.String()))
	}
	return nil
}

// killAll kills what was started in the sandbox and all that came of it. A process
// that is no child of the sandbox's any more is known by its environment, or by the directory
// that it is in: with a real sandbox everything ends.
func (b *Sandbox) killAll() {
	var roots []int
	b.mu.Lock()
	for _, x := range b.execs {
		if pid := x.pid(); pid > 0 && !x.over() {
			roots = append(roots, pid)
		}
	}
	b.mu.Unlock()
	sweep.End(sweep.Mark{Env: "MODAL_TASK_ID=" + b.Task, Dir: b.Dir}, roots...)
}
