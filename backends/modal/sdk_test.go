package modal

import (
	"errors"
	"io"
	"testing"
	"time"

	"berth/test/fakes/modaltest"

	sdk "github.com/modal-labs/modal-client/go"
	pb "github.com/modal-labs/modal-client/go/proto/modal_proto"
)

// The official SDK, used as its documentation says, finds in the stand-in what it
// expects of Modal. So the stand-in is not only what this package believes.
func TestOfficialClientAgainstTheStandIn(t *testing.T) {
	srv := serve(t)
	c, err := sdk.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	app, err := c.Apps.FromName(ctx, "official", &sdk.AppFromNameParams{CreateIfMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	var missing sdk.NotFoundError
	if _, err := c.Sandboxes.FromName(ctx, "official", "one", nil); !errors.As(err, &missing) {
		t.Fatalf("a sandbox that is not there: %v", err)
	}
	if _, err := c.Images.FromRegistry("no-such:1", nil).Build(ctx, app, nil); err == nil {
		t.Fatal("an image that cannot be built was built")
	}
	image, err := c.Images.FromRegistry("debian:12", nil).Build(ctx, app, nil)
	if err != nil {
		t.Fatal(err)
	}
	create := func(image *sdk.Image) *sdk.Sandbox {
		t.Helper()
		sb, err := c.Sandboxes.Create(ctx, app, image, &sdk.SandboxCreateParams{
			Name: "one", Timeout: time.Minute, Tags: map[string]string{"k": "v"}, Env: map[string]string{"WORD": "x y"},
			ExperimentalOptions: map[string]any{"enable_exit_snapshot": true},
		})
		if err != nil {
			t.Fatal(err)
		}
		return sb
	}
	sb := create(image)
	var exists sdk.AlreadyExistsError
	if _, err := c.Sandboxes.Create(ctx, app, image, &sdk.SandboxCreateParams{Name: "one", Timeout: time.Minute}); !errors.As(err, &exists) {
		t.Fatalf("a name that is taken: %v", err)
	}
	// run is a command with an input, as the SDK runs them.
	run := func(sb *sdk.Sandbox, input string, argv ...string) (out, errs string, code int) {
		t.Helper()
		p, err := sb.Exec(ctx, argv, &sdk.SandboxExecParams{})
		if err != nil {
			t.Fatal(err)
		}
		if input != "" { // a command that has ended takes none, which is an error
			if _, err := io.WriteString(p.Stdin, input); err != nil {
				t.Fatal(err)
			}
			if err := p.Stdin.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if code, err = p.Wait(ctx, nil); err != nil {
			t.Fatal(err)
		}
		o, err1 := io.ReadAll(p.Stdout)
		e, err2 := io.ReadAll(p.Stderr)
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		return string(o), string(e), code
	}
	const script = `cat; printf '\000\377' ; echo "$WORD" >&2; echo kept >"$HOME/file"; exit 7`
	if out, errs, code := run(sb, "in\n", "sh", "-c", script); out != "in\n\x00\xff" || errs != "x y\n" || code != 7 {
		t.Errorf("%q %q %d", out, errs, code)
	}
	if _, _, code := run(sb, "", "sh", "-c", "kill -9 $$"); code != 137 {
		t.Errorf("killed: %d", code)
	}
	snap, err := sb.SnapshotFilesystem(ctx, &sdk.SandboxSnapshotFilesystemParams{TTL: sdk.NoExpiryTTL})
	if err != nil {
		t.Fatal(err)
	}
	if err := snap.Publish(ctx, "kept:latest", nil); err != nil {
		t.Fatal(err)
	}
	all := &sdk.Allowlist{Entries: []string{"*"}}
	if err := sb.UpdateNetworkPolicy(ctx, &sdk.SandboxUpdateNetworkPolicyParams{OutboundCIDRAllowlist: &sdk.Allowlist{Entries: []string{"0.0.0.0/0"}}, OutboundDomainAllowlist: all}); err != nil {
		t.Fatal(err)
	}
	found, err := c.Sandboxes.FromName(ctx, "official", "one", nil)
	if err != nil || found.SandboxID != sb.SandboxID {
		t.Fatalf("%v %v", found, err)
	}
	if tags, err := found.GetTags(ctx, nil); err != nil || tags["k"] != "v" {
		t.Errorf("%v %v", tags, err)
	}
	if out, _, _ := run(found, "", "cat", "file"); out != "kept\n" {
		t.Errorf("%q", out)
	}
	if code, err := found.Terminate(ctx, &sdk.SandboxTerminateParams{Wait: true}); err != nil || code != 137 {
		t.Errorf("%d %v", code, err)
	}
	if left := srv.Running(); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	last, err := c.Sandboxes.FromName(ctx, "official", "one", &sdk.SandboxFromNameParams{IncludeTerminated: true})
	if err != nil || last.SandboxID != sb.SandboxID {
		t.Fatalf("%v %v", last, err)
	}
	exit, err := last.ExperimentalGetExitSnapshot(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	kept, err := c.Images.FromName(ctx, "kept:latest", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, image := range []*sdk.Image{kept, exit} {
		again := create(image)
		if out, _, _ := run(again, "", "cat", "file"); out != "kept\n" {
			t.Errorf("restored: %q", out)
		}
		n := 0
		list, err := c.Sandboxes.List(ctx, &sdk.SandboxListParams{AppID: app.AppID, Tags: map[string]string{"k": "v"}})
		if err != nil {
			t.Fatal(err)
		}
		for one, err := range list {
			if err != nil || one.SandboxID != again.SandboxID {
				t.Errorf("%v %v", one, err)
			}
			n++
		}
		if n != 1 {
			t.Errorf("listed: %d", n)
		}
		if _, err := again.Terminate(ctx, &sdk.SandboxTerminateParams{Wait: true}); err != nil {
			t.Fatal(err)
		}
	}
	// What has a GPU is of the first kind.
	gpu, err := c.Sandboxes.Create(ctx, app, image, &sdk.SandboxCreateParams{Name: "two", Timeout: time.Minute, GPU: "T4:2"})
	if err != nil || !isV1(gpu.SandboxID) {
		t.Fatalf("%v %v", gpu, err)
	}
	if out, _, _ := run(gpu, "", "echo", "here"); out != "here\n" {
		t.Errorf("%q", out)
	}
	if got := srv.Running()[0].Definition.GetResources().GetGpuConfig(); got.GetGpuType() != "T4" || got.GetCount() != 2 {
		t.Errorf("%v", got)
	}
	if err := c.Images.Delete(ctx, kept.ImageID, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Images.FromName(ctx, "kept:latest", nil); !errors.As(err, &missing) {
		t.Errorf("deleted: %v", err)
	}
}

// A sandbox that no one looks after ends by itself, idle or not.
func TestStandInKeepsLimitsOfLife(t *testing.T) {
	srv := serve(t)
	c, err := sdk.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	app, err := c.Apps.FromName(t.Context(), "official", &sdk.AppFromNameParams{CreateIfMissing: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []struct {
		sdk.SandboxCreateParams
		busy bool
		want pb.GenericResult_GenericStatus
	}{
		{sdk.SandboxCreateParams{Timeout: 2 * time.Hour, IdleTimeout: time.Hour}, true, pb.GenericResult_GENERIC_STATUS_TIMEOUT},
		{sdk.SandboxCreateParams{Timeout: 4 * time.Hour, IdleTimeout: time.Hour}, false, pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT},
		{sdk.SandboxCreateParams{Timeout: time.Hour, IdleTimeout: time.Second}, false, pb.GenericResult_GENERIC_STATUS_IDLE_TIMEOUT},
	} {
		sb, err := c.Sandboxes.Create(t.Context(), app, c.Images.FromRegistry("debian:12", nil), &p.SandboxCreateParams)
		if err != nil {
			t.Fatal(err)
		}
		if p.busy {
			if _, err := sb.Exec(t.Context(), []string{"sleep", "1234"}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if p.IdleTimeout > time.Minute {
			for range 2 {
				srv.Elapse(sb.SandboxID, 61*time.Minute)
			}
		}
		if _, err := sb.Wait(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		for _, b := range srv.Sandboxes() {
			if b.ID == sb.SandboxID && b.Result().GetStatus() != p.want {
				t.Errorf("%v, want %v", b.Result(), p.want)
			}
		}
	}
}

func serve(t *testing.T) *modaltest.Server {
	t.Helper()
	srv, err := modaltest.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	srv.Setenv(t.Setenv)
	cleanupTime = 2 * time.Minute // however slow the machine is
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	return srv
}
