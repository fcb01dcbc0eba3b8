package broker

import (
	"context"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"berth/internal/network/credentials"
)

// TestGit: Git's own client clones and fetches from Git's own server with the variables
// that a task has. The server sees the key and the client never does, and nothing is pushed.
func TestGit(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	root := t.TempDir()
	repo := filepath.Join(root, "alice", "repo.git")
	mine := append(os.Environ(), "HOME="+root, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b.invalid",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b.invalid")
	git := func(env []string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Env = append(mine[:len(mine):len(mine)], env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	must := func(env []string, args ...string) string {
		t.Helper()
		out, err := git(env, args...)
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(out)
	}
	work := filepath.Join(root, "work")
	must(nil, "init", "-q", "--bare", repo)
	must(nil, "-C", repo, "config", "http.receivepack", "true") // the server would take a push
	must(nil, "init", "-q", "-b", "main", work)
	must(nil, "-C", work, "commit", "-q", "--allow-empty", "-m", "one")
	must(nil, "-C", work, "push", "-q", repo, "main")
	must(nil, "-C", repo, "symbolic-ref", "HEAD", "refs/heads/main")

	var mu sync.Mutex
	var asked []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.URL.RequestURI())
		mu.Unlock()
		if user, pass, _ := r.BasicAuth(); user != "x-access-token" || pass != key {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "a private repository", http.StatusUnauthorized)
			return
		}
		(&cgi.Handler{Path: backend, Stderr: io.Discard, Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + root, "REMOTE_USER=alice"}}).ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())

	c := credentials.Ready()["github"]
	c.Upstream = "https://example.com" // which the certificate is for
	b, err := New(Options{Credentials: []Credential{{Credential: c, Key: key, Placeholder: placeholder}}, Roots: roots,
		Dial: func(ctx context.Context, _ string, _ uint16) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	inside := listen(t, b, "github")

	env := credentials.Env([]credentials.Inside{{Credential: c, Port: inside, Placeholder: placeholder}})
	clone := filepath.Join(root, "clone")
	said := must(append(env, "GIT_TRACE=1", "GIT_CURL_VERBOSE=1"), "clone", "https://example.com/alice/repo.git", clone)
	for i := range 40 {
		must(nil, "-C", work, "commit", "-q", "--allow-empty", "-m", strconv.Itoa(i))
		must(nil, "-C", work, "branch", "b"+strconv.Itoa(i))
	}
	must(nil, "-C", work, "push", "-q", repo, "b39")
	said += must(env, "-C", clone, "fetch", "git@example.com:alice/repo.git", "+refs/heads/*:refs/remotes/origin/*")
	must(nil, "-C", work, "push", "-q", repo, "--all", "--force") // now main is there, too
	said += must(env, "-C", clone, "fetch", "https://example.com/alice/repo.git", "+refs/heads/*:refs/remotes/origin/*")
	if got, want := must(nil, "-C", clone, "rev-parse", "origin/b20"), must(nil, "-C", work, "rev-parse", "b20"); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	must(env, "ls-remote", "ssh://git@example.com/alice/repo.git") // as submodules are often named
	must(nil, "-C", clone, "commit", "-q", "--allow-empty", "-m", "two")
	out2, err := git(env, "-C", clone, "push", "origin", "HEAD:main")
	if err == nil || !strings.Contains(out2, "403") {
		t.Errorf("%v: %s", err, out2)
	}
	if said += out2; strings.Contains(said, key) {
		t.Error("the key is in what git says")
	}
	if got := must(nil, "-C", repo, "rev-parse", "main"); got != must(nil, "-C", work, "rev-parse", "main") {
		t.Errorf("pushed: main is %s", got)
	}
	if out, err := git(credentials.Env([]credentials.Inside{{Credential: c, Port: inside, Placeholder: "another-placeholder"}}),
		"ls-remote", "https://example.com/alice/repo.git"); err == nil {
		t.Errorf("without the placeholder: %s", out)
	}
	config, err := os.ReadFile(filepath.Join(clone, ".git", "config"))
	if err != nil || strings.Contains(string(config), key) || strings.Contains(string(config), placeholder) {
		t.Errorf("%v: %s", err, config)
	}
	mu.Lock()
	defer mu.Unlock()
	if all := strings.Join(asked, "\n"); strings.Contains(all, "receive-pack") || !strings.Contains(all, "POST /alice/repo.git/git-upload-pack") {
		t.Errorf("the server was asked for\n%s", all)
	}
}

// listen is the port on loopback behind which a credential is.
func listen(t *testing.T, b *Broker, name string) (port int) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { b.Serve(ctx, name, nil, conn) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); cancel(); all.Wait() })
	return l.Addr().(*net.TCPAddr).Port
}
