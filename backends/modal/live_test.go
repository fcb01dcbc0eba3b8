//go:build live

package modal

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"berth/backends/external/protocol"
)

// The real Modal, with the keys of whoever asks for it:
//
//	go test -tags live -run TestLive ./backends/modal
//
// It costs a fraction of a cent. Its sandboxes have a limit of life of five minutes
// from the call on that makes them, and are ended and deleted in any case.
func TestLive(t *testing.T) {
	if os.Getenv("MODAL_TOKEN_ID") == "" && os.Getenv("MODAL_PROFILE") == "" {
		t.Fatal("no keys: export MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, or MODAL_PROFILE for one of ~/.modal.toml")
	}
	if os.Getenv("MODAL_SERVER_URL") != "" {
		t.Fatal("MODAL_SERVER_URL is set: this is about the real Modal")
	}
	r := request(t, fmt.Sprintf("berth-live-%d", time.Now().UnixNano()))
	r.Guest.Arch = "amd64"
	r.Spec.LifetimeSeconds, r.Spec.IdleSeconds, r.Options[optApp] = 300, 120, "berth-live"
	if _, err := (Provider{}).Check(limited(t), r, t.Logf); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := detached(t.Context(), time.Minute)
		defer cancel()
		if err := (Provider{}).Destroy(ctx, r, t.Logf); err != nil {
			t.Errorf("SOMETHING MAY BE LEFT, for five minutes: %v", err)
		}
		if left, err := (Provider{}).List(ctx, r, t.Logf); err != nil || len(left) > 0 {
			t.Errorf("SOMETHING MAY BE LEFT, for five minutes: %+v %v", left, err)
		}
	})
	a := open(t, r)
	if out, code := sh(t, r, a, `cat; printf '\000\377'; echo kept >"$HOME/file"; exit 3`, "in"); out != "in\x00\xff" || code != 3 {
		t.Errorf("%q %d", out, code)
	}
	var out bytes.Buffer
	big := strings.Repeat("0123456789abcde\n", 1<<20)
	if code, err := stream(t, r, a, "cat", strings.NewReader(big), &out); err != nil || code != 0 || out.String() != big {
		t.Errorf("%d bytes of %d, %d, %v", out.Len(), len(big), code, err)
	}
	if found := open(t, r); found.State != protocol.StateFound {
		t.Errorf("%+v", found)
	}
	if err := (Provider{}).Stop(limited(t), r, t.Logf); err != nil {
		t.Fatal(err)
	}
	if a = open(t, r); a.State != protocol.StateRestored {
		t.Errorf("%+v", a)
	}
	if out, _ := sh(t, r, a, `cat "$HOME/file"`, ""); out != "kept\n" {
		t.Errorf("%q", out)
	}
}
