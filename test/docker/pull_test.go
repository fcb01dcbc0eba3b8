//go:build docker

package docker_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"berth/jobs"
)

// registry is as much of a registry as a pull of one image needs. Docker
// speaks plain HTTP with 127.0.0.0/8.
func registry(t *testing.T, image map[string][]byte) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := strings.TrimPrefix(r.URL.Path, "/v2/")
		deny := func(code int, word string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = fmt.Fprintf(w, `{"errors":[{"code":%q,"message":%q}]}`, word, strings.ToLower(word))
		}
		key := path[strings.LastIndexByte(path, '/')+1:]
		body, ok := image[key]
		switch {
		case path == "":
			return
		case strings.HasPrefix(path, "secret/"):
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			deny(http.StatusUnauthorized, "UNAUTHORIZED")
			return
		case !ok || !strings.HasPrefix(path, "berth-test/"):
			deny(http.StatusNotFound, "MANIFEST_UNKNOWN")
			return
		case strings.Contains(path, "/manifests/"):
			w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
		}
		w.Header().Set("Docker-Content-Digest", digest(body))
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		if r.Method != http.MethodHead {
			_, _ = w.Write(body)
		}
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// layer is a file system in which only one file stands: no shell, no libc.
func layer(t *testing.T) []byte {
	t.Helper()
	return archive(t, map[string][]byte{"etc/hello": []byte("hi\n")})
}

func archive(t *testing.T, files map[string][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, data := range files {
		must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg}))
		_, err := w.Write(data)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func asJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	must(t, err)
	return b
}

// configOf is the configuration of an image of one layer.
func configOf(t *testing.T, layer []byte) []byte {
	t.Helper()
	return asJSON(t, map[string]any{"architecture": runtime.GOARCH, "os": "linux", "config": map[string]any{}, "rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}}})
}

// nothing is the image of that layer, as a registry has it, by tag and digest.
func nothing(t *testing.T) map[string][]byte {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(layer(t))
	must(t, err)
	must(t, z.Close())
	config := configOf(t, layer(t))
	manifest := asJSON(t, map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
		"config": map[string]any{"mediaType": "application/vnd.docker.container.image.v1+json", "size": len(config), "digest": digest(config)},
		"layers": []any{map[string]any{"mediaType": "application/vnd.docker.image.rootfs.diff.tar.gzip", "size": packed.Len(), "digest": digest(packed.Bytes())}},
	})
	return map[string][]byte{"1": manifest, digest(manifest): manifest, digest(config): config, digest(packed.Bytes()): packed.Bytes()}
}

// saved is the same image as "docker save" writes it.
func saved(t *testing.T, name string) *bytes.Reader {
	t.Helper()
	return bytes.NewReader(archive(t, map[string][]byte{
		"layer.tar": layer(t), "config.json": configOf(t, layer(t)),
		"manifest.json": asJSON(t, []any{map[string]any{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}}}),
	}))
}

// TestPull pulls an image without a shell, and one that is not there, is
// private, or is on a machine that does not answer.
func TestPull(t *testing.T) {
	if host := os.Getenv("DOCKER_HOST"); host != "" && !strings.HasPrefix(host, "unix://") {
		t.Fatal("the daemon is on another machine")
	}
	host := registry(t, nothing(t))
	name := host + "/berth-test/nothing:1"
	e := plan(t, func(s *jobs.EnvSpec) { s.Image = name })
	t.Cleanup(func() {
		e.stop()
		ask(t, "rm", "-f", e.lastContainer())
		ask(t, "rmi", name)
	})
	e.open()
	if said := strings.Join(e.said, "\n"); !strings.Contains(said, "pulling the image "+name) || !strings.Contains(said, "Pull complete") {
		t.Errorf("progress: %q", said)
	}
	p, code := e.argv("/.berth/node", "guest", "x")
	if code != 2 || !strings.Contains(p, "unknown argument") {
		t.Errorf("a command without a shell: %q, exit %d", p, code)
	}
	for image, want := range map[string]jobs.Kind{
		host + "/berth-test/nothing:2": jobs.KindNotFound,
		host + "/other:1":              jobs.KindNotFound,
		host + "/secret/x:1":           jobs.KindAuth,
		"127.0.0.1:1/x:1":              jobs.KindAgain,
		"UPPER/case":                   jobs.KindUsage,
	} {
		e := plan(t, func(s *jobs.EnvSpec) { s.Image = image })
		if _, err := e.prepare(); jobs.KindOf(err) != want || jobs.HintOf(err) == "" {
			t.Errorf("%s: %v (kind %d, hint %q)", image, err, jobs.KindOf(err), jobs.HintOf(err))
		}
	}
}

func (e *env) lastContainer() string {
	out, _ := exec.Command("docker", "ps", "-aq", "--no-trunc", "--filter", "label=berth.env="+e.spec.ID).Output()
	return strings.TrimSpace(string(out))
}
