package modal

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/backends/external/protocol"
	"berth/test/fakes/modaltest"

	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
	"google.golang.org/grpc/codes"
)

// guest is a program that runs the text of its second word; it is no binary, so
// that these tests are about the way to it.
const guest = "#!/bin/sh\n[ \"$1\" = guest ] || exit 99\nshift\nexec /bin/sh -c \"$@\"\n"

func request(t *testing.T, name string) *protocol.Request {
	t.Helper()
	path := filepath.Join(t.TempDir(), "guest")
	if err := os.WriteFile(path, []byte(guest), 0o700); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte(guest))
	return &protocol.Request{
		Berth: 1, Backend: "modal", Name: name, Tags: map[string]string{protocol.TagVersion: "1", protocol.TagOwner: "me", protocol.TagEnv: name, protocol.TagName: "demo"},
		Options: map[string]string{},
		Spec:    &protocol.Spec{Image: "debian:12", CPUs: 1, MemoryMiB: 256, Network: protocol.Network{Mode: protocol.NetworkOpen}, Persistent: true, LifetimeSeconds: 600, IdleSeconds: 300},
		Guest:   &protocol.Guest{Path: path, SHA256: hex.EncodeToString(sum[:]), Arch: runtime.GOARCH},
	}
}

// said collects progress.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprintf(&s.text, format+"\n", args...)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, r *protocol.Request) *protocol.Opened {
	t.Helper()
	s := &said{}
	a, err := Provider{}.Open(limited(t), r, s.say)
	if err != nil {
		t.Fatalf("%v\n%s", err, s)
	}
	r.Ref = a.Ref
	return a
}

// stream runs a text in the place of the guest.
func stream(t *testing.T, r *protocol.Request, a *protocol.Opened, text string, in io.Reader, out io.Writer) (int, error) {
	t.Helper()
	q := *r
	q.Ref, q.Argv = a.Ref, []string{a.Guest, "guest", text}
	return Provider{}.Stream(limited(t), &q, func() (io.Reader, io.Writer) { return in, out })
}

// sh is a stream whose input is a text, and its output.
func sh(t *testing.T, r *protocol.Request, a *protocol.Opened, text, in string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	code, err := stream(t, r, a, text, strings.NewReader(in), &out)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), code
}

func kindOf(err error) protocol.Kind {
	var e *protocol.Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

func TestLife(t *testing.T) {
	srv := serve(t)
	r := request(t, "berth-life")
	a := open(t, r)
	if a.State != protocol.StateMade || a.Arch != runtime.GOARCH || a.Ends.Before(time.Now().Add(9*time.Minute)) || a.Cost == nil || a.Cost.PerHour <= 0 {
		t.Errorf("made: %+v", a)
	}
	if out, code := sh(t, r, a, `cat; printf '\000'; echo kept >"$HOME/file"; exit 3`, "one\r\n"); out != "one\r\n\x00" || code != 3 {
		t.Errorf("%q %d", out, code)
	}
	b := srv.Running()[0]
	def := b.Definition
	if def.GetTimeoutSecs() != 600 || def.GetIdleTimeoutSecs() != 300 || def.GetResources().GetMilliCpu() != 500 || def.GetResources().GetMilliCpuMax() != 500 ||
		def.GetResources().GetMemoryMbMax() != 256 || b.Name != r.Name || b.Tags[protocol.TagOwner] != "me" {
		t.Errorf("made from %v, tags %v", def, b.Tags)
	}
	if a := open(t, r); a.State != protocol.StateFound || len(srv.Running()) != 1 {
		t.Errorf("found: %+v", a)
	}
	other := *r
	other.Tags = map[string]string{protocol.TagOwner: "somebody else"}
	for what, err := range map[string]error{"open": second(Provider{}.Open(limited(t), &other, t.Logf)), "destroy": Provider{}.Destroy(limited(t), &other, t.Logf), "stop": Provider{}.Stop(limited(t), &other, t.Logf)} {
		if kindOf(err) != protocol.Conflict {
			t.Errorf("%s of somebody else's: %v", what, err)
		}
	}
	changed := *r
	changed.Spec = &protocol.Spec{Image: "debian:13", LifetimeSeconds: 600}
	if _, err := (Provider{}).Open(limited(t), &changed, t.Logf); kindOf(err) != protocol.Changed {
		t.Errorf("with another image: %v", err)
	}
	list, err := Provider{}.List(limited(t), r, t.Logf)
	if err != nil || len(list) != 1 || list[0].Name != r.Name || list[0].Tags[protocol.TagEnv] != r.Name || !list[0].Running {
		t.Errorf("%+v %v", list, err)
	}
	if list, err := (Provider{}).List(limited(t), &other, t.Logf); err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
	for range 2 { // the second one finds the files of the first restored sandbox
		if err := (Provider{}).Stop(limited(t), r, t.Logf); err != nil || len(srv.Running()) != 0 {
			t.Fatalf("stop: %v, running %d", err, len(srv.Running()))
		}
		if list, err := (Provider{}).List(limited(t), r, t.Logf); err != nil || len(list) != 0 {
			t.Errorf("a name that is none of berth's: %+v %v", list, err)
		}
		if a = open(t, r); a.State != protocol.StateRestored {
			t.Errorf("restored: %+v", a)
		}
		if out, _ := sh(t, r, a, `cat file`, ""); out != "kept\n" {
			t.Errorf("%q", out)
		}
	}
	if err := (Provider{}).Destroy(limited(t), r, t.Logf); err != nil {
		t.Fatal(err)
	}
	if err := (Provider{}).Destroy(limited(t), r, t.Logf); err != nil {
		t.Errorf("again: %v", err)
	}
	if err := (Provider{}).Stop(limited(t), r, t.Logf); err != nil {
		t.Errorf("stop of nothing: %v", err)
	}
	// The image that was asked for is all that is left.
	if n := len(srv.Running()); n != 0 || len(srv.Images()) != 1 {
		t.Errorf("left: %d sandboxes, images %v", n, srv.Images())
	}
	if a = open(t, r); a.State != protocol.StateRebuilt || a.Why == "" {
		t.Errorf("after the end of its files: %+v", a)
	}
}

// What is kept of environments that are stopped is found by its owner, and can be
// destroyed by whoever has nothing but that.
func TestImagesOfStoppedEnvironmentsAreFound(t *testing.T) {
	srv := serve(t)
	const id = "0198c0de-5e7a-7000-8000-00000000000"
	mine := map[string]string{protocol.TagVersion: "1", protocol.TagOwner: "me"}
	for i, owner := range []string{"me", "me", "you"} {
		r := request(t, fmt.Sprintf("berth-%s%d-demo", strings.ReplaceAll(id, "-", ""), i))
		r.Tags = map[string]string{protocol.TagVersion: "1", protocol.TagOwner: owner, protocol.TagEnv: fmt.Sprint(id, i), protocol.TagName: "demo"}
		r.Options[optSnapshot] = "shared"
		open(t, r)
		if err := (Provider{}).Stop(limited(t), r, t.Logf); err != nil {
			t.Fatal(err)
		}
		if i == 1 { // it runs again: there is one of it, and that is the sandbox
			open(t, r)
		}
	}
	found := map[string]protocol.Found{}
	list, err := Provider{}.List(limited(t), &protocol.Request{Tags: mine}, t.Logf)
	for _, f := range list {
		found[f.Tags[protocol.TagEnv]] = f
	}
	stopped, runs := found[id+"0"], found[id+"1"]
	if err != nil || len(list) != 2 || stopped.Running || !runs.Running || stopped.Tags[protocol.TagName] != "demo" || stopped.Ref != srv.Published(stopped.Name+":me") || stopped.Created.IsZero() {
		t.Fatalf("%+v %v", list, err)
	}
	for _, f := range list {
		r := &protocol.Request{Name: f.Name, Ref: f.Ref, Tags: map[string]string{protocol.TagVersion: "1", protocol.TagOwner: "me", protocol.TagEnv: f.Tags[protocol.TagEnv]}}
		if err := (Provider{}).Destroy(limited(t), r, t.Logf); err != nil {
			t.Error(err)
		}
	}
	if list, err := (Provider{}).List(limited(t), &protocol.Request{Tags: mine}, t.Logf); err != nil || len(list) != 0 {
		t.Errorf("%+v %v", list, err)
	}
	// Left are the image that was asked for, and the files of the other owner, twice.
	if images := srv.Images(); len(srv.Running()) != 0 || len(images) != 3 {
		t.Errorf("left: %v, %d run", images, len(srv.Running()))
	}
}

func second[T any](_ T, err error) error { return err }

// Files outlive ends that no one has prepared, and an end while berth is away.
func TestFilesOfASandboxThatEndedByItself(t *testing.T) {
	srv := serve(t)
	r := request(t, "berth-ended")
	a := open(t, r)
	sh(t, r, a, `echo kept >file`, "")
	id, _ := splitRef(a.Ref)
	srv.End(id, pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT)
	if _, err := stream(t, r, a, "true", strings.NewReader(""), io.Discard); kindOf(err) != protocol.Gone {
		t.Errorf("stream: %v", err)
	}
	if a = open(t, r); a.State != protocol.StateRestored {
		t.Errorf("%+v", a)
	}
	if out, _ := sh(t, r, a, `cat file`, ""); out != "kept\n" {
		t.Errorf("%q", out)
	}
	// One that is not persistent begins again, and says so.
	n := request(t, "berth-fleeting")
	n.Spec.Persistent = false
	a = open(t, n)
	id, _ = splitRef(a.Ref)
	srv.End(id, pb.GenericResult_GENERIC_STATUS_TIMEOUT)
	if a = open(t, n); a.State != protocol.StateRebuilt || a.Why == "" {
		t.Errorf("%+v", a)
	}
}

// What another machine has published, and what Hermes Agent has recorded, is what
// an environment begins with.
func TestBeginsWithSnapshots(t *testing.T) {
	srv := serve(t)
	r := request(t, "berth-first")
	r.Options[optSnapshot] = "shared"
	sh(t, r, open(t, r), `echo kept >file`, "")
	if err := (Provider{}).Stop(limited(t), r, t.Logf); err != nil {
		t.Fatal(err)
	}
	there := request(t, "berth-there")
	there.Options[optSnapshot] = "shared"
	a := open(t, there)
	if out, _ := sh(t, there, a, `cat file`, ""); out != "kept\n" || a.State != protocol.StateRestored {
		t.Errorf("%q %+v", out, a)
	}
	// Who goes on has files of its own then, and who stops last is found under the
	// name: an opening on the first machine does not take it back.
	if err := (Provider{}).Stop(limited(t), there, t.Logf); err != nil {
		t.Fatal(err)
	}
	image := srv.Published("shared:latest")
	if open(t, r); srv.Published("shared:latest") != image {
		t.Error("what was published last is no longer found")
	}
	// It outlives the environment that it came from: the name is its user's.
	if err := (Provider{}).Destroy(limited(t), there, t.Logf); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(srv.Images(), image) || srv.Published("shared:latest") != image || srv.Published(published(there)) != "" {
		t.Errorf("%s is not among %v, or has another name", image, srv.Images())
	}
	h := request(t, "berth-hermes")
	h.Options[optHermes] = filepath.Join(t.TempDir(), "modal_snapshots.json")
	if err := os.WriteFile(h.Options[optHermes], fmt.Appendf(nil, `{"direct:other":"im-none","direct:demo":%q}`, image), 0o600); err != nil {
		t.Fatal(err)
	}
	a = open(t, h)
	if out, _ := sh(t, h, a, `cat file`, ""); out != "kept\n" || a.State != protocol.StateRestored {
		t.Errorf("%q %+v", out, a)
	}
	// One that Modal does not have any more is said, and not held against anybody.
	h = request(t, "berth-hermes2")
	h.Options[optHermes] = filepath.Join(t.TempDir(), "modal_snapshots.json")
	if err := os.WriteFile(h.Options[optHermes], []byte(`{"direct:demo":"im-expired"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if a = open(t, h); a.State != protocol.StateMade || !strings.Contains(strings.Join(a.Notes, " "), "im-expired") {
		t.Errorf("%+v", a)
	}
}

func TestWhatModalHasNot(t *testing.T) {
	srv := serve(t)
	for name, c := range map[string]struct {
		change func(*protocol.Request)
		kind   protocol.Kind
	}{
		"a disk":       {func(r *protocol.Request) { r.Spec.DiskMiB = 1 }, protocol.Unsupported},
		"a GPU of AMD": {func(r *protocol.Request) { r.Spec.GPU = "amd" }, protocol.Unsupported},
		"a SIF":        {func(r *protocol.Request) { r.Spec.Image = "library://a/b" }, protocol.Input},
		"a file":       {func(r *protocol.Request) { r.Spec.Image = "./here.sif" }, protocol.Input},
		"no image":     {func(r *protocol.Request) { r.Spec.Image = "no-such:1" }, protocol.NotFound},
		"another arch": {func(r *protocol.Request) { r.Guest.Arch = "riscv64" }, protocol.Unsupported},
	} {
		// Each has a name of its own: a sandbox that was made and refused leaves files, which the next of its name begins with.
		r := request(t, "berth-not-"+strings.ReplaceAll(strings.ToLower(name), " ", "-"))
		c.change(r)
		if _, err := (Provider{}).Open(limited(t), r, t.Logf); kindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
		if len(srv.Running()) != 0 {
			t.Errorf("%s: a sandbox was left", name)
		}
	}
	r := request(t, "berth-soft")
	r.Spec.DiskMiB, r.Spec.Soft = 51200, []string{"disk"}
	if a := open(t, r); !slices.Equal(a.Dropped, []string{"disk"}) {
		t.Errorf("%+v", a)
	}
}

func TestNetworkAndPlace(t *testing.T) {
	srv := serve(t)
	r := request(t, "berth-allow")
	r.Spec.Network = protocol.Network{Mode: protocol.NetworkAllow, Allow: []string{"*.example.com", "10.0.0.0/8", "192.0.2.1"}}
	r.Spec.GPU, r.Options[optGPU], r.Options[optRegion] = "nvidia", "a100-80gb:2", "us-east, eu"
	a := open(t, r)
	id, _ := splitRef(a.Ref)
	if !isV1(id) || a.Cost == nil || a.Cost.PerHour < 4.9 {
		t.Errorf("%+v %+v", a, a.Cost)
	}
	if out, _ := sh(t, r, a, `echo here`, ""); out != "here\n" {
		t.Errorf("%q", out)
	}
	if f := open(t, r); f.State != protocol.StateFound || f.Ref != a.Ref {
		t.Errorf("%+v", f)
	}
	d := srv.Running()[0].Definition
	if n := d.GetNetworkAccess(); n.GetNetworkAccessType() != pb.NetworkAccess_ALLOWLIST || !slices.Equal(n.GetAllowedDomains(), []string{"*.example.com"}) ||
		!slices.Equal(n.GetAllowedCidrs(), []string{"10.0.0.0/8", "192.0.2.1/32"}) {
		t.Errorf("%v", n)
	}
	if g := d.GetResources().GetGpuConfig(); g.GetGpuType() != "A100-80GB" || g.GetCount() != 2 || !slices.Equal(d.GetSchedulerPlacement().GetRegions(), []string{"us-east", "eu"}) {
		t.Errorf("%v", d)
	}
	r = request(t, "berth-none")
	r.Spec.Network.Mode = protocol.NetworkNone
	open(t, r)
	for _, b := range srv.Running() {
		if b.Name == r.Name && b.Definition.GetNetworkAccess().GetNetworkAccessType() != pb.NetworkAccess_BLOCKED {
			t.Errorf("%v", b.Definition.GetNetworkAccess())
		}
	}
}

func TestCheck(t *testing.T) {
	srv := serve(t)
	r := &protocol.Request{Options: map[string]string{}}
	a, err := Provider{}.Check(limited(t), r, t.Logf)
	if err != nil || a.Level != protocol.LevelNone || len(a.Notes) != 1 || !slices.Contains(a.GPU, "nvidia") || slices.Contains(a.Limits, "disk") {
		t.Fatalf("%+v %v", a, err)
	}
	if a.Service != "Modal, workspace stand-in, environment main" || !slices.Contains(a.Quotas, protocol.Quantity{Name: "containers", Limit: 100}) {
		t.Errorf("%+v", a)
	}
	for _, call := range srv.Calls() {
		if strings.Contains(call, "Create") && call != "AppGetOrCreate" || strings.Contains(call, "Terminate") {
			t.Errorf("check has called %s", call)
		}
	}
	// What there is to be known of the account is said; without the right to ask the
	// check goes on.
	srv.TokenLife = time.Hour
	t.Setenv("MODAL_ENVIRONMENT", "spent")
	open(t, request(t, "berth-check"))
	a, err = Provider{}.Check(limited(t), r, t.Logf)
	if said := fmt.Sprint(a.Notes); err != nil || !strings.Contains(said, "is used up") || !strings.Contains(said, "the token expires at") ||
		!slices.Contains(a.Quotas, protocol.Quantity{Name: "dollars of this month's budget", Used: 31.5, Limit: 30}) ||
		a.Service != "Modal, workspace stand-in, environment spent" {
		t.Errorf("%+v %v", a, err)
	}
	srv.Inject(modaltest.Fault{Method: "TokenInfoGet", Err: modaltest.Code(codes.Unimplemented, "no")})
	if a, err = (Provider{}).Check(limited(t), r, t.Logf); err != nil || a.Service != "Modal, environment spent" {
		t.Errorf("%+v %v", a, err)
	}
	srv.Inject(modaltest.Fault{Method: "EnvironmentList", Err: modaltest.Code(codes.PermissionDenied, "no")})
	if a, err = (Provider{}).Check(limited(t), r, t.Logf); err != nil || a.Service != "Modal, environment spent" ||
		!slices.Equal(a.Quotas, []protocol.Quantity{{Name: "sandboxes in the app berth", Used: 1}}) {
		t.Errorf("%+v %v", a, err)
	}
	t.Setenv("MODAL_ENVIRONMENT", "nowhere")
	if _, err := (Provider{}).Check(limited(t), r, t.Logf); kindOf(err) != protocol.NotFound {
		t.Errorf("an environment that is not there: %v", err)
	}
	t.Setenv("MODAL_ENVIRONMENT", "")
	t.Setenv("MODAL_TOKEN_SECRET", "wrong")
	if _, err := (Provider{}).Check(limited(t), r, t.Logf); kindOf(err) != protocol.Auth || strings.Contains(err.Error(), "wrong") {
		t.Errorf("a wrong key: %v", err)
	}
	t.Setenv("MODAL_TOKEN_SECRET", "")
	if _, err := (Provider{}).Check(limited(t), r, t.Logf); kindOf(err) != protocol.Auth {
		t.Errorf("no key: %v", err)
	}
	t.Setenv("MODAL_TOKEN_SECRET", modaltest.TokenSecret)
	t.Setenv("MODAL_SERVER_URL", "http://127.0.0.1:1")
	if _, err := (Provider{}).Check(limited(t), r, t.Logf); kindOf(err) != protocol.Unreachable {
		t.Errorf("nobody there: %v", err)
	}
	if err := os.WriteFile(os.Getenv("MODAL_CONFIG_PATH"), []byte("[default\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (Provider{}).Check(limited(t), r, t.Logf); kindOf(err) != protocol.Auth {
		t.Errorf("a broken file: %v", err)
	}
}

// Each fault of the wire, at each call that the verbs make.
func TestFaultsThatPass(t *testing.T) {
	for _, method := range []string{
		"AuthTokenGet", "SandboxGetFromNameV2", "SandboxTagsGetV2", "SandboxGetTaskIdV2", "SandboxGetCommandRouterAccess", "AppGetOrCreate", "EnvironmentGetOrCreate",
		"ImageGetOrCreate", "ImageJoinStreaming", "ImageGetByTag", "SandboxCreateV2", "SandboxListV2", "SandboxTerminateV2", "SandboxWaitV2", "ImagePublish", "ImageDelete",
		"SandboxGetExitSnapshotV2", "TaskExecStart", "TaskExecStdioRead", "TaskExecWait", "TaskExecPoll", "TaskExecStdinWriteStream", "TaskSnapshotFilesystem",
		"EnvironmentList", "TokenInfoGet", "ImageListTags",
	} {
		t.Run(method, func(t *testing.T) {
			srv := serve(t)
			everything := func() {
				r := request(t, "berth-fault")
				if a, err := (Provider{}).Check(limited(t), r, t.Logf); err != nil || !strings.Contains(a.Service, "stand-in") {
					t.Errorf("%+v %v", a, err)
				}
				a := open(t, r)
				if out, code := sh(t, r, a, `cat; echo x >>file; cat file; exit 4`, "in"); out != "inx\n" || code != 4 {
					t.Errorf("%q %d", out, code)
				}
				open(t, r)
				if _, err := (Provider{}).List(limited(t), r, t.Logf); err != nil {
					t.Error(err)
				}
				if err := (Provider{}).Stop(limited(t), r, t.Logf); err != nil {
					t.Error(err)
				}
				if a := open(t, r); a.State != protocol.StateRestored {
					t.Errorf("%+v", a)
				}
				if err := (Provider{}).Destroy(limited(t), r, t.Logf); err != nil {
					t.Error(err)
				}
				if len(srv.Running()) != 0 || len(srv.Images()) != 1 {
					t.Errorf("left: %v", srv.Images())
				}
			}
			srv.Inject(modaltest.Fault{Method: method, Err: modaltest.Code(codes.Unavailable, "try again")})
			everything()
			if len(srv.Pending()) != 0 {
				t.Errorf("%s was not called", method)
			}
			// The same, where the call was carried out and its answer is lost.
			srv.Inject(modaltest.Fault{Method: method, Err: modaltest.Code(codes.Unavailable, "connection lost"), After: true})
			everything()
		})
	}
}

func TestTokenOfTheWorkerEnds(t *testing.T) {
	srv := serve(t)
	r := request(t, "berth-token")
	a := open(t, r)
	srv.Calls()
	in, w := io.Pipe()
	out, feed := io.Pipe()
	code := make(chan int, 1)
	go func() {
		c, err := stream(t, r, a, `while read x; do echo "$x"; done; exit 5`, in, feed)
		if err != nil {
			t.Error(err)
		}
		code <- c
	}()
	line := make([]byte, 2)
	var calls []string
	for i := range 2 {
		if _, err := w.Write([]byte("a\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, line); err != nil || string(line) != "a\n" {
			t.Fatalf("%q %v", line, err)
		}
		if i == 0 { // a token is renewed once in a row
			calls = begun(t, srv)
		}
		srv.Expire()
	}
	_ = w.Close()
	if c := <-code; c != 5 {
		t.Errorf("exit %d", c)
	}
	if n := count(append(calls, srv.Calls()...), "SandboxGetCommandRouterAccess"); n < 2 {
		t.Errorf("the token was renewed %d times", n)
	}
}

// begun waits until a stream has made the calls that it begins with, and returns all
// since the last time.
func begun(t *testing.T, srv *modaltest.Server) (calls []string) {
	t.Helper()
	for until := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		calls = append(calls, srv.Calls()...)
		if count(calls, "TaskExecStdioRead") >= 2 && count(calls, "TaskExecStdinWriteStream") >= 1 {
			return calls
		}
		if time.Now().After(until) {
			t.Fatalf("a stream has begun with %v", calls)
		}
	}
}

func count(list []string, word string) (n int) {
	for _, w := range list {
		if w == word {
			n++
		}
	}
	return n
}

// Both directions are cut again and again, in the middle of bytes.
func TestStreamsAreCut(t *testing.T) {
	srv := serve(t)
	r := request(t, "berth-cut")
	a := open(t, r)
	data := make([]byte, 3<<20)
	rnd := rand.NewChaCha8([32]byte{1})
	_, _ = rnd.Read(data)
	for i, n := range []int{1, 70000, 1 << 20, 333} {
		lost := modaltest.Code([]codes.Code{codes.Unavailable, codes.Internal, codes.Unknown, codes.DeadlineExceeded}[i], "connection lost")
		srv.Inject(modaltest.Fault{Method: "TaskExecStdioRead", Err: lost, Bytes: n})
		srv.Inject(modaltest.Fault{Method: "TaskExecStdinWriteStream", Err: lost, Bytes: n})
	}
	out := &bytes.Buffer{}
	code, err := stream(t, r, a, "cat", bytes.NewReader(data), out)
	if err != nil || code != 0 || !bytes.Equal(out.Bytes(), data) {
		t.Errorf("exit %d, %v, %d of %d bytes", code, err, out.Len(), len(data))
	}
	if len(srv.Pending()) > 2 { // stderr may have taken some, which it does not reach
		t.Errorf("%d faults were not used", len(srv.Pending()))
	}
}

// More input than is kept unsure: it is asked how much has come.
func TestMuchInput(t *testing.T) {
	serve(t)
	r := request(t, "berth-much")
	a := open(t, r)
	want := sha256.New()
	out := &bytes.Buffer{}
	const size = 40 << 20
	code, err := stream(t, r, a, "sha256sum | cut -d' ' -f1", io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{2}), size), want), out)
	if err != nil || code != 0 || strings.TrimSpace(out.String()) != hex.EncodeToString(want.Sum(nil)) {
		t.Errorf("exit %d, %v, %s", code, err, out)
	}
}

// A command that does not read, or has ended, does not hold anybody up.
func TestInputUnread(t *testing.T) {
	serve(t)
	r := request(t, "berth-unread")
	a := open(t, r)
	in, w := io.Pipe() // never ends
	defer func() { _ = w.Close() }()
	var out bytes.Buffer
	if code, err := stream(t, r, a, "echo said; exit 6", in, &out); err != nil || code != 6 || out.String() != "said\n" {
		t.Errorf("%d %v %q", code, err, out.String())
	}
}

// The guest of a program that was killed is told to leave before the next one comes.
func TestGuestOfABrokenStreamLeaves(t *testing.T) {
	srv := serve(t)
	r := request(t, "berth-broken")
	a := open(t, r)
	c, err := connect(t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	id, task := splitRef(a.Ref)
	w, err := c.reach(limited(t), id, task, nil)
	if err != nil {
		t.Fatal(err)
	}
	// It is started as Stream does it, and then its program is gone.
	dir := filepath.Dir(a.Guest)
	if _, err := w.start(limited(t), "11111111-2222-3333-4444-555555555555", []string{"/bin/sh", "-c", enter, "sh", "11111111-2222-3333-4444-555555555555",
		dir + "/" + streamFile, a.Guest, "guest", "echo here >there; cat; rm there"}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); !srv.Running()[0].Has("there"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it did not begin")
		}
	}
	w.close()
	c.Close()
	if open(t, r); srv.Running()[0].Has("there") {
		t.Error("it has not left")
	}
}

// An open that is interrupted takes back what it has made.
func TestInterruptedOpenLeavesNothing(t *testing.T) {
	srv := serve(t)
	r := request(t, "berth-interrupted")
	for _, method := range []string{"SandboxCreateV2", "TaskExecStart"} {
		ctx, cancel := context.WithCancel(limited(t))
		srv.Inject(modaltest.Fault{Method: method, Err: modaltest.Code(codes.Canceled, "gone"), After: true, Wait: 2 * time.Minute})
		go func() {
			for len(srv.Pending()) > 0 {
				time.Sleep(5 * time.Millisecond)
			}
			for len(srv.Running()) == 0 {
				time.Sleep(5 * time.Millisecond)
			}
			cancel()
		}()
		if a, err := (Provider{}).Open(ctx, r, t.Logf); err == nil {
			t.Errorf("%s: %+v", method, a)
		}
		cancel()
		if n := len(srv.Running()); n != 0 {
			t.Errorf("%s: %d sandboxes were left", method, n)
		}
	}
}

// Someone else's process makes the sandbox at the same time.
func TestCreateRace(t *testing.T) {
	srv := serve(t)
	r := request(t, "berth-race")
	srv.Inject(modaltest.Fault{Method: "SandboxGetFromNameV2", Err: modaltest.Code(codes.NotFound, "not yet")})
	first := open(t, r)
	srv.Inject(modaltest.Fault{Method: "SandboxGetFromNameV2", Err: modaltest.Code(codes.NotFound, "not yet")})
	if a := open(t, r); a.Ref != first.Ref || len(srv.Running()) != 1 {
		t.Errorf("%+v", a)
	}
}

func TestThrottledCallsWaitAsTold(t *testing.T) {
	srv := serve(t)
	srv.Inject(modaltest.Fault{Method: "SandboxCreateV2", Times: 3, Err: modaltest.Throttled(100 * time.Millisecond)})
	s := &said{}
	r := request(t, "berth-throttled")
	if _, err := (Provider{}).Open(limited(t), r, s.say); err != nil || !strings.Contains(s.String(), "rate limit") {
		t.Errorf("%v; said %q", err, s)
	}
	t.Setenv("MODAL_MAX_THROTTLE_WAIT", "0")
	srv.Inject(modaltest.Fault{Method: "SandboxCreateV2", Err: modaltest.Throttled(time.Hour)})
	if _, err := (Provider{}).Open(limited(t), request(t, "berth-throttled2"), t.Logf); kindOf(err) != protocol.Rate {
		t.Errorf("%v", err)
	}
}

func TestKindsOfErrors(t *testing.T) {
	for code, want := range map[codes.Code]protocol.Kind{
		codes.Unauthenticated: protocol.Auth, codes.PermissionDenied: protocol.Auth, codes.ResourceExhausted: protocol.Quota, codes.InvalidArgument: protocol.Input,
		codes.OutOfRange: protocol.Input, codes.Unimplemented: protocol.Unsupported, codes.FailedPrecondition: protocol.Gone, codes.Unavailable: protocol.Unreachable,
	} {
		srv := serve(t)
		srv.Inject(modaltest.Fault{Method: "SandboxCreateV2", Times: -1, Err: modaltest.Code(code, "said by the server")})
		_, err := Provider{}.Open(limited(t), request(t, "berth-kind"), t.Logf)
		var e *protocol.Error
		if !errors.As(err, &e) || e.Kind != want || !strings.Contains(e.Message, "said by the server") {
			t.Errorf("%v: %+v", code, err)
		}
		if e != nil && (want == protocol.Auth || want == protocol.Quota || want == protocol.Unsupported || want == protocol.Unreachable) && e.Hint == "" {
			t.Errorf("%v has no hint", code)
		}
		srv.Close()
	}
}

// Control-plane calls are bounded: tokens and polls are not counted.
func TestNumberOfCalls(t *testing.T) {
	srv := serve(t)
	counted := func() (n int, list []string) {
		for _, c := range srv.Calls() {
			switch c {
			case "AuthTokenGet", "ImageJoinStreaming", "SandboxGetTaskIdV2", "SandboxWaitV2", "SandboxGetExitSnapshotV2":
			default:
				if !strings.HasPrefix(c, "Task") {
					n++
					list = append(list, c)
				}
			}
		}
		return n, list
	}
	r := request(t, "berth-calls")
	r.Options[optSnapshot] = "shared"
	whole := func(text string) {
		t.Helper()
		a := open(t, r)
		sh(t, r, a, text, "")
	}
	// The first opening of all has the check before it.
	first := request(t, "berth-calls-first")
	if _, err := (Provider{}).Check(limited(t), first, t.Logf); err != nil {
		t.Fatal(err)
	}
	sh(t, first, open(t, first), "true", "")
	if n, list := counted(); n > 9 {
		t.Errorf("with the check: %d, %v", n, list)
	}
	whole("true")
	if n, list := counted(); n > 9 {
		t.Errorf("cold: %d, %v", n, list)
	}
	whole("true")
	if n, list := counted(); n > 5 {
		t.Errorf("running: %d, %v", n, list)
	}
	if err := (Provider{}).Stop(limited(t), r, t.Logf); err != nil {
		t.Fatal(err)
	}
	srv.Calls()
	whole("true")
	if n, list := counted(); n > 9 {
		t.Errorf("restored: %d, %v", n, list)
	}
	// A command costs nothing beyond its stream.
	a := open(t, r)
	srv.Calls()
	in, w := io.Pipe()
	out, feed := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := stream(t, r, a, "cat", in, feed)
		done <- err
	}()
	echo := func() {
		b := make([]byte, 2)
		if _, err := w.Write([]byte("x\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, b); err != nil {
			t.Fatal(err)
		}
	}
	echo()
	begun(t, srv)
	for range 100 {
		echo()
	}
	if c := srv.Calls(); len(c) > 0 {
		t.Errorf("warm: %v", c)
	}
	_ = w.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
