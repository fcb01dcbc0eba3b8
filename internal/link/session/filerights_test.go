//go:build linux

package session_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/link/session"
	"berth/internal/link/wire"
	"berth/jobs"
)

// openNobody opens a session with a guest that has nobody's rights; dir is a
// directory that is no one's own.
func openNobody(t *testing.T) (p *place, dir string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, to become nobody")
	}
	dir, err := os.MkdirTemp("", "berth-session-") //nolint:usetesting // nobody may not enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	bin, err := os.ReadFile(os.Args[0])
	if err == nil {
		err = errors.Join(os.Chown(dir, 65534, 65534), os.Chmod(dir, 0o755), os.WriteFile(filepath.Join(dir, "guest"), bin, 0o600), os.Chmod(filepath.Join(dir, "guest"), 0o755)) //nolint:gosec // for another user
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(context.Background(), 5*time.Minute)
	p, r := launch(ctx, t, []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all", filepath.Join(dir, "guest")}, env(roleGuest))
	if p.s, err = session.Open(ctx, r, p.in, session.Options{Home: filepath.Join(dir, "home")}); err != nil {
		t.Fatalf("%v %s", err, p.stderr.String())
	}
	t.Cleanup(func() {
		defer stop()
		if err := p.s.Quit(ctx); err != nil {
			t.Error(err)
		}
		_, _ = p.proc.Wait()
	})
	return p, dir
}

// TestFileRights has files that the environment's user may not use.
func TestFileRights(t *testing.T) {
	p, dir := openNobody(t)
	home := filepath.Join(dir, "home")
	put(t, home+"/roots/secret", "needle", 0o600)
	put(t, home+"/roots/shut/x", "needle", 0o644)
	put(t, home+"/roots/ok", "needle", 0o644)
	put(t, home+"/roots/open", "old", 0o666)
	put(t, home+"/readonly", "old", 0o444)
	if err := errors.Join(os.Chmod(home+"/roots/shut", 0o700), os.Chown(home+"/readonly", 65534, 65534)); err != nil {
		t.Fatal(err)
	}
	write := func(path string) error {
		_, err := p.s.WriteFile(p.ctx, "", path, strings.NewReader("new"), session.WriteOptions{})
		return err
	}
	trouble(t, "write what is read-only", write("readonly"), wire.FilePermission, home+"/readonly: permission denied")
	trouble(t, "write another's file", write("roots/ok"), wire.FilePermission, "roots/ok: permission denied")
	trouble(t, "write in another's directory", write("roots/open"), wire.FilePermission, "its directory cannot be written")
	trouble(t, "new in another's directory", write("roots/fresh"), wire.FilePermission, "its directory cannot be written")
	trouble(t, "write into what is shut", write("roots/shut/x"), wire.FilePermission, "permission denied")
	_, err := p.s.WriteFile(p.ctx, "", "roots/a/b", strings.NewReader("new"), session.WriteOptions{Parents: true})
	trouble(t, "parents in another's directory", err, wire.FilePermission, home+"/roots/a: permission denied")
	_, err = p.s.EditFile(p.ctx, "", "readonly", session.Edit{Old: "o", New: "n"})
	trouble(t, "edit what is read-only", err, wire.FilePermission, "permission denied")
	_, err = p.s.ReadFile(p.ctx, "", "roots/secret", 0, 0, io.Discard)
	trouble(t, "read", err, wire.FilePermission, home+"/roots/secret: permission denied")
	if jobs.CodeOf(err) != jobs.CodeUsage || !strings.Contains(jobs.HintOf(err), "berth exec -- id") {
		t.Errorf("code %d, hint %q", jobs.CodeOf(err), jobs.HintOf(err))
	}
	_, err = p.s.Stat(p.ctx, "", "roots/shut/x")
	trouble(t, "stat", err, wire.FilePermission, "permission denied")
	_, err = p.s.List(p.ctx, "", "roots/shut", session.ListOptions{})
	trouble(t, "list", err, wire.FilePermission, "roots/shut: permission denied")
	if err := os.Chmod(home+"/roots/shut", 0o711); err != nil { //nolint:gosec // to enter, not to read
		t.Fatal(err)
	}
	if _, err = p.s.List(p.ctx, "", "roots/shut", session.ListOptions{}); jobs.KindOf(err) != jobs.KindUsage || !strings.Contains(fmt.Sprint(err), "Permission denied") {
		t.Errorf("list what can be entered: %v", err)
	}
	_, err = p.s.CopyOut(p.ctx, "", "roots/secret", t.TempDir(), nil)
	trouble(t, "copy out", err, wire.FilePermission, "roots/secret: permission denied")
	_, err = p.s.CopyIn(p.ctx, "", put(t, t.TempDir()+"/x", "x", 0o600), "roots", nil)
	trouble(t, "copy in", err, wire.FilePermission, "roots/x: permission denied")

	l, err := p.s.List(p.ctx, "", "roots", session.ListOptions{Depth: 2})
	if err != nil || len(l.Entries) != 4 || len(l.Notes) != 1 {
		t.Errorf("%+v %v", l, err)
	}
	f, err := p.s.Search(p.ctx, "", "roots", session.Query{Pattern: "needle"})
	if err != nil || len(f.Matches) != 1 || f.Matches[0].Path != "ok" || len(f.Notes) != 2 || !strings.Contains(f.Notes[0]+f.Notes[1], "Permission denied") {
		t.Errorf("%+v %v", f, err)
	}
	to := t.TempDir()
	c, err := p.s.CopyOut(p.ctx, "", "roots/.", to, nil)
	if err != nil || !c.Incomplete || len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "could not be read and are missing") {
		t.Errorf("%+v %v", c, err)
	}
	whole(t, to, "ok", "open", "shut")
	whole(t, home, "readonly", "roots")
	whole(t, home+"/roots", "ok", "open", "secret", "shut")
	if get(t, home+"/readonly")+get(t, home+"/roots/open") != "oldold" {
		t.Error("a file has changed")
	}
	// What it makes is its own.
	if err := write("mine"); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(home + "/mine")
	if err != nil {
		t.Fatal(err)
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || st.Uid != 65534 || fi.Mode() != 0o644 {
		t.Errorf("%+v", fi.Sys())
	}
}

// TestFileOwner has root replace another user's file, which stays that user's.
func TestFileOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, which alone can give files away")
	}
	home := t.TempDir()
	p := open(t, session.Options{Home: home})
	put(t, home+"/f", "old", 0o640)
	if err := os.Chown(home+"/f", 1234, 5678); err != nil {
		t.Fatal(err)
	}
	if _, err := p.s.WriteFile(p.ctx, "", "f", strings.NewReader("new"), session.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.s.EditFile(p.ctx, "", "f", session.Edit{Old: "new", New: "newer"}); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(home + "/f")
	if err != nil {
		t.Fatal(err)
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || st.Uid != 1234 || st.Gid != 5678 || fi.Mode() != 0o640 || get(t, home+"/f") != "newer" {
		t.Errorf("%+v", fi.Sys())
	}
}
