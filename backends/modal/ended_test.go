package modal

import (
	"io"
	"strings"
	"testing"
	"time"

	"berth/backends/external/protocol"
	"berth/test/fakes/modaltest"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
)

// A sandbox that ends under a command is said to have ended, whatever the wire says
// of it.
func TestSandboxEndsUnderACommand(t *testing.T) {
	for _, code := range []codes.Code{codes.OK, codes.NotFound, codes.Unavailable} {
		t.Run(code.String(), func(t *testing.T) {
			srv := serve(t)
			r := request(t, "berth-under")
			a := open(t, r)
			id, _ := splitRef(a.Ref)
			out, w := io.Pipe()
			ended := make(chan error, 1)
			go func() {
				_, err := stream(t, r, a, "echo begun; sleep 1000", strings.NewReader(""), w)
				ended <- err
			}()
			if _, err := io.ReadFull(out, make([]byte, 6)); err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, out) }()
			if code != codes.OK {
				for _, m := range []string{"TaskExecStdioRead", "TaskExecWait", "TaskExecStdinStatus"} {
					srv.Inject(modaltest.Fault{Method: m, Times: -1, Err: modaltest.Code(code, "sandbox is not available")})
				}
			}
			srv.End(id, pb.GenericResult_GENERIC_STATUS_TERMINATED)
			select {
			case err := <-ended:
				if kindOf(err) != protocol.Gone || !strings.Contains(err.Error(), "terminated") {
					t.Errorf("%v", err)
				}
			case <-time.After(2 * time.Minute):
				t.Error("the stream goes on")
			}
		})
	}
}

// Input for a command that has ended is no error.
func TestInputIsRefused(t *testing.T) {
	srv := serve(t)
	r := request(t, "berth-full")
	a := open(t, r)
	for _, code := range []codes.Code{codes.FailedPrecondition, codes.Aborted} {
		srv.Inject(modaltest.Fault{Method: "TaskExecStdinWriteStream", Err: modaltest.Code(code, "process has exited"), Bytes: 1})
		if out, exit := sh(t, r, a, "echo said; exit 6", "more than it reads"); out != "said\n" || exit != 6 {
			t.Errorf("%v: %q %d", code, out, exit)
		}
	}
}

// One that ends between being found and being placed is not waited for, and its files
// are not lost.
func TestSandboxEndsWhileItIsLookedAt(t *testing.T) {
	srv := serve(t)
	r := request(t, "berth-unplaced")
	sh(t, r, open(t, r), `echo kept >file`, "")
	id := srv.Running()[0].ID
	srv.Inject(modaltest.Fault{Method: "SandboxGetTaskIdV2", Err: modaltest.Throttled(time.Second), Met: func() {
		srv.End(id, pb.GenericResult_GENERIC_STATUS_MEMORY_MANAGER_EVICTION)
	}})
	a := open(t, r)
	if out, _ := sh(t, r, a, `cat file`, ""); out != "kept\n" || a.State != protocol.StateRestored || len(srv.Running()) != 1 {
		t.Errorf("%q %+v, %d run", out, a, len(srv.Running()))
	}
}

// A sandbox that Modal is about to end makes place for the next one in time.
func TestSandboxNearItsEnd(t *testing.T) {
	srv := serve(t)
	r := request(t, "berth-late")
	r.Spec.LifetimeSeconds = 60
	a := open(t, r)
	sh(t, r, a, `echo kept >file`, "")
	r.Spec.LifetimeSeconds = 6000 // of which a minute is not much
	next := open(t, r)
	if next.State != protocol.StateRestored || !next.Ends.After(a.Ends.Add(time.Hour)) || len(srv.Running()) != 1 {
		t.Errorf("%+v", next)
	}
	if out, _ := sh(t, r, next, `cat file`, ""); out != "kept\n" {
		t.Errorf("%q", out)
	}
}

// The guest is put there once: a snapshot has it. So it is with a GPU, which is of
// Modal's first kind.
func TestGuestIsInTheSnapshot(t *testing.T) {
	srv := serve(t)
	for _, gpu := range []string{"", "nvidia"} {
		r := request(t, "berth-once"+gpu)
		r.Spec.GPU = gpu
		for i, want := range []string{protocol.StateMade, protocol.StateFound, protocol.StateRestored} {
			s := &said{}
			a, err := Provider{}.Open(limited(t), r, s.say)
			if err != nil || a.State != want {
				t.Fatalf("%+v %v", a, err)
			}
			r.Ref = a.Ref
			if put := strings.Contains(s.String(), "putting berth's program"); put != (i == 0) {
				t.Errorf("%s %s: %s", gpu, want, s)
			}
			if i == 1 {
				sh(t, r, a, `echo kept >file`, "")
				if err := (Provider{}).Stop(limited(t), r, t.Logf); err != nil {
					t.Fatal(err)
				}
			}
			if i == 2 {
				if out, _ := sh(t, r, a, `cat file`, ""); out != "kept\n" {
					t.Errorf("%q", out)
				}
			}
		}
		if err := (Provider{}).Destroy(limited(t), r, t.Logf); err != nil {
			t.Error(err)
		}
	}
	if len(srv.Running()) != 0 || len(srv.Images()) != 1 {
		t.Errorf("left: %v, %d run", srv.Images(), len(srv.Running()))
	}
}
