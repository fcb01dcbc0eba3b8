package broker

import (
	"strings"
	"testing"

	"berth/internal/network/credentials"
	"berth/test/fakes/models"
)

// TestGive: until a credential's key has come its requests are refused, and reach no
// server. The first key stays, and is looked for in answers as any is.
func TestGive(t *testing.T) {
	w := (&world{reply: func(r models.Request) models.Reply {
		if strings.HasSuffix(r.Path, "/models") {
			return models.Reply{Status: 200, Raw: r.Header.Get("Authorization")}
		}
		return models.Reply{Text: "one two three", In: 10, Out: 3}
	}}).start(t)
	c := credentials.Ready()["openai"]
	c.Upstream = "https://" + models.Host + "/v1"
	var err error
	w.b.Close()
	if w.b, err = New(Options{Credentials: []Credential{{Credential: c, Placeholder: placeholder}}, Dial: w.dial, Roots: w.server.Roots}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.b.Close)
	const body = `{"model":"m-1","messages":[]}`
	ask := func() int {
		status, answer, _, err := w.ask("openai", "POST", "/v1/chat/completions", body)
		if err != nil || strings.Contains(answer, key) {
			t.Errorf("%q %v", answer, err)
		}
		return status
	}
	if got := ask(); got != 503 || len(w.server.Requests()) != 0 {
		t.Errorf("without a key: %d, and %d requests arrived", got, len(w.server.Requests()))
	}
	if _, _, _, err := w.ask("openai", "POST", "/v1/chat/completions", body, "Authorization", "Bearer x"); err != nil {
		t.Error(err)
	}
	for _, bad := range []map[string]string{nil, {"openai": ""}, {"openai": "short"}, {"openai": key + "\n"}, {"other": key}} {
		if err := w.b.Give(bad); err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("%v", err)
		}
		if got := ask(); got != 503 {
			t.Errorf("%d", got)
		}
	}
	for _, k := range []string{key, "sk-of-another-client"} {
		if err := w.b.Give(map[string]string{"openai": k}); err != nil {
			t.Fatal(err)
		}
		if got := ask(); got != 200 {
			t.Errorf("%d", got)
		}
	}
	if status, answer, _, err := w.ask("openai", "GET", "/v1/models", ""); err == nil && status == 200 || strings.Contains(answer, key) {
		t.Errorf("an echo: %d %q %v", status, answer, err)
	}
}
