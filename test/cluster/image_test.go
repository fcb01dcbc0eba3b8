//go:build cluster

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// hub is a registry with TLS that the machines of a cluster reach, and that can
// be made to fail.
type hub struct {
	host, ca string
	mu       sync.Mutex
	blobs    map[string]int
	// instead answers in the registry's place when it returns true.
	instead func(w http.ResponseWriter, r *http.Request) bool
}

func (s site) hub(t *testing.T) *hub {
	t.Helper()
	// What a container of this cluster reaches this process by.
	out, err := exec.CommandContext(t.Context(), "docker", "inspect", s.container("login"), "--format", "{{range .NetworkSettings.Networks}}{{.Gateway}}{{end}}").Output()
	ip := net.ParseIP(strings.TrimSpace(string(out)))
	if err != nil || ip == nil {
		t.Fatalf("the way from the cluster to here: %q, %v", out, err)
	}
	h := &hub{blobs: map[string]int{}}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		instead := h.instead
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") && r.Header.Get("Range") == "" {
			h.blobs[r.URL.Path]++
		}
		h.mu.Unlock()
		if instead != nil && r.Method != http.MethodPut && r.Method != http.MethodPost && r.Method != http.MethodPatch && instead(w, r) {
			return
		}
		inner.ServeHTTP(w, r)
	}))
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(ip.String(), "0"))
	must(err)
	srv.Listener = l
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "registry of a test"}, IPAddresses: []net.IP{ip},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	must(err)
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	h.host = l.Addr().String()
	h.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return h
}

func (h *hub) set(f func(w http.ResponseWriter, r *http.Request) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.instead = f
}

// push makes an image of a few layers.
func (h *hub) push(t *testing.T, repo string) {
	t.Helper()
	img, err := random.Image(100_000, 3)
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", "amd64"
	if img, err = mutate.ConfigFile(img, cfg); err != nil {
		t.Fatal(err)
	}
	ref, err := name.ParseReference(h.host + "/" + repo)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(h.ca))
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	defer tr.CloseIdleConnections()
	if err := remote.Write(ref, img, remote.WithTransport(tr), remote.WithAuth(authn.Anonymous)); err != nil {
		t.Fatal(err)
	}
}

// puller is who fetches in these tests: another user than that of the other
// tests, beside which they run, because they wait for long and need no Slurm.
const puller = "bob"

// meanwhile is need for a test that disturbs no other one.
func (s site) meanwhile(t *testing.T) {
	t.Helper()
	t.Parallel()
	s.lock().RLock()
	t.Cleanup(s.lock().RUnlock)
	s.up(t)
}

// mine runs a text as the puller on the login node, which is to end with a code.
func (s site) mine(t *testing.T, text string, code int) answer {
	t.Helper()
	a := s.on(t, "login", puller, "bash", "-c", text)
	if a.code != code {
		t.Fatalf("%s\nexit code %d, want %d\nstdout: %s\nstderr: %s", text, a.code, code, a.out, a.err)
	}
	return a
}

// images is the beginning of texts whose state, and trust in the registry, is of
// the test's own.
func (s site) images(t *testing.T, h *hub) (env string) {
	t.Helper()
	d := strings.TrimSpace(s.on(t, "login", puller, "mktemp", "-d", "/home/"+puller+"/"+t.Name()+".XXXXXX").out)
	if d == "" {
		t.Fatal("no directory could be made")
	}
	t.Cleanup(func() { s.on(t, "login", "root", "rm", "-rf", d) })
	s.mine(t, "cat >"+d+"/ca.pem <<'EOF'\n"+h.ca+"EOF\n", 0)
	return "export BERTH_HOME=" + d + "/state XDG_CONFIG_HOME=" + d + "/config SSL_CERT_FILE=" + d + "/ca.pem PATH=/mnt/share/bin:$PATH; "
}

// TestPulls: eight processes on two machines ask for one image; one downloads.
func TestPulls(t *testing.T) {
	s := standard
	s.meanwhile(t)
	h := s.hub(t)
	h.push(t, "team/tool:1")
	env := s.images(t, h)
	// Slow enough that all of them have asked before the first is done.
	h.set(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/blobs/") {
			time.Sleep(3 * time.Second)
		}
		return false
	})
	ref := "docker://" + h.host + "/team/tool:1"
	var wg sync.WaitGroup
	got := make([]answer, 8)
	for i := range got {
		wg.Go(func() { got[i] = s.on(t, []string{"c1", "c2"}[i%2], puller, "bash", "-c", env+"berth image pull "+ref) })
	}
	wg.Wait()
	for _, a := range got {
		if a.code != 0 || a.out != got[0].out || !strings.Contains(a.out, ".sif") {
			t.Errorf("exit code %d: %s%s", a.code, a.out, a.err)
		}
	}
	if len(h.blobs) < 4 { // three layers, and the configuration
		t.Errorf("only %d blobs were fetched", len(h.blobs))
	}
	for path, n := range h.blobs {
		if n > 1 && !strings.Contains(path, "config") {
			t.Errorf("%s was fetched %d times", path, n)
		}
	}
	s.mine(t, env+"berth image verify --all", 0)
	// The registry may be gone: a job runs what is recorded.
	h.set(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusInternalServerError)
		return true
	})
	s.mine(t, env+"berth render --offline --image "+ref+" -- true | grep -q sha256/[0-9a-f]*.sif", 0)
	if a := s.mine(t, env+"berth submit --offline --image docker://"+h.host+"/team/other:1 -- true", 3); !strings.Contains(a.err, "the cache has no docker://") {
		t.Error(a.err)
	}
}

// TestPullTakeover: a puller is killed on one node, in the middle of a layer;
// one on another node waits until its beat has been silent for long, and then
// does it. No password is on a command line meanwhile, or anywhere afterwards.
func TestPullTakeover(t *testing.T) {
	s := standard
	s.meanwhile(t)
	h := s.hub(t)
	h.push(t, "team/tool:1")
	env := s.images(t, h)
	const canary = "pw-canary-7d1f"
	began, hang := make(chan struct{}, 100), make(chan struct{})
	h.set(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/blobs/") {
			began <- struct{}{}
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		}
		return false
	})
	ref := "docker://" + h.host + "/team/tool:1"
	login := "export APPTAINER_DOCKER_USERNAME=ada APPTAINER_DOCKER_PASSWORD=" + canary + "; "
	first := make(chan answer, 1)
	go func() {
		// The password comes on no command line of the test's own either.
		first <- s.on(t, "c1", puller, "bash", "-c", env+strings.ReplaceAll(login, canary, "$(rev <<<"+reversed(canary)+")")+"exec berth image pull "+ref)
	}()
	select {
	case <-began:
	case a := <-first:
		t.Fatalf("the first puller has ended: %+v", a)
	case <-time.After(patience):
		t.Fatal("the first puller does not begin")
	}
	args := s.on(t, "c1", "root", "bash", "-c", "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null")
	if !strings.Contains(args.out, "apptainer build") && !strings.Contains(args.out, "image.sif") || strings.Contains(args.out, canary) {
		t.Errorf("command lines while it fetches:\n%s", args.out)
	}
	second := make(chan answer, 1)
	begun := time.Now()
	go func() {
		ctx := env + "berth image pull " + ref
		cmd := exec.CommandContext(t.Context(), "docker", "exec", "-u", puller, "-e", "HOME=/home/"+puller, s.container("c2"), "bash", "-c", ctx)
		out, err := cmd.CombinedOutput()
		a := answer{out: string(out)}
		if err != nil {
			a.code, a.err = 1, err.Error()
		}
		second <- a
	}()
	time.Sleep(3 * time.Second) // the second one has looked at the first one's beat
	s.on(t, "c1", "root", "pkill", "-KILL", "-f", "image pull "+ref)
	close(hang)
	select {
	case a := <-second:
		if took := time.Since(begun); took < 150*time.Second {
			t.Errorf("a beat that was fresh was overridden after %v", took)
		}
		if a.code != 0 || !strings.Contains(a.out, ".sif") || !strings.Contains(a.out, "on c1 makes") {
			t.Errorf("the second puller: %+v", a)
		}
	case <-time.After(2 * patience):
		t.Fatal("nobody takes over")
	}
	if a := s.on(t, "login", puller, "bash", "-c", env+`grep -rl `+canary+` "$BERTH_HOME" "$XDG_CONFIG_HOME"`); a.out != "" {
		t.Errorf("the password is in %s", a.out)
	}
	s.mine(t, env+"berth image verify --all", 0)
}

func reversed(s string) string {
	var b strings.Builder
	for i := len(s) - 1; i >= 0; i-- {
		b.WriteByte(s[i])
	}
	return b.String()
}

// TestPullFaults: what real Apptainer makes of registries that fail, each at a
// name of its own, at once because each is tried again for a while.
func TestPullFaults(t *testing.T) {
	s := standard
	s.meanwhile(t)
	h := s.hub(t)
	env := s.images(t, h)
	faults := map[string]struct {
		answer func(w http.ResponseWriter, head bool)
		code   int
		said   string
	}{
		"head401": {func(w http.ResponseWriter, _ bool) { w.WriteHeader(401) }, 4, "APPTAINER_DOCKER_USERNAME"},
		"head404": {func(w http.ResponseWriter, _ bool) { w.WriteHeader(404) }, 3, "is the name right"},
		"head429": {func(w http.ResponseWriter, _ bool) { w.Header().Set("Retry-After", "1"); w.WriteHeader(429) }, 75, "asking again in 1s"},
		"head500": {func(w http.ResponseWriter, _ bool) { w.WriteHeader(500) }, 5, "registry fails"},
		"blob401": {func(w http.ResponseWriter, _ bool) { w.WriteHeader(401) }, 4, "APPTAINER_DOCKER_USERNAME"},
		"blob404": {func(w http.ResponseWriter, _ bool) { w.WriteHeader(404) }, 3, ""},
		"blob429": {func(w http.ResponseWriter, _ bool) { w.WriteHeader(429) }, 75, "again in 5s"},
		"blob500": {func(w http.ResponseWriter, _ bool) { w.WriteHeader(500) }, 5, "again in 5s"},
		"blobcut": {func(w http.ResponseWriter, head bool) {
			w.Header().Set("Content-Length", "100000")
			if !head {
				_, _ = w.Write(make([]byte, 100))
			}
		}, 5, ""},
		"blobwrong": {func(w http.ResponseWriter, head bool) {
			w.Header().Set("Content-Length", "10")
			if !head {
				_, _ = w.Write([]byte("0123456789"))
			}
		}, 5, ""},
	}
	for repo := range faults {
		h.push(t, repo+"/tool:1")
	}
	h.set(func(w http.ResponseWriter, r *http.Request) bool {
		repo := strings.Split(strings.TrimPrefix(r.URL.Path, "/v2/"), "/")[0]
		f, ok := faults[repo]
		if !ok || strings.HasPrefix(repo, "blob") != strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		f.answer(w, r.Method == http.MethodHead)
		return true
	})
	var wg sync.WaitGroup
	for repo, f := range faults {
		wg.Go(func() {
			a := s.on(t, "login", puller, "bash", "-c", env+fmt.Sprintf("berth image pull docker://%s/%s/tool:1", h.host, repo))
			if a.code != f.code || !strings.Contains(a.err, f.said) || !strings.Contains(a.err, "hint:") || a.out != "" {
				t.Errorf("%s: exit code %d, want %d\n%s%s", repo, a.code, f.code, a.out, a.err)
			}
		})
	}
	wg.Wait()
	if a := s.on(t, "login", puller, "bash", "-c", env+"berth image ls; ls -A $BERTH_HOME/images | grep new"); a.out != "" {
		t.Errorf("left: %s", a.out)
	}
	// A digest that is not what is there.
	s.mine(t, env+"berth image pull docker://"+h.host+"/x@sha256:"+strings.Repeat("0", 64), 3)
}
