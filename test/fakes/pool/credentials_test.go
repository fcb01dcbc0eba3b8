//go:build linux

package pool_test

import (
	"bytes"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"berth/engine"
	"berth/internal/network/credentials"
	"berth/jobs"
	"berth/test/fakes/models"
	"berth/test/fakes/pool"
)

// asksModel asks the server of the credential "lab" once, and prints the status.
const asksModel = `at=${OPENAI_BASE_URL#http://}
exec 3<>/dev/tcp/127.0.0.1/$(echo ${at%/v1} | cut -d: -f2)
body='{"model":"m-1","messages":[{"role":"user","content":"hello"}]}'
printf 'POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s' \
	"${at%/v1}" "$OPENAI_API_KEY" ${#body} "$body" >&3
head -1 <&3 | cut -d' ' -f2; exec 3<&-`

// An environment that is held in a job of the pool has the keys of its credentials from the
// client that finds its keeper without them. They are in no file and no process that could
// be read, and are needed before a job is asked for. Its caps count over its jobs.
func TestHeldCredentials(t *testing.T) {
	t.Parallel()
	const key = "sk-held-0123456789abcdef"
	vendor := models.Start(t, key, nil)
	c := credentials.Ready()["openai-compatible"]
	c.Name, c.From, c.Upstream, c.CA = "lab", "env:KEY", (&url.URL{Scheme: "https", Host: vendor.Addr(), Path: "/v1"}).String(), string(vendor.Authority())
	s := newSiteWith(t, engine.Options{Credentials: func() []jobs.Credential { return []jobs.Credential{c} }})
	has := false
	s.Getenv = func(name string) (string, bool) { return key, name == "KEY" && has }
	run := func(text string) (engine.ExecResult, error) { // as a client of its own
		t.Helper()
		v, err := s.Environment(t.Context(), jobs.EnvOptions{Name: "lent", Lifetime: time.Minute, Place: jobs.Place{Backend: jobs.BackendBwrap,
			Scheduler: pool.Name, Resources: jobs.Resources{Time: time.Hour}, Credentials: []jobs.Credential{c}, Caps: jobs.Caps{Requests: 2}}})
		must(t, err)
		defer v.Close()
		session, err := v.Session("")
		must(t, err)
		got, err := session.Exec(t.Context(), engine.ExecRequest{Command: jobs.Command{Shell: text}})
		if err != nil {
			return engine.ExecResult{}, err
		}
		return *got, nil
	}
	want := func(text, out string) {
		t.Helper()
		if got, err := run(text); err != nil || got.Code != 0 || strings.TrimSpace(got.Stdout.Text) != out {
			t.Fatalf("%s: %v %+v, hint %s", text, err, got, jobs.HintOf(err))
		}
	}
	refused := func() {
		t.Helper()
		if got, err := run("true"); err == nil || !strings.Contains(err.Error(), "the key of the credential lab (env KEY): it is not set") {
			t.Fatalf("without the key: %v %+v", err, got)
		}
		if list, err := s.pool.List(t.Context()); err != nil || len(list) != 0 {
			t.Fatalf("%+v, %v", list, err)
		}
	}
	shown := func() *jobs.Usage {
		t.Helper()
		v, err := s.FindEnvironment("lent")
		must(t, err)
		return v.Show(t.Context(), true).Usage
	}
	stop := func() {
		t.Helper()
		v, err := s.FindEnvironment("lent")
		must(t, err)
		must(t, v.Stop(t.Context()))
	}
	t.Cleanup(func() {
		if v, err := s.FindEnvironment("lent"); err == nil {
			_ = v.Stop(t.Context())
		}
	})
	refused()
	has = true
	want(asksModel, "200")
	want(`env | grep -c "$(printf %s%s sk-held -0123)"; true`, "0")
	look(t, key, s.Store.Home(), os.Getenv("TMPDIR"))
	has = false
	want("echo warm on $POOL_HOST", "warm on n1.pool")
	if u := shown(); u == nil || u.Requests != 1 {
		t.Errorf("%+v", u)
	}
	if n := len(vendor.Requests()); n != 1 || vendor.Requests()[0].Header.Get("Authorization") != "Bearer "+key {
		t.Errorf("%d requests: %+v", n, vendor.Requests())
	}
	// Its job is ended, and the next one counts on.
	list, err := s.pool.List(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	must(t, s.pool.Cancel(t.Context(), []jobs.Handle{list[0].Handle}))
	eventually(t, "its job has ended", func() bool {
		list, err := s.pool.List(t.Context())
		return err == nil && len(list) == 0
	})
	refused()
	if u := shown(); u == nil || u.Requests != 1 {
		t.Errorf("between two jobs: %+v", u)
	}
	has = true
	want(asksModel, "200")
	want(asksModel, "429")
	stop()
	if u := shown(); u != nil {
		t.Errorf("after a stop: %+v", u)
	}
	want(asksModel, "200")
	stop()
}

// look looks for a key in the files below some directories and in what all processes show.
func look(t *testing.T, key string, dirs ...string) {
	t.Helper()
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	more, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	files = append(files, more...)
	for _, dir := range dirs {
		if dir == "" {
			continue
		}
		must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				files = append(files, path)
			}
			return nil // what is removed meanwhile
		}))
	}
	seen := 0
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err == nil {
			seen++
		}
		if bytes.Contains(b, []byte(key)) {
			t.Errorf("%s has the key", path)
		}
	}
	if seen < 20 {
		t.Errorf("%d files were looked at", seen)
	}
}
