//go:build linux

package staging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/internal/node/container"
	"berth/internal/sys/lease"
)

func TestStage(t *testing.T) {
	for _, form := range []Form{SIF, Unpacked} {
		t.Run(string(form), func(t *testing.T) {
			n, img := fresh(t)
			if n.Has(img, form) {
				t.Error("there is a copy before one was made")
			}
			c := stage(t, n, img, form)
			if c.Reused || c.Form != form || !strings.HasPrefix(c.Path, n.Dir+"/sha256-"+img.Sum+"/") || !n.Has(img, form) {
				t.Errorf("%+v", c)
			}
			// The same content from elsewhere is the same copy, and is not read.
			again := stage(t, n, Image{Path: "/nowhere", Sum: img.Sum}, form)
			if !again.Reused || again.Path != c.Path {
				t.Errorf("%+v", again)
			}
			for _, c := range []*Copy{c, again, again, nil} {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			}
			if form == SIF {
				was, _ := os.ReadFile(img.Path)
				if is, err := os.ReadFile(c.Path); err != nil || string(is) != string(was) {
					t.Errorf("another content, %v", err)
				}
			} else if b, err := os.ReadFile(filepath.Join(c.Path, "unpacked")); err != nil || string(b) != img.Path || unpackings(t, n) != 1 {
				t.Errorf("%q, %v", b, err)
			}
			left(t, n, 1)
		})
	}
}

// left checks that nothing but the directories of images is there, and no user.
func left(t *testing.T, n *Node, entries int) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(n.Dir, "*"))
	if err != nil || len(list) != entries {
		t.Errorf("%q, %v", list, err)
	}
	if users, _ := filepath.Glob(filepath.Join(n.Dir, "*", dirUsers, "*")); len(users) > 0 {
		t.Errorf("users: %q", users)
	}
}

// An image without a recorded SHA-256 is known by its file: one that replaces
// it has a copy of its own.
func TestReplaced(t *testing.T) {
	n, img := fresh(t)
	img.Sum = ""
	c := stage(t, n, img, SIF)
	sif(t, img.Path, 1<<20, 100, "another one!")
	d := stage(t, n, img, SIF)
	if c.Path == d.Path || d.Reused {
		t.Errorf("%+v, %+v", c, d)
	}
}

// Of several processes one makes the copy, and the others have the same.
func TestTogether(t *testing.T) {
	for _, form := range []Form{SIF, Unpacked} {
		n, img := fresh(t)
		var all []*child
		for range 6 {
			all = append(all, start(t, "stage", n, img, form))
		}
		said := map[string]int{}
		for _, c := range all {
			said[c.says(t)]++
		}
		e, err := n.entry(img)
		if err != nil {
			t.Fatal(err)
		}
		if users, unknown := e.users(lease.Self()); len(users) != 1 || unknown || users[filepath.Base(e.copies()[0])] != 6 {
			t.Errorf("%v", users)
		}
		for _, c := range all {
			c.end(t)
		}
		path := content(e.copies()[0], form)
		if said["staged "+path+" false"] != 1 || said["staged "+path+" true"] != 5 {
			t.Errorf("%v", said)
		}
		if form == Unpacked && unpackings(t, n) != 1 {
			t.Error("it was unpacked more than once")
		}
		left(t, n, 1)
	}
}

// What a killed process was making is made by the next one, at once, and what
// it has left is removed.
func TestKilled(t *testing.T) {
	n, img := fresh(t)
	killed := start(t, "hang", n, img, Unpacked)
	if line := killed.says(t); line != "half made" {
		t.Fatal(line)
	}
	waiting := start(t, "stage", n, img, Unpacked)
	select {
	case line := <-waiting.lines:
		t.Errorf("it did not wait: %s", line)
	case <-time.After(300 * time.Millisecond):
	}
	began := time.Now()
	_ = killed.Process.Kill()
	_ = killed.Wait()
	if line := waiting.says(t); !strings.HasSuffix(line, "false") || time.Since(began) > usual.Silent {
		t.Errorf("%s after %s", line, time.Since(began))
	}
	waiting.end(t)
	left(t, n, 1)
}

// A maker that stands still is replaced, and does not put its own in place when
// it goes on.
func TestSilent(t *testing.T) {
	n, img := fresh(t)
	still := start(t, "hang", n, img, Unpacked)
	if line := still.says(t); line != "half made" {
		t.Fatal(line)
	}
	_ = still.Process.Signal(syscall.SIGSTOP)
	n.Patience = lease.Patience{Look: 20 * time.Millisecond, Silent: 300 * time.Millisecond}
	if c := stage(t, n, img, Unpacked); c.Reused || c.Close() != nil {
		t.Errorf("%+v", c)
	}
}

// A copy that someone has touched, that has lost something, or that is of
// another boot, is not used, and one that is whole is made.
func TestDamaged(t *testing.T) {
	for name, damage := range map[string]func(dir, path string) error{
		"written to": func(_, path string) error {
			if err := os.Chmod(path, 0o600); err != nil {
				return err
			}
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte("x"), 100)
			return errors.Join(err, f.Close())
		},
		"replaced": func(_, path string) error {
			b, err := os.ReadFile(path)
			return errors.Join(err, os.Remove(path), os.WriteFile(path, b, 0o400))
		},
		"a link": func(dir, path string) error {
			return errors.Join(os.Rename(path, dir+"/other"), os.Symlink(dir+"/other", path))
		},
		"no canary": func(dir, _ string) error { return os.Remove(filepath.Join(dir, fileCanary)) },
		"not whole": func(dir, _ string) error { return os.Remove(filepath.Join(dir, fileComplete)) },
		"gone":      func(_, path string) error { return os.Remove(path) },
		"earlier boot": func(dir, _ string) error {
			p := filepath.Join(dir, fileComplete)
			b, err := os.ReadFile(p)
			return errors.Join(err, os.WriteFile(p, []byte(strings.ReplaceAll(string(b), boot(lease.BootID()), "0-0-0")), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			n, img := fresh(t)
			was := stage(t, n, img, SIF)
			if err := was.Close(); err != nil {
				t.Fatal(err)
			}
			if err := damage(filepath.Dir(was.Path), was.Path); err != nil {
				t.Fatal(err)
			}
			if n.Has(img, SIF) {
				t.Error("it counts as whole")
			}
			is := stage(t, n, img, SIF)
			if is.Reused || is.Path == was.Path {
				t.Errorf("%+v", is)
			}
			if _, err := os.Lstat(filepath.Dir(was.Path)); err == nil {
				t.Error("the damaged one is still there")
			}
		})
	}
}

// A damaged copy stays for those who use it.
func TestDamagedInUse(t *testing.T) {
	n, img := fresh(t)
	was := stage(t, n, img, SIF)
	if err := os.Remove(filepath.Join(filepath.Dir(was.Path), fileCanary)); err != nil {
		t.Fatal(err)
	}
	is := stage(t, n, img, SIF)
	if _, err := os.Stat(was.Path); err != nil || is.Path == was.Path {
		t.Errorf("%+v, %v", is, err)
	}
}

// An image with another content than was recorded is not staged.
func TestContent(t *testing.T) {
	n, img := fresh(t)
	img.Sum = strings.Repeat("0", 64)
	for _, form := range []Form{SIF, Unpacked} {
		if c, err := n.Stage(t.Context(), img, form, "/x"); err == nil {
			t.Errorf("%+v", c)
		}
	}
	if unpackings(t, n) != 0 {
		t.Error("it was unpacked")
	}
	// Nor is one that ends before its time.
	img = sif(t, img.Path, 1<<20, 100, "the image")
	if err := os.Truncate(img.Path, 4100); err != nil {
		t.Fatal(err)
	}
	if c, err := n.Stage(t.Context(), Image{Path: img.Path}, SIF, "/x"); err == nil {
		t.Errorf("%+v", c)
	}
	left(t, n, 2)
}

// Someone who only waits can stop waiting.
func TestCancelled(t *testing.T) {
	n, img := fresh(t)
	maker := start(t, "hang", n, img, Unpacked)
	if line := maker.says(t); line != "half made" {
		t.Fatal(line)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if c, err := n.Stage(ctx, img, Unpacked, "/x"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%+v, %v", c, err)
	}
}

// Copies that no one uses make room, those unused for longest first; those in
// use never do.
func TestRoom(t *testing.T) {
	n, _ := fresh(t)
	var imgs []Image
	for i := range 4 {
		imgs = append(imgs, sif(t, filepath.Join(filepath.Dir(n.Dir), fmt.Sprintf("%d.sif", i)), 1<<20, 100, fmt.Sprint("image ", i)))
	}
	// Room for two of them.
	n.Free = func(dir string) (Room, error) {
		list, err := filepath.Glob(filepath.Join(dir, "sha256-*", prefixCopy+"*"))
		return Room{Bytes: int64(2-len(list)) << 20, Inodes: int64(2-len(list)) * 110}, err
	}
	used := stage(t, n, imgs[0], SIF)
	for range 2 {
		if c := stage(t, n, imgs[1], SIF); c.Close() != nil {
			t.Fatal()
		}
	}
	c := stage(t, n, imgs[2], SIF)
	if n.Has(imgs[1], SIF) || !n.Has(imgs[0], SIF) {
		t.Error("another one was removed")
	}
	if _, err := n.Stage(t.Context(), imgs[3], SIF, "/x"); err == nil || !strings.Contains(err.Error(), "not enough room") {
		t.Errorf("%v", err)
	}
	if err := errors.Join(used.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
	// The clock of files is coarse: both ends may have the same time.
	e, err := n.entry(imgs[0])
	if err != nil {
		t.Fatal(err)
	}
	before := time.Now().Add(-time.Minute)
	if err := os.Chtimes(filepath.Join(e.dir, dirUsers), before, before); err != nil {
		t.Fatal(err)
	}
	c = stage(t, n, imgs[3], SIF)
	if n.Has(imgs[0], SIF) || !n.Has(imgs[2], SIF) {
		t.Error("it is not the one unused for longest that was removed")
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	// Unpacked, the files count, and more bytes.
	many := sif(t, filepath.Join(filepath.Dir(n.Dir), "many.sif"), 1<<10, 1<<20, "many")
	if _, err := n.Stage(t.Context(), many, Unpacked, "/x"); err == nil || !strings.Contains(err.Error(), "files") && !strings.Contains(err.Error(), "takes") {
		t.Errorf("%v", err)
	}
}

// A copy is not removed while a process uses it, be it killed and its container
// alive, and is once no one does.
func TestInUse(t *testing.T) {
	n, img := fresh(t)
	user := start(t, "stage", n, img, SIF)
	path := strings.Fields(user.says(t))[1]
	e, err := n.entry(img)
	if err != nil {
		t.Fatal(err)
	}
	self := lease.Self()
	if err := n.remove(e, self); !errors.Is(err, errInUse) {
		t.Errorf("%v", err)
	}
	_ = user.Process.Kill()
	_ = user.Wait()
	f, err := os.Open(path) // what a container has open
	if err != nil {
		t.Fatal(err)
	}
	if err := n.remove(e, self); !errors.Is(err, errInUse) {
		t.Errorf("%v", err)
	}
	_ = f.Close()
	if err := n.remove(e, self); err != nil {
		t.Error(err)
	}
	left(t, n, 0)
}

// While someone makes or removes, no one begins to use.
func TestHeld(t *testing.T) {
	n, img := fresh(t)
	if err := stage(t, n, img, SIF).Close(); err != nil {
		t.Fatal(err)
	}
	e, err := n.entry(img)
	if err != nil {
		t.Fatal(err)
	}
	self := lease.Self()
	l, err := lease.Acquire(e.dir, lease.Owner{Version: 1, Dir: n.Dir, Host: self.Host, BootID: self.BootID, PID: self.PID, Start: self.Start, Time: time.Now()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := e.join(SIF, "/x", self, false); c != nil || err != nil {
		t.Errorf("%+v, %v", c, err)
	}
	if users, unknown := e.users(self); len(users) != 0 || unknown {
		t.Errorf("%v", users)
	}
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	if c, err := e.join(SIF, "/x", self, false); c == nil || err != nil {
		t.Errorf("%v", err)
	}
}

// Copies that no one has used for long go when the next one is made; those of a
// sweep of scratch directories stay.
func TestAge(t *testing.T) {
	n, img := fresh(t)
	dir := filepath.Dir(n.Dir)
	old, new := sif(t, filepath.Join(dir, "old.sif"), 1<<20, 100, "old"), sif(t, filepath.Join(dir, "new.sif"), 1<<20, 100, "new")
	used := sif(t, filepath.Join(dir, "used.sif"), 1<<20, 100, "used")
	keep := stage(t, n, used, SIF)
	for _, i := range []Image{old, new} {
		if err := stage(t, n, i, SIF).Close(); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-unusedFor - time.Hour)
	for _, i := range []Image{old, used} {
		e, err := n.entry(i)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(e.dir, dirUsers), past, past); err != nil {
			t.Fatal(err)
		}
	}
	if removed := container.SweepScratch(t.Context(), n.Dir, lease.Self()); len(removed) > 0 {
		t.Errorf("%q", removed)
	}
	if err := stage(t, n, img, SIF).Close(); err != nil {
		t.Fatal(err)
	}
	if n.Has(old, SIF) || !n.Has(new, SIF) || !n.Has(used, SIF) {
		t.Error("another one was removed")
	}
	if err := keep.Close(); err != nil {
		t.Error(err)
	}
}

func TestInPlace(t *testing.T) {
	n, img := fresh(t)
	others, c, err := n.InPlace(img, "/x")
	if others != 0 || err != nil {
		t.Errorf("%d, %v", others, err)
	}
	more, d, err := n.InPlace(img, "/y")
	if more != 1 || err != nil || n.Has(img, SIF) {
		t.Errorf("%d, %v", more, err)
	}
	if err := errors.Join(c.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	left(t, n, 1)
}
