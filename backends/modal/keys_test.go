package modal

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/backends/external/protocol"
	"berth/test/fakes/modaltest"
)

// The file of Modal's own programs, with its profiles.
func TestKeysOfTheFile(t *testing.T) {
	srv := serve(t)
	file := filepath.Join(t.TempDir(), "modal.toml")
	text := fmt.Sprintf("[work]\ntoken_id = %[1]q\ntoken_secret = %[2]q\nserver_url = %[3]q\nactive = true\n"+
		"[spent]\ntoken_id = %[1]q\ntoken_secret = %[2]q\nserver_url = %[3]q\nenvironment = \"spent\"\n"+
		"[old]\ntoken_id = %[1]q\ntoken_secret = \"as-not-this\"\nserver_url = %[3]q\n[bare]\nserver_url = %[3]q\n", modaltest.TokenID, modaltest.TokenSecret, srv.URL())
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET", "MODAL_SERVER_URL"} {
		t.Setenv(name, "")
	}
	t.Setenv("MODAL_CONFIG_PATH", file)
	for _, c := range []struct {
		profile, id, secret string
		kind                protocol.Kind
		says                string
	}{
		{says: "environment main"},
		{profile: "spent", says: "environment spent"},
		{profile: "old", kind: protocol.Auth, says: "does not take the key"},
		{profile: "old", id: modaltest.TokenID, secret: modaltest.TokenSecret, says: "environment main"}, // these win
		{profile: "bare", kind: protocol.Auth, says: `MODAL_PROFILE is "bare"`},
		{profile: "nowhere", kind: protocol.Auth, says: `MODAL_PROFILE is "nowhere"`},
		{profile: "bare", id: modaltest.TokenID, kind: protocol.Auth, says: "MODAL_TOKEN_SECRET is not"},
		{profile: "bare", secret: modaltest.TokenSecret, kind: protocol.Auth, says: "MODAL_TOKEN_ID is not"},
	} {
		t.Setenv("MODAL_PROFILE", c.profile)
		t.Setenv("MODAL_TOKEN_ID", c.id)
		t.Setenv("MODAL_TOKEN_SECRET", c.secret)
		a, err := Provider{}.Check(limited(t), &protocol.Request{}, t.Logf)
		said := fmt.Sprint(err)
		if err == nil {
			said = a.Service
		}
		if kindOf(err) != c.kind || !strings.Contains(said, c.says) || strings.Contains(said, "as-not-this") {
			t.Errorf("%+v: %s", c, said)
		}
	}
	t.Setenv("MODAL_SERVER_URL", "ftp://here")
	if _, err := (Provider{}).Check(limited(t), &protocol.Request{}, t.Logf); kindOf(err) != protocol.Auth || !strings.Contains(fmt.Sprint(err), "ftp://here") {
		t.Errorf("%v", err)
	}
}
