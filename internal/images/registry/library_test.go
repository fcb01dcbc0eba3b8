package registry

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/apptainer"
	"berth/internal/images"
	"berth/jobs"
)

// TestLibrary: a library tells the SHA-256 of what stands under a name.
func TestLibrary(t *testing.T) {
	hex := strings.Repeat("ab", 32)
	status := http.StatusOK
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI())
		if status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
		hash := "sha256." + hex
		if strings.Contains(r.URL.Path, "old") {
			hash = "5f3e2"
		}
		_, _ = fmt.Fprintf(w, `{"data":{"hash":%q,"arch":"amd64","size":5}}`, hash)
	}))
	t.Cleanup(srv.Close)
	host := strings.TrimPrefix(srv.URL, "http://")
	c := client(t, map[string]string{"APPTAINER_LIBRARY": srv.URL})
	for ref, path := range map[string]string{
		"library://org/col/tool:1":              "/v1/images/org/col/tool:1?arch=amd64",
		"library://tool":                        "/v1/images/tool:latest?arch=amd64",
		"library://" + host + "/org/col/tool:2": "/v1/images/org/col/tool:2?arch=amd64",
	} {
		asked = nil
		if got, err := ask(t, c, ref); err != nil || got != "sha256:"+hex || len(asked) != 1 || asked[0] != path {
			t.Errorf("%s: %s, %v, asked %v", ref, got, err, asked)
		}
	}
	asked = nil
	if got, err := ask(t, c, "library://org/col/tool:sha256."+hex); err != nil || got != "sha256:"+hex || len(asked) > 0 {
		t.Errorf("by hash: %s, %v, asked %v", got, err, asked)
	}
	if _, err := ask(t, c, "library://org/col/old:1"); !errors.Is(err, images.ErrNoDigest) {
		t.Error(err)
	}
	for code, want := range map[int]int{404: 0, 401: 0, 403: 0, 429: jobs.CodeAgain, 500: jobs.CodeInfra} {
		status = code
		_, err := ask(t, c, "library://org/col/tool:1")
		if none := errors.Is(err, images.ErrNoDigest); none != (want == 0) || !none && jobs.CodeOf(err) != want {
			t.Errorf("%d: %v", code, err)
		}
	}
	// No one says where it is.
	if _, err := ask(t, client(t, nil), "library://org/col/tool:1"); !errors.Is(err, images.ErrNoDigest) && activeRemote(apptainer.ImageTool.Remotes("")) == "" {
		t.Error(err)
	}
	for _, bad := range []string{"http://far.example.org", "https://u:p@h", "file:///x", "https://h/?q=1"} {
		if u, ok := address(bad); ok {
			t.Errorf("%s is taken: %v", bad, u)
		}
	}
	home := t.TempDir()
	must(t, os.Mkdir(filepath.Join(home, ".apptainer"), 0o700))
	must(t, os.WriteFile(filepath.Join(home, ".apptainer", "remote.yaml"), []byte("Active: mine\nRemotes:\n  mine:\n    URI: cloud.example.org\n    Token: hush\n"), 0o600))
	if got := activeRemote(apptainer.ImageTool.Remotes(home)); got != "cloud.example.org" {
		t.Errorf("the active remote is %q", got)
	}
}
