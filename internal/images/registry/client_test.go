package registry

import (
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

	"berth/apptainer"
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
	return &Client{Keychain: func(n string) string { return env[n] }, Tool: apptainer.ImageTool, Progress: func(string) {}, Arch: "amd64",
		HTTP: &http.Client{Transport: tr}, first: time.Millisecond}
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
	// What an index has for a platform is read once; then there are a ping and a HEAD.
	m := memo{}
	c.Memo, c.Arch = m, "arm64"
	for range 3 {
		s.asked.Store(0)
		if got, err := ask(t, c, "docker://"+s.host+"/many:x"); got != want["arm64"] || err != nil {
			t.Errorf("%s, %v", got, err)
		}
	}
	if n := s.asked.Load(); n != 2 || len(m) != 1 {
		t.Errorf("asked %d times, %v", n, m)
	}
	c.Arch = "riscv64"
	if _, err := ask(t, c, "docker://"+s.host+"/many:x"); jobs.CodeOf(err) != jobs.CodeNotFound || !strings.Contains(err.Error(), "linux/arm64, linux/amd64") {
		t.Error(err)
	}
}

// What a registry refuses comes back with its own words, and with the exit code
// that says what to do: when it is pinged, and when it is asked for a manifest.
func TestRefused(t *testing.T) {
	type times = [2]int32
	bearer := func(s string) http.Header { return http.Header{"Www-Authenticate": {"Bearer " + s}} }
	list := func(digest string) string {
		return `{"manifests":[{"digest":"` + digest + `","platform":{"os":"linux","architecture":"amd64"}}]}`
	}
	for name, k := range map[string]struct {
		status int
		body   string
		header http.Header
		code   int
		text   string
		asked  times
	}{
		"not found": {404, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"no such tag"}]}`, nil,
			jobs.CodeNotFound, "MANIFEST_UNKNOWN: no such tag", times{1, 3}},
		"forbidden":       {403, `{"errors":[{"code":"DENIED","message":"not you"}]}`, nil, jobs.CodeAuth, "DENIED: not you", times{1, 3}},
		"login wanted":    {401, ``, http.Header{"Www-Authenticate": {`Basic realm="x"`}}, jobs.CodeAuth, "no login is set", times{3, 3}},
		"no way to":       {401, ``, nil, jobs.CodeAuth, "no login is set", times{3, 3}},
		"tokens far":      {401, ``, bearer(`realm="http://example.invalid/token"`), jobs.CodeAuth, "no address with https", times{1}},
		"tokens nowhere":  {401, ``, bearer(`service="x"`), jobs.CodeAuth, "missing realm", times{1}},
		"led away":        {302, ``, http.Header{"Location": {"http://example.invalid/"}}, jobs.CodeAuth, "no address with https", times{1, 2}},
		"led in a circle": {302, ``, http.Header{"Location": {"/v2/a/b/manifests/c"}}, jobs.CodeInfra, "place to place", times{0, steps}},
		"rate limit": {429, `{"errors":[{"code":"TOOMANYREQUESTS","message":"slow\u001b[2Jdown"}]}`,
			http.Header{"Retry-After": {"0"}}, jobs.CodeAgain, "slow [2Jdown", times{tries, tries + 2}},
		"limit for long": {429, ``, http.Header{"Retry-After": {"86400"}}, jobs.CodeAgain, "429", times{1, 3}},
		"broken":         {500, "<html>", nil, jobs.CodeInfra, "500", times{tries, tries + 2}},
		"hostile":        {200, `{"config":"x"}`, nil, jobs.CodeInfra, "no manifest", times{3, 3}},
		"html":           {200, "<html>login to the hotel's network", nil, jobs.CodeInfra, "no manifest", times{3, 3}},
		"huge":           {200, strings.Repeat("x", mostBytes+1), nil, jobs.CodeInfra, "more than", times{1, 3}},
		"odd digest":     {200, list("sha256:../../x"), nil, jobs.CodeInfra, "no manifest", times{3, 3}},
		"long digest":    {200, list("sha512:" + strings.Repeat("0", 128)), nil, jobs.CodeInfra, "no digest", times{3, 3}},
	} {
		for at, from := range []string{"/v2/", "/v2/a/"} {
			if k.asked[at] == 0 {
				continue // only the answer to a ping is read for that
			}
			t.Run(name+" "+from, func(t *testing.T) {
				s := serve(t)
				s.before = func(w http.ResponseWriter, r *http.Request) bool {
					if !strings.HasPrefix(r.URL.Path, from) {
						return false
					}
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
				if n := s.asked.Load(); n != k.asked[at] {
					t.Errorf("asked %d times", n)
				}
			})
		}
	}
}

// TestPlaces: whatever the library wants to send, and a registry wants to have sent,
// goes over TLS, or to this machine if the registry is here.
func TestPlaces(t *testing.T) {
	c := client(t, nil)
	for _, k := range []struct{ host, url string }{
		{"10.0.0.5:5000", "http://10.0.0.5:5000/v2/"}, {"10.0.0.5:5000", "http://127.0.0.1:9/token"}, {"r.example.org", "http://r.example.org/v2/"},
		{"127.0.0.1:5000", "http://127.example.org/"}, {"127.0.0.1:5000", "ftp://127.0.0.1/"}, {"127.0.0.1:5000", "http://u:p@127.0.0.1:9/"},
		{"r.example.org", "https://u:p@r.example.org/"},
	} {
		n, err := images.ParseName("docker://" + k.host + "/a/b:c")
		must(t, err)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, k.url, nil)
		must(t, err)
		req.SetBasicAuth("ada", "s3cret")
		if _, err := c.asking(n, n.Host, n.Loopback()).RoundTrip(req); jobs.CodeOf(err) != jobs.CodeAuth || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%v: %v", k, err)
		}
	}
}

// A registry that comes back is worth the wait, and so is one that breaks off.
func TestComesBack(t *testing.T) {
	s := serve(t)
	want := s.push(t, "a:b")
	s.before = func(w http.ResponseWriter, _ *http.Request) bool {
		switch s.asked.Load() {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
		case 2:
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "half")
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		default:
			return false
		}
		return true
	}
	c := client(t, nil)
	var told []string
	c.Progress = func(s string) { told = append(told, s) }
	if got, err := ask(t, c, "docker://"+s.host+"/a:b"); got != want || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	if len(told) != 2 || !strings.Contains(told[0], "answers 503") || !strings.Contains(told[1], "does not answer") {
		t.Errorf("told %q", told)
	}
	limit := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"7"}}}
	wait := c.asking(images.Name{}, "", false).wait(time.Second, longest, 0, limit)
	if wait != 7*time.Second || !strings.HasSuffix(told[2], "asking again in 7s") {
		t.Errorf("%s, told %q", wait, told)
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

// Where there is no network no one waits for one.
func TestNoWayThere(t *testing.T) {
	c := client(t, nil)
	c.Progress = func(s string) { t.Error(s) }
	if _, err := ask(t, c, "docker://127.0.0.1:9/a:b"); jobs.CodeOf(err) != jobs.CodeInfra || jobs.HintOf(err) == "" {
		t.Error(err)
	}
}
