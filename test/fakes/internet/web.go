//go:build linux

package internet

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cgi"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// web is every site. What it says is of the name that was asked for.
func (i *Internet) web(w http.ResponseWriter, r *http.Request) {
	name := r.Host
	if h, _, err := net.SplitHostPort(r.Host); err == nil {
		name = h
	}
	to := ""
	if a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		to = plain(a)
	}
	i.log.add(Event{Kind: "http", Name: name, What: r.Method + " " + r.URL.Path, To: to, From: r.RemoteAddr})
	switch name {
	case "pypi.test", "files.pypi.test", "npm.test", "goproxy.test":
		i.packages.serve(w, r, name)
		return
	case "git.test":
		i.git(w, r)
		return
	case "api.test":
		model(w, r)
		return
	case "model.test":
		i.models.ServeHTTP(w, r)
		return
	case "169.254.169.254":
		_, _ = io.WriteString(w, "secret of the machine\n")
		return
	}
	switch r.URL.Path {
	case "/redirect": // to ?to=URL
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	case "/bytes": // ?n= of them
		n, _ := strconv.ParseInt(r.URL.Query().Get("n"), 10, 64)
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
		_, _ = io.CopyN(w, zeros{}, n)
	case "/drip": // ?n= lines, ten in a second
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		for k := range n {
			if _, err := fmt.Fprintf(w, "line %d\n", k); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			time.Sleep(100 * time.Millisecond)
		}
	case "/upload": // says how much came
		n, _ := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprintf(w, "%d bytes\n", n)
	default:
		_, _ = fmt.Fprintf(w, "hello from %s\n", name)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// git is a server of repositories, Git's own.
func (i *Internet) git(w http.ResponseWriter, r *http.Request) {
	h := &cgi.Handler{
		Path: "/usr/lib/git-core/git-http-backend", Stderr: io.Discard,
		Env: []string{"GIT_PROJECT_ROOT=" + i.repo, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + filepath.Dir(i.repo), "GIT_CONFIG_COUNT=1",
			"GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
	h.ServeHTTP(w, r)
}

// model plays the API of a model: it says which key has come.
func model(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("x-api-key")
	if key == "" {
		key = strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w,
		`{"type":"message","role":"assistant","content":[{"type":"text","text":"hello"}],"key":%q,"usage":{"input_tokens":10,"output_tokens":5}}`+"\n", key)
}
