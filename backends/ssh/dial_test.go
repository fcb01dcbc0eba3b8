package ssh

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/internal/node/keeper"
	"berth/internal/sys/ids"
	"berth/jobs"
)

// What ssh says becomes an error of the right kind, with what repairs it.
func TestSaid(t *testing.T) {
	for said, want := range map[string]struct {
		kind      jobs.Kind
		msg, hint string
	}{
		"ssh: Could not resolve hostname there: Name or service not known":              {jobs.KindInfra, "cannot be resolved", "ssh there"},
		"ssh: connect to host there port 22: Connection refused":                        {jobs.KindInfra, "refuses connections", "ssh -v there"},
		"ssh: connect to host there port 22: Connection timed out":                      {jobs.KindInfra, "cannot be reached", "VPN"},
		"ssh: connect to host there port 22: No route to host":                          {jobs.KindInfra, "cannot be reached", "VPN"},
		"Connection timed out during banner exchange":                                   {jobs.KindInfra, "cannot be reached", "VPN"},
		"alice@there: Permission denied (publickey,keyboard-interactive).":              {jobs.KindAuth, "does not let us in", "-oControlMaster=yes"},
		"Received disconnect from 10.0.0.1 port 22:2: Too many authentication failures": {jobs.KindAuth, "does not let us in", "IdentitiesOnly=yes"},
		"Host key verification failed.":                                                 {jobs.KindConfig, "is not known", "by hand: ssh there"},
		"@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key for [there]:2222 has changed and you have requested strict checking.\nHost key verification failed.": {jobs.KindConfig, "has changed", "ssh-keygen -R '[there]:2222'"},
		"@ WARNING: UNPROTECTED PRIVATE KEY FILE! @\nLoad key \"/k\": bad permissions\nthere: Permission denied (publickey).":                                                {jobs.KindAuth, "others can read", "chmod 600"},
		"/root/.ssh/config: line 3: Bad configuration option: foo\n/root/.ssh/config: terminating, 1 bad configuration options":                                              {jobs.KindConfig, "configuration", "~/.ssh/config"},
		"Bad owner or permissions on /root/.ssh/config":                 {jobs.KindConfig, "configuration", "~/.ssh/config"},
		"kex_exchange_identification: Connection closed by remote host": {jobs.KindAgain, "ends connections", "again"},
		"something new \x1b[31m under the sun":                          {jobs.KindInfra, "connect to there", "ssh -v there"},
	} {
		h, dir := fake(t, "FAKE_SAY="+said)
		_, err := h.Start(t.Context(), jobs.Cmd{Argv: []string{"true"}})
		if jobs.KindOf(err) != want.kind || !strings.Contains(err.Error(), want.msg) || !strings.Contains(jobs.HintOf(err), want.hint) || strings.ContainsAny(err.Error(), "\x1b\n") {
			t.Errorf("%q: %v (%s), kind %d", said, err, jobs.HintOf(err), jobs.KindOf(err))
		}
		if _, _, err := h.b.Dial(t.Context(), environment(t), keeper.OpenOptions{}); jobs.KindOf(err) != want.kind {
			t.Errorf("%q: dial: %v", said, err)
		}
		if _, err := os.Stat(filepath.Join(dir, "master")); err == nil {
			t.Error("it went on")
		}
	}
}

func environment(t *testing.T) *jobs.EnvSpec {
	t.Helper()
	id, err := ids.New()
	if err != nil {
		t.Fatal(err)
	}
	return &jobs.EnvSpec{Version: jobs.EnvVersion, ID: id, Name: "x", Place: jobs.Place{Backend: jobs.BackendSSH, SSH: &jobs.SSHSpec{Host: "there"}}}
}

// The first time the host is asked and given the program; afterwards each
// dialling is one execution.
func TestDial(t *testing.T) {
	h, dir := fake(t, "FAKE_BANNER=Welcome")
	dial := func(want int) {
		t.Helper()
		before := len(calls(t, dir))
		var said []string
		c, rep, err := h.b.Dial(t.Context(), environment(t), keeper.OpenOptions{Progress: func(s string) { said = append(said, s) }})
		if err != nil {
			t.Fatalf("%v (%s)", err, jobs.HintOf(err))
		}
		defer c.Close()
		if len(rep.Notes) != 1 || len(said) == 0 || strings.Contains(said[len(said)-1], "\x1b") {
			t.Errorf("%+v, %q", rep, said)
		}
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Error(err)
		}
		// What the login shell printed stands before; a session skips it.
		b := make([]byte, len("Welcome\nhello"))
		if _, err := io.ReadFull(c, b); err != nil || string(b) != "Welcome\nhello" {
			t.Errorf("%q, %v", b, err)
		}
		_ = c.Close()
		if n, err := c.Read(b); n != 0 || err == nil {
			t.Errorf("%d, %v", n, err)
		}
		if n := len(calls(t, dir)) - before; n != want {
			t.Errorf("%d calls, not %d", n, want)
		}
	}
	dial(3) // what is it, upload, connect
	dial(1)
	bin := filepath.Join(dir, "home", binDir)
	entries, err := os.ReadDir(bin)
	if err != nil || len(entries) != 1 {
		t.Fatal(entries, err)
	}
	if err := os.Remove(filepath.Join(bin, entries[0].Name())); err != nil {
		t.Fatal(err)
	}
	dial(4) // connect, what is it, upload, connect
	if err := os.Remove(filepath.Join(h.control, h.name+".json")); err != nil {
		t.Fatal(err)
	}
	dial(2) // what is it, connect
	if err := os.WriteFile(filepath.Join(h.control, h.name+".json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	dial(2)
}

// A link that broke is told as that, also by an ssh that is slow to say so.
func TestEndsLate(t *testing.T) {
	h, dir := fake(t)
	for _, name := range []string{"late", "home/cut"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, _, err := h.b.Dial(t.Context(), environment(t), keeper.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n, err := c.Read(make([]byte, 1)); n != 0 || jobs.KindOf(err) != jobs.KindInfra || !strings.Contains(err.Error(), "the link to there broke") {
		t.Errorf("%d, %v", n, err)
	}
}

func TestDialFails(t *testing.T) {
	h, dir := fake(t)
	e := environment(t)
	if _, _, err := h.b.Dial(t.Context(), e, keeper.OpenOptions{NoStart: true}); !errors.Is(err, keeper.ErrNotRunning) {
		t.Error(err)
	}
	touch := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, "home", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	touch("breaks")
	if _, _, err := h.b.Dial(t.Context(), e, keeper.OpenOptions{}); jobs.KindOf(err) != jobs.KindInfra {
		t.Error(err)
	}
	touch("fails")
	if _, _, err := h.b.Dial(t.Context(), e, keeper.OpenOptions{}); jobs.KindOf(err) != jobs.KindConfig || err.Error() != "no room" || jobs.HintOf(err) != "df" {
		t.Error(err)
	}
	for _, bad := range []*jobs.EnvSpec{{ID: e.ID}, {ID: "../x", Place: jobs.Place{SSH: e.SSH}}} {
		if _, _, err := h.b.Dial(t.Context(), bad, keeper.OpenOptions{}); jobs.KindOf(err) != jobs.KindConfig {
			t.Error(err)
		}
		if err := h.b.Remove(t.Context(), bad, nil); jobs.KindOf(err) != jobs.KindConfig {
			t.Error(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, _, err := h.b.Dial(ctx, e, keeper.OpenOptions{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Only the directory that holds this environment's record is removed.
func TestRemove(t *testing.T) {
	h, dir := fake(t)
	e := environment(t)
	own := filepath.Join(dir, "home", envDir, e.ID)
	if err := os.MkdirAll(filepath.Join(own, "bg"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := h.b.Remove(t.Context(), e, nil); jobs.KindOf(err) != jobs.KindInfra {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(own, "env.json"), []byte(`{"id": "`+e.ID+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(own, "bg"), 0o500); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := h.b.Remove(t.Context(), e, nil); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(own); !os.IsNotExist(err) {
		t.Error(err)
	}
}

// A login shell that ends before our line does so mostly in a file of the user's.
func TestHintNotOurs(t *testing.T) {
	h := &Host{spec: jobs.SSHSpec{Host: "hpc"}}
	if hint := jobs.HintOf(h.notOurs(jobs.Exit{Started: true}, "welcome")); !strings.Contains(hint, "~/.bashrc") {
		t.Error(hint)
	}
}
