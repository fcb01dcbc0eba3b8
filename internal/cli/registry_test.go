package cli_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// registryHost is a registry on loopback with team/tool:1. What is below
// limited/ wants fewer requests, what is below private/ a login.
var registryHost = sync.OnceValues(func() (string, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		switch {
		case strings.HasPrefix(r.URL.Path, "/v2/limited/"):
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"errors":[{"code":"TOOMANYREQUESTS","message":"You have reached your pull rate limit"}]}`)
		case strings.HasPrefix(r.URL.Path, "/v2/private/") && (user != "ada" || password != "pw-canary"):
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		default:
			inner.ServeHTTP(w, r)
		}
	})}
	go func() { _ = srv.Serve(l) }()
	host := l.Addr().String()
	img, err := random.Image(100, 1)
	if err != nil {
		return "", err
	}
	ref, err := name.ParseReference(host + "/team/tool:1")
	if err != nil {
		return "", err
	}
	return host, remote.Write(ref, img)
})

// fetchImage is "apptainer build FILE REFERENCE", with the environment that the
// real one is to have for that.
func fetchImage(args []string) int {
	made, ref := args[1], args[2]
	for _, v := range []string{"APPTAINER_CACHEDIR", "APPTAINER_TMPDIR"} {
		dir := os.Getenv(v)
		if !filepath.IsAbs(dir) || strings.HasPrefix(dir, os.Getenv("HOME")+"/") {
			return unexpected("apptainer with "+v+"="+dir, args)
		}
	}
	rest, ok := strings.CutPrefix(ref, "docker://")
	host, path, _ := strings.Cut(rest, "/")
	repo, digest, pinned := strings.Cut(path, "@")
	if !ok || !pinned || os.Getenv("APPTAINER_NOHTTPS") != "true" {
		return unexpected("apptainer build", args)
	}
	resp, err := http.Get("http://" + host + "/v2/" + repo + "/manifests/" + digest) //nolint:noctx // as long as it takes
	if err != nil {
		fmt.Fprintln(os.Stderr, "FATAL:  ", err)
		return 255
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		fmt.Fprintln(os.Stderr, "FATAL:   reading manifest:", resp.Status, err)
		return 255
	}
	if err := os.WriteFile(made, sif(body...), 0o755); err != nil {
		fmt.Fprintln(os.Stderr, "FATAL:  ", err)
		return 255
	}
	return 0
}
