package registry

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"berth/jobs"
)

// TestProxy: registries are asked through what is named, and through nothing
// that the process's own environment says.
func TestProxy(t *testing.T) {
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.Host)
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(srv.Close)
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	env := map[string]string{"HTTPS_PROXY": srv.URL, "no_proxy": "inside.example.org, 10.0.0.0/8, .port.org:8443"}
	c := client(t, env)
	c.HTTP = Through(c.Keychain)
	if _, err := ask(t, c, "docker://registry.example.org/x:1"); jobs.CodeOf(err) != jobs.CodeInfra {
		t.Error(err)
	}
	if len(asked) == 0 || strings.TrimSuffix(asked[0], ":443") != "CONNECT registry.example.org" {
		t.Errorf("the proxy was asked for %v", asked)
	}
	through := c.HTTP.Transport.(*http.Transport).Proxy
	direct := func(address string) bool {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address, nil)
		must(t, err)
		u, err := through(r)
		must(t, err)
		return u == nil
	}
	for address, want := range map[string]bool{
		"localhost": true, "127.0.0.1": true, "[::1]": true, "a.inside.example.org": true, "inside.example.org": true, "xinside.example.org": false,
		"10.1.2.3": true, "11.1.2.3": false, "far.example.org": false, "x.port.org:8443": true, "x.port.org": false,
	} {
		if got := direct(address); got != want {
			t.Errorf("%s is reached directly: %v", address, got)
		}
	}
}
