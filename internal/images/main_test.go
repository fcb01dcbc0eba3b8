package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/test/fakes/siftest"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/uuid"
)

// The test program is also the container program ("build" and "pull"), and a
// puller of its own that can be killed ("get").
func TestMain(m *testing.M) {
	switch mode := os.Getenv("IMAGES_TEST"); {
	case mode == "program" && (strings.HasSuffix(os.Args[len(os.Args)-1], ".def") || slices.Contains(os.Args, "--sandbox")):
		os.Exit(builder(os.Args[2:]))
	case mode == "program" && len(os.Args) == 4:
		os.Exit(program(os.Args[2], os.Args[3]))
	case mode == "get" && len(os.Args) == 3:
		c := newCache(os.Args[1])
		_, err := c.Get(context.Background(), os.Args[2])
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// program makes a SIF of what a registry on loopback has under a digest: it
// fetches every layer, as the real one does.
func program(made, ref string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, "FATAL:   "+strings.ReplaceAll(err.Error(), "\n", " "))
		return 255
	}
	if file, ok := archive(ref); ok {
		b, err := os.ReadFile(file)
		if err == nil && string(b) == "SWAP" { // someone puts another one there
			b = []byte("other")
			err = os.WriteFile(file, b, 0o600)
		}
		if err == nil {
			err = os.WriteFile(made, sif(b), 0o755)
		}
		if err != nil {
			return fail(err)
		}
		return 0
	}
	n, err := ParseName(ref)
	if err != nil {
		return fail(err)
	}
	for _, v := range []string{"APPTAINER_CACHEDIR", "APPTAINER_TMPDIR"} {
		if fi, err := os.Stat(filepath.Dir(os.Getenv(v))); err != nil || !fi.IsDir() {
			return fail(errors.New(v + " is wanted"))
		}
	}
	what := n.Digest
	if what == "" {
		what = n.Tag
	}
	base := "http://" + n.Host + "/v2/" + n.Repo
	body, err := get(base + "/manifests/" + what)
	if err != nil {
		return fail(err)
	}
	var m struct{ Layers []struct{ Digest string } }
	if err := json.Unmarshal(body, &m); err != nil {
		return fail(err)
	}
	data := body
	for _, l := range m.Layers {
		b, err := get(base + "/blobs/" + l.Digest)
		if err != nil {
			return fail(err)
		}
		data = append(data, b...)
	}
	if err := os.WriteFile(made, sif(data), 0o755); err != nil {
		return fail(err)
	}
	return 0
}

func get(url string) ([]byte, error) {
	resp, err := http.Get(url) //nolint:noctx // the process ends with its parent
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != 200 {
		err = errors.New(resp.Status)
	}
	return b, err
}

// sif is an image with this data.
func sif(data []byte) []byte { return siftest.New(uuid.UUID([]byte("0123456789abcdef")), data) }

// tool is the container program of these tests, with the names of the real one.
var tool = Tool{
	Logins:    [][2]string{{"APPTAINER_DOCKER_USERNAME", "APPTAINER_DOCKER_PASSWORD"}, {"SINGULARITY_DOCKER_USERNAME", "SINGULARITY_DOCKER_PASSWORD"}},
	AuthFile:  "APPTAINER_AUTHFILE",
	Libraries: []string{"APPTAINER_LIBRARY", "SINGULARITY_LIBRARY"},
	Work: func(_ string, w Work) []string {
		return []string{"APPTAINER_CACHEDIR=" + w.Cache, "APPTAINER_TMPDIR=" + w.Temp}
	},
	ByHand:       func(ref string) string { return "apptainer build image.sif " + ref },
	AddRemote:    "apptainer remote add",
	ScriptFailed: []string{"while running %", "failed to execute %"},
}

func newCache(dir string) *Cache {
	return &Cache{Dir: dir, On: run.Local{}, Program: os.Executable, Tool: tool,
		Environ:  func() []string { return []string{"IMAGES_TEST=program", "PATH=" + os.Getenv("PATH")} },
		Getenv:   func(n string) string { return map[string]string{"TMPDIR": os.Getenv("IMAGES_TMP")}[n] },
		Progress: func(string) {}, Sleep: func(context.Context, time.Duration) {},
		Patience: lease.Patience{Look: 10 * time.Millisecond, Silent: 20 * time.Second}}
}

func cache(t *testing.T) *Cache {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("IMAGES_TMP", filepath.Join(dir, "scratch"))
	must(t, os.MkdirAll(filepath.Join(dir, "scratch"), 0o700))
	c := newCache(Dir(dir))
	t.Cleanup(func() {
		if left, err := filepath.Glob(filepath.Join(dir, "scratch", "*")); err != nil || len(left) > 0 {
			t.Errorf("scratch is not empty: %v, %v", left, err)
		}
		if left, err := filepath.Glob(filepath.Join(c.Dir, ".new-*")); err != nil || len(left) > 0 {
			t.Errorf("something half made is left: %v, %v", left, err)
		}
	})
	return c
}

// reg is a registry on loopback that counts the layers it has given out.
type reg struct {
	host   string
	blobs  atomic.Int32
	before atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
}

func serve(t *testing.T) *reg {
	t.Helper()
	s := &reg{}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			if f := s.before.Load(); f != nil && (*f)(w, r) {
				return
			}
			if strings.Contains(r.URL.Path, "/blobs/") {
				s.blobs.Add(1)
			}
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	s.host = strings.TrimPrefix(srv.URL, "http://")
	return s
}

func (s *reg) instead(f func(w http.ResponseWriter, r *http.Request) bool) { s.before.Store(&f) }

const layers = 3

func (s *reg) push(t *testing.T, ref string) (digest string) {
	t.Helper()
	img, err := random.Image(5000, layers)
	must(t, err)
	r, err := name.ParseReference(s.host + "/" + ref)
	must(t, err)
	must(t, remote.Write(r, img))
	d, err := img.Digest()
	must(t, err)
	return d.String()
}

// resolver answers as a registry would, or as a hostile one.
type resolver func(n Name) (string, error)

func (f resolver) Digest(_ context.Context, n Name) (string, error) { return f(n) }

func (s *reg) resolver() resolver {
	return func(n Name) (string, error) {
		r, err := name.ParseReference(n.Host + "/" + n.Repo + ":" + n.Tag)
		if err != nil {
			return "", err
		}
		d, err := remote.Head(r)
		if err != nil {
			return "", err
		}
		return d.Digest.String(), nil
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
