package modal

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/backends/external/protocol"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
)

// probe tells what there is in a sandbox: its machine, where the guest belongs,
// whether it stands there, and the last command that it was the program of.
const probe = `d=${HOME:-/root}/.berth; uname -m; echo "$d"; [ -x "$d/$1" ] && echo yes || echo no; cat "$d/stream" 2>/dev/null || echo -`

// put takes a program of $2 bytes from its input. Only whole it gets its name;
// those of other versions go.
const put = `set -e; umask 022; d=${HOME:-/root}/.berth; mkdir -p "$d"; n=$d/.new-$$; cat >"$n"; ` +
	`[ "$(wc -c <"$n")" -eq "$2" ]; chmod 755 "$n"; rm -f "$d"/berth-node-*; mv "$n" "$d/$1"`

// enter notes the command's id $1 in the file $2, for [opening.leave], and becomes
// the command.
const enter = `echo "$1" >"$2"; shift 2; exec "$@"`

const (
	streamFile = "stream"
	installed  = 5 * time.Minute // for the program on its way
	leaves     = time.Minute     // for the guest of a stream that was cut
)

// install puts the guest program into the sandbox, unless it is there.
func (o *opening) install(ctx context.Context, b *box) error {
	w, err := o.c.reach(ctx, b.SandboxID, b.task, b.access)
	if err != nil {
		return o.c.gone(ctx, b, trouble("reach the sandbox "+b.SandboxID, err))
	}
	defer w.close()
	g := o.r.Guest
	if g == nil || len(g.SHA256) < 12 {
		return protocol.Errorf(protocol.Internal, "the request names no guest")
	}
	name := "berth-node-" + g.SHA256[:12]
	said, err := w.ask(ctx, nil, probe, name)
	if err != nil {
		return o.c.gone(ctx, b, err)
	}
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[1], "/") {
		return protocol.Errorf(protocol.Unsupported, "the image %s has no shell that berth could use: it said %.200q", o.w.image, said)
	}
	o.answer.Arch, o.answer.Guest = archOf(lines[0]), path.Join(lines[1], name)
	if o.answer.Arch != g.Arch {
		return protocol.Errorf(protocol.Unsupported, "the sandbox is an %s, and the guest is for %s", o.answer.Arch, g.Arch)
	}
	if lines[2] != "yes" {
		if err := o.put(ctx, w, name); err != nil {
			return err
		}
	}
	return o.leave(ctx, w, lines[3])
}

func (o *opening) put(ctx context.Context, w *worker, name string) error {
	f, err := os.Open(o.r.Guest.Path)
	if err != nil {
		return protocol.Errorf(protocol.Internal, "read the guest program: %v", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return protocol.Errorf(protocol.Internal, "read the guest program: %v", err)
	}
	o.say("putting berth's program of %d KiB into the sandbox", st.Size()>>10)
	ctx, cancel := context.WithTimeout(ctx, installed)
	defer cancel()
	_, err = w.ask(ctx, f, put, name, strconv.FormatInt(st.Size(), 10))
	return err
}

// leave ends the guest of a stream that was cut, and waits until it has left: it
// would still have commands running. No other stream has a guest here.
func (o *opening) leave(ctx context.Context, w *worker, id string) error {
	if id == "-" {
		return nil
	}
	x := &command{w: w, id: id}
	runs, err := x.runs(ctx)
	if err != nil || !runs {
		return trouble("look for the last guest", err)
	}
	o.say("waiting for the last guest to leave")
	ctx, cancel := context.WithTimeout(ctx, leaves)
	defer cancel()
	if err := x.finish(ctx); err != nil {
		return trouble("end the last guest", err)
	}
	if _, err := x.wait(ctx); err != nil {
		return &protocol.Error{Kind: protocol.Gone, Message: "the guest of the last stream does not leave the sandbox",
			Hint: "try again in a minute, or end the sandbox: berth env stop"}
	}
	return nil
}

// runs tells whether a command runs. One that this sandbox does not know has been
// in another one.
func (x *command) runs(ctx context.Context) (bool, error) {
	req := pb.TaskExecPollRequest_builder{TaskId: x.w.task, ExecId: x.id}.Build()
	r, err := unary(ctx, x.w, callLimit, func(ctx context.Context) (*pb.TaskExecPollResponse, error) { return x.w.stub.TaskExecPoll(ctx, req) })
	if is(trouble("", err), protocol.NotFound) || is(trouble("", err), protocol.Input) {
		return false, nil
	}
	return err == nil && !r.HasCode() && !r.HasSignal(), err
}

// ask runs a text of the shell to its end and returns what it has said.
func (w *worker) ask(ctx context.Context, stdin *os.File, text string, args ...string) (string, error) {
	x, err := w.start(ctx, "", append([]string{"/bin/sh", "-c", text, "sh"}, args...))
	if err != nil {
		return "", trouble("start a command in the sandbox", err)
	}
	out, said := scrap{whole: true}, scrap{}
	fed, heard := make(chan error, 1), make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		var err error
		if stdin != nil {
			err = x.feed(ctx, stdin)
		}
		fed <- err
	}()
	go func() {
		defer close(heard)
		_ = x.copyTo(ctx, stderr, &said) // only explains
	}()
	if err := x.copyTo(ctx, stdout, &out); err != nil {
		return "", trouble("run a command in the sandbox", err)
	}
	code, err := x.wait(ctx)
	if err != nil {
		return "", trouble("run a command in the sandbox", err)
	}
	select {
	case <-heard:
	case <-time.After(time.Second):
	}
	if code != 0 {
		return "", protocol.Errorf(protocol.Unsupported, "a command of berth's in the sandbox exited with %d: %s", code, said.String())
	}
	if err := <-fed; err != nil {
		return "", trouble("send to the sandbox", err)
	}
	return out.String(), nil
}

// gone tells of a sandbox that cannot be reached whether it has ended.
func (c *conn) gone(ctx context.Context, b *box, err error) error {
	limit := callLimit / 2
	if ctx.Err() != nil { // this program is to end
		limit = partLimit
	}
	look, cancel := detached(ctx, limit)
	defer cancel()
	if r, lerr := c.ending(look, b.SandboxID); lerr == nil && ended(r) {
		return &protocol.Error{Kind: protocol.Gone, Message: fmt.Sprintf("the sandbox %s has ended: %s", b.SandboxID, why(r)),
			Hint: "the next command makes it again"}
	}
	return err
}

// ending is how a sandbox has ended; nil is that it has not.
func (c *conn) ending(ctx context.Context, id string) (*pb.GenericResult, error) {
	raw, err := c.raw(ctx)
	if err != nil {
		return nil, err
	}
	ask := raw.SandboxWaitV2
	if isV1(id) {
		ask = raw.SandboxWait
	}
	r, err := ask(ctx, pb.SandboxWaitRequest_builder{SandboxId: id}.Build())
	return r.GetResult(), err
}

// archOf is Go's word for a machine of uname.
func archOf(machine string) string {
	switch machine {
	case "x86_64":
		return "amd64"
	case "aarch64":
		return "arm64"
	}
	return machine
}

// scrap is what a short command says. The files of a sandbox that persists are its
// tasks' own: what stands there in the place of uname may talk without end.
type scrap struct {
	whole bool // more than it may keep is an error, not cut off

	mu  sync.Mutex
	buf bytes.Buffer
}

// mostScrap is how much of that is kept, in bytes.
const mostScrap = 64 << 10

func (s *scrap) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	room := mostScrap - s.buf.Len()
	s.buf.Write(p[:min(len(p), room)])
	if len(p) > room && s.whole {
		return 0, protocol.Errorf(protocol.Unsupported,
			"a command of berth's in the sandbox says more than %d KiB: its programs are not what they were", mostScrap>>10)
	}
	return len(p), nil
}

func (s *scrap) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}
