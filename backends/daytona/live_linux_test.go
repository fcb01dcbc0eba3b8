//go:build live

package daytona_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"strings"
	"testing"
	"time"

	"berth/backends/daytona"
	"berth/backends/external/protocol"
	"berth/internal/link/session"
	"berth/jobs"
)

// The real service, with the key and the address of the environment. What is made
// is small, ends by itself within an hour, and is deleted; the snapshot, which ends by
// no timer, is deleted, too. A key that may make none skips nothing but that.
func TestLive(t *testing.T) {
	p := daytona.Provider{}
	says := func(format string, args ...any) { t.Logf(format, args...) }
	c, err := p.Check(t.Context(), &protocol.Request{Berth: 1}, says)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", c)
	daytona.Hurry(time.Second)
	r := request(t, "live-"+rand.Text()[:8])
	r.Tags[protocol.TagOwner] = "berth-live-test"
	r.Spec.MemoryMiB, r.Spec.LifetimeSeconds = 1024, 1800
	r.Options["auto_destroy_after_seconds"] = "1800"
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
		defer stop()
		if err := p.Destroy(ctx, r, says); err != nil {
			t.Errorf("it is left, and ends by itself: %v", err)
		}
	})
	o := open(t, r)
	t.Logf("%+v", o)
	s, _ := talk(t, r, o)
	all := make([]byte, 3<<20)
	_, _ = rand.Read(all)
	if out, errs, code := do(t, s, bytes.NewReader(all), "cat; echo e >&2; echo kept >~/kept; exit 7"); out != string(all) || errs != "e\n" || code != 7 {
		t.Errorf("%d bytes, %q, %d", len(out), errs, code)
	}
	// A command that is ended takes all that it has started with it.
	kill, err := s.Start(session.StartRequest{Command: jobs.Command{Shell: "sleep 600 & sleep 600"}, Session: "default"}, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	<-kill.Begun()
	if err := kill.Terminate(time.Second); err != nil {
		t.Fatal(err)
	}
	if res, err := kill.Wait(); err != nil || res.Exit.Code == 0 && res.Exit.Signal == 0 {
		t.Errorf("%+v, %v", res, err)
	}
	snapshot := named(r, "berth-snap-live-"+strings.ToLower(rand.Text()[:8]))
	t.Cleanup(func() {
		ctx, stop := context.WithTimeout(context.Background(), 2*time.Minute)
		defer stop()
		if err := p.Forget(ctx, snapshot, says); err != nil {
			t.Errorf("the snapshot %s is left, and nothing ends it: %v", snapshot.Snapshot, err)
		}
	})
	_, err = p.Snapshot(t.Context(), snapshot, says)
	taken := err == nil
	if !taken && kindOf(err) != protocol.Auth && kindOf(err) != protocol.Unsupported {
		t.Errorf("a snapshot: %v", err)
	}
	_ = s.Close()
	if taken {
		back, err := p.Restore(t.Context(), snapshot, says)
		if err != nil {
			t.Fatal(err)
		}
		r.Ref = back.Ref
		o = open(t, r)
		s, _ = talk(t, r, o)
		if out, _, _ := do(t, s, nil, "cat ~/kept"); out != "kept\n" {
			t.Errorf("restored: %q", out)
		}
		_ = s.Close()
	}
	if err := p.Stop(t.Context(), r, says); err != nil {
		t.Fatal(err)
	}
	o = open(t, r)
	s, _ = talk(t, r, o)
	if out, _, _ := do(t, s, nil, "cat ~/kept"); out != "kept\n" || o.State != protocol.StateRestored {
		t.Errorf("%q %+v", out, o)
	}
	_ = s.Close()
}
