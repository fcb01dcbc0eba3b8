package registry

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/internal/images"
	"berth/jobs"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// served is a registry on loopback; before may answer in its place.
type served struct {
	host   string
	before func(w http.ResponseWriter, r *http.Request) bool
	asked  atomic.Int32
}

func serve(t *testing.T) *served {
	t.Helper()
	s := &served{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.UserAgent() == "berth" {
			s.asked.Add(1)
			if s.before != nil && s.before(w, r) {
				return
			}
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	s.host = strings.TrimPrefix(srv.URL, "http://")
	return s
}

func (s *served) push(t *testing.T, ref string) string {
	t.Helper()
	img, err := random.Image(1000, 2)
	must(t, err)
	r, err := name.ParseReference(s.host + "/" + ref)
	must(t, err)
	must(t, remote.Write(r, img))
	d, err := img.Digest()
	must(t, err)
	return d.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func client(t *testing.T, env map[string]string) *Client {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &Client{Keychain: func(n string) string { return env[n] }, Progress: func(string) {}, Arch: "amd64",
		HTTP: &http.Client{Transport: tr}, Sleep: func(context.Context, time.Duration) error { return nil }}
}

func ask(t *testing.T, c *Client, ref string) (string, error) {
	t.Helper()
	n, err := images.ParseName(ref)
	must(t, err)
	return c.Digest(t.Context(), n)
}

func TestDigest(t *testing.T) {
	s := serve(t)
	want := s.push(t, "team/tool:1.0")
	c := client(t, nil)
	for _, ref := range []string{"docker://" + s.host + "/team/tool:1.0", "oras://" + s.host + "/team/tool:1.0", "docker://" + s.host + "/team/tool@" + want} {
		if got, err := ask(t, c, ref); got != want || err != nil {
			t.Errorf("%s: %s, %v", ref, got, err)
		}
	}
	next := s.push(t, "team/tool:1.0")
	if got, err := ask(t, c, "docker://"+s.host+"/team/tool:1.0"); got != next || next == want || err != nil {
		t.Errorf("after the tag has moved: %s, %v", got, err)
	}
}

type memo map[string]string

func (m memo) Recall(index, platform string) string    { return m[index+platform] }
func (m memo) Remember(index, platform, digest string) { m[index+platform] = digest }

func TestPlatform(t *testing.T) {
	s := serve(t)
	idx := v1.ImageIndex(empty.Index)
	want := map[string]string{}
	for _, arch := range []string{"arm64", "amd64"} {
		img, err := random.Image(100, 1)
		must(t, err)
		d, err := img.Digest()
		must(t, err)
		want[arch] = d.String()
		idx = mutate.AppendManifests(idx, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	r, err := name.ParseReference(s.host + "/many:x")
	must(t, err)
	must(t, remote.WriteIndex(r, idx))
	c := client(t, nil)
	for arch, digest := range want {
		c.Arch = arch
		if got, err := ask(t, c, "docker://"+s.host+"/many:x"); got != digest || err != nil {
			t.Errorf("%s: %s, %v", arch, got, err)
		}
	}
	// What an index has for a platform is read once.
	m := memo{}
	c.Memo, c.Arch = m, "arm64"
	for range 3 {
		s.asked.Store(0)
		if got, err := ask(t, c, "docker://"+s.host+"/many:x"); got != want["arm64"] || err != nil {
			t.Errorf("%s, %v", got, err)
		}
	}
	if n := s.asked.Load(); n != 1 || len(m) != 1 {
		t.Errorf("asked %d times, %v", n, m)
	}
	c.Arch = "riscv64"
	if _, err := ask(t, c, "docker://"+s.host+"/many:x"); jobs.CodeOf(err) != jobs.CodeNotFound || !strings.Contains(err.Error(), "linux/arm64, linux/amd64") {
		t.Error(err)
	}
}

// What a registry refuses comes back with its own words, and with the exit code
// that says what to do.
func TestRefused(t *testing.T) {
	for name, k := range map[string]struct {
		status int
		body   string
		header http.Header
		code   int
		text   string
		asked  int32
	}{
		"not found":      {404, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"no such tag"}]}`, nil, jobs.CodeNotFound, "MANIFEST_UNKNOWN: no such tag", 2},
		"forbidden":      {403, `{"errors":[{"code":"DENIED","message":"not you"}]}`, nil, jobs.CodeAuth, "DENIED: not you", 2},
		"login wanted":   {401, ``, http.Header{"Www-Authenticate": {`Basic realm="x"`}}, jobs.CodeAuth, "no login is set", 1},
		"no way to":      {401, ``, nil, jobs.CodeAuth, "does not say how", 1},
		"tokens far":     {401, ``, http.Header{"Www-Authenticate": {`Bearer realm="http://example.invalid/token"`}}, jobs.CodeAuth, "no address with https", 1},
		"rate limit":     {429, `{"errors":[{"code":"TOOMANYREQUESTS","message":"slow\u001b[2Jdown"}]}`, http.Header{"Retry-After": {"3"}}, jobs.CodeAgain, "slow [2Jdown", tries + 1},
		"limit for long": {429, ``, http.Header{"Retry-After": {"86400"}}, jobs.CodeAgain, "429", 2},
		"broken":         {500, "<html>", nil, jobs.CodeInfra, "500", tries + 1},
		"hostile":        {200, `{"config":"x"}`, nil, jobs.CodeInfra, "no manifest", 2},
		"html":           {200, "<html>login to the hotel's network", nil, jobs.CodeInfra, "no manifest", 2},
		"huge":           {200, strings.Repeat("x", mostBytes+1), nil, jobs.CodeInfra, "more than", 2},
		"odd digest":     {200, `{"manifests":[{"digest":"sha256:../../x","platform":{"os":"linux","architecture":"amd64"}}]}`, nil, jobs.CodeInfra, "no digest", 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t)
			s.before = func(w http.ResponseWriter, _ *http.Request) bool {
				for n, v := range k.header {
					w.Header()[n] = v
				}
				w.WriteHeader(k.status)
				_, _ = io.WriteString(w, k.body)
				return true
			}
			_, err := ask(t, client(t, nil), "docker://"+s.host+"/a/b:c")
			if jobs.CodeOf(err) != k.code || !strings.Contains(err.Error(), k.text) || jobs.HintOf(err) == "" {
				t.Errorf("code %d: %v", jobs.CodeOf(err), err)
			}
			if n := s.asked.Load(); n != k.asked {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

// A registry that comes back is worth the wait.
func TestComesBack(t *testing.T) {
	s := serve(t)
	want := s.push(t, "a:b")
	s.before = func(w http.ResponseWriter, _ *http.Request) bool {
		if s.asked.Load() < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		return false
	}
	if got, err := ask(t, client(t, nil), "docker://"+s.host+"/a:b"); got != want || err != nil {
		t.Errorf("%s, %v", got, err)
	}
}

func TestOtherContent(t *testing.T) {
	s := serve(t)
	s.push(t, "a:b")
	s.before = func(w http.ResponseWriter, _ *http.Request) bool {
		_, _ = io.WriteString(w, `{"config":{"digest":"sha256:0"}}`)
		return true
	}
	if _, err := ask(t, client(t, nil), "docker://"+s.host+"/a@sha256:"+strings.Repeat("1", 64)); jobs.CodeOf(err) != jobs.CodeInfra || !strings.Contains(err.Error(), "something else") {
		t.Error(err)
	}
}

// Logins are taken from the variables or from the file that one names, and go
// nowhere but to the registry or to its place for tokens.
func TestLogin(t *testing.T) {
	const password = "s3cret:with:colons"
	dir := t.TempDir()
	for name, env := range map[string]map[string]string{
		"variables": {"APPTAINER_DOCKER_USERNAME": "ada", "APPTAINER_DOCKER_PASSWORD": password},
		"file":      {"DOCKER_CONFIG": dir},
		"nothing":   {},
	} {
		for _, way := range []string{"basic", "bearer"} {
			t.Run(name+" "+way, func(t *testing.T) {
				s := serve(t)
				want := s.push(t, "private/x:1")
				must(t, os.WriteFile(filepath.Join(dir, "config.json"), fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}},"credsStore":"evil"}`, s.host, base64.StdEncoding.EncodeToString([]byte("ada:"+password))), 0o600))
				s.before = func(w http.ResponseWriter, r *http.Request) bool {
					u, p, ok := r.BasicAuth()
					mine := ok && u == "ada" && p == password
					switch {
					case r.URL.Path == "/token" && mine && r.URL.Query().Get("scope") == "repository:private/x:pull":
						_, _ = io.WriteString(w, `{"token":"t0"}`)
						return true
					case way == "bearer" && r.Header.Get("Authorization") == "Bearer t0", way == "basic" && mine:
						return false
					case way == "bearer":
						w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="http://%s/token",service="reg"`, s.host))
					default:
						w.Header().Set("WWW-Authenticate", `Basic realm="reg"`)
					}
					w.WriteHeader(http.StatusUnauthorized)
					return true
				}
				got, err := ask(t, client(t, env), "docker://"+s.host+"/private/x:1")
				if name == "nothing" {
					if jobs.CodeOf(err) != jobs.CodeAuth || !strings.Contains(jobs.HintOf(err), "APPTAINER_DOCKER_USERNAME") {
						t.Error(err)
					}
					return
				}
				if got != want || err != nil {
					t.Errorf("%s, %v", got, err)
				}
				s.before = func(w http.ResponseWriter, _ *http.Request) bool {
					w.WriteHeader(http.StatusForbidden)
					return true
				}
				if _, err := ask(t, client(t, env), "docker://"+s.host+"/private/x:1"); err == nil || strings.Contains(fmt.Sprint(err, jobs.HintOf(err)), "s3cret") {
					t.Error(err)
				}
			})
		}
	}
}

// Where there is no network nobody waits for one.
func TestNoWayThere(t *testing.T) {
	c := client(t, nil)
	c.Sleep = func(context.Context, time.Duration) error { t.Error("it is asked again"); return nil }
	if _, err := ask(t, c, "docker://127.0.0.1:9/a:b"); jobs.CodeOf(err) != jobs.CodeInfra || jobs.HintOf(err) == "" {
		t.Error(err)
	}
}
