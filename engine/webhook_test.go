package engine

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// A webhook is tried three times, and what is said of a failure has no address.
func TestPostNotice(t *testing.T) {
	was := webhookPause
	webhookPause = 0
	t.Cleanup(func() { webhookPause = was })
	var calls, fail atomic.Int32
	answer := http.StatusServiceUnavailable
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || string(b) != "{}" || r.Header.Get("Content-Type") != "application/json" || r.URL.Path != "/secret" {
			t.Errorf("%s %s %q", r.Method, r.URL, b)
		}
		if calls.Add(1) <= fail.Load() {
			http.Redirect(rw, r, "/elsewhere", answer)
		}
	}))
	file := filepath.Join(t.TempDir(), "hook")
	must(t, os.WriteFile(file, []byte(s.URL+"/secret\n"), 0o600))
	for _, c := range []struct {
		fail, answer, calls int
		says                string
	}{
		{0, 0, 1, ""},
		{2, http.StatusServiceUnavailable, 3, ""},
		{3, http.StatusTooManyRequests, 3, "it answered 429"},
		{3, http.StatusNotFound, 1, "it answered 404"},
		{3, http.StatusTemporaryRedirect, 1, "it answered 307"}, // a POST to elsewhere is not meant
	} {
		calls.Store(0)
		fail.Store(int32(c.fail)) //nolint:gosec // a few
		answer = c.answer
		err := postNotice(t.Context(), file, []byte("{}"))
		if (err == nil) != (c.says == "") || err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "secret")) || int(calls.Load()) != c.calls {
			t.Errorf("%+v: %d calls, %v", c, calls.Load(), err)
		}
	}
	s.Close()
	if err := postNotice(t.Context(), file, []byte("{}")); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("no server: %v", err)
	}
}
