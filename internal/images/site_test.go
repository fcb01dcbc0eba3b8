package images

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/jobs"
)

// TestSharedCache: what someone else has is used and never written; what one
// opens to others can be read by them.
func TestSharedCache(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can make a directory of somebody else's")
	}
	s := serve(t)
	// The maintainer's, open to everybody.
	theirs := cache(t)
	theirs.Dir = filepath.Join(t.TempDir(), "site")
	must(t, os.Mkdir(theirs.Dir, 0o755))
	must(t, os.Chmod(theirs.Dir, 0o755))
	old := syscall.Umask(0o077)
	defer syscall.Umask(old)
	theirs.Resolve = s.resolver()
	s.push(t, "a:1")
	ref := "docker://" + s.host + "/a:1"
	img, err := theirs.Get(t.Context(), ref)
	must(t, err)
	refs, err := filepath.Glob(filepath.Join(theirs.Dir, dirRefs, "*.json"))
	must(t, err)
	for path, mode := range map[string]os.FileMode{img.Path: 0o644, theirs.record(img.Sum): 0o644, filepath.Dir(img.Path): 0o755, filepath.Join(theirs.Dir, dirRefs): 0o755, refs[0]: 0o644} {
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, fi.Mode(), err)
		}
	}
	must(t, os.Chown(theirs.Dir, 4242, 4242))
	tree := func() string {
		var names []string
		must(t, filepath.WalkDir(theirs.Dir, func(p string, d os.DirEntry, err error) error {
			fi, serr := os.Lstat(p)
			if serr == nil {
				names = append(names, p, fi.ModTime().String(), fi.Mode().String())
			}
			return err
		}))
		return strings.Join(names, "\n")
	}
	before := tree()

	mine := cache(t)
	mine.Resolve = s.resolver()
	must(t, mine.Use(jobs.Profile{ImageCache: theirs.Dir}))
	blobs := s.blobs.Load()
	got, err := mine.Get(t.Context(), ref)
	if err != nil || got.Path != img.Path || !got.Shared || s.blobs.Load() != blobs {
		t.Errorf("%+v, %v, %d layers", got, err, s.blobs.Load()-blobs)
	}
	if known, err := mine.Known(ref); err != nil || known.Path != img.Path {
		t.Error(err)
	}
	if err := mine.Remove(got); jobs.CodeOf(err) != jobs.CodeConfig {
		t.Errorf("it may be removed: %v", err)
	}
	if list, err := mine.List(); err != nil || len(list) != 1 || !list[0].Shared {
		t.Errorf("%+v, %v", list, err)
	}
	// The tag moves: the new content comes into the own cache.
	s.push(t, "a:1")
	next, err := mine.Get(t.Context(), ref)
	if err != nil || next.Shared || filepath.Dir(filepath.Dir(next.Path)) != mine.Dir {
		t.Errorf("%+v, %v", next, err)
	}
	s.instead(func(http.ResponseWriter, *http.Request) bool { t.Error("a registry was asked"); return false })
	mine.Offline = true
	if known, err := mine.Get(t.Context(), ref); err != nil || known.Sum != next.Sum {
		t.Errorf("what was found last does not count: %v", err)
	}
	if after := tree(); after != before {
		t.Errorf("the shared cache was written:\n%s\n%s", before, after)
	}

	// Whoever may write any part of it could plant an image.
	for _, dir := range []string{"", dirContents, dirRefs} {
		dir = filepath.Join(theirs.Dir, dir)
		for _, mode := range []os.FileMode{0o777, os.ModeSticky | 0o777, 0o775, os.ModeSetgid | 0o770} {
			must(t, os.Chmod(dir, mode))
			if err := cache(t).Use(jobs.Profile{ImageCache: theirs.Dir}); jobs.CodeOf(err) != jobs.CodeConfig || !strings.Contains(jobs.HintOf(err), "chmod go-w "+dir+",") {
				t.Errorf("%s of mode %v: %v", dir, mode, err)
			}
		}
		must(t, os.Chmod(dir, 0o755))
	}
	must(t, os.Chown(filepath.Join(theirs.Dir, dirRefs), 4243, 4243))
	if err := cache(t).Use(jobs.Profile{ImageCache: theirs.Dir}); jobs.CodeOf(err) != jobs.CodeConfig {
		t.Errorf("a part of it is a third one's: %v", err)
	}
	mine = cache(t) // and one's own
	must(t, os.MkdirAll(mine.Dir, 0o700))
	must(t, os.Chmod(mine.Dir, 0o770))
	if err := mine.Use(jobs.Profile{ImageCache: mine.Dir}); jobs.CodeOf(err) != jobs.CodeConfig {
		t.Errorf("a group may write it: %v", err)
	}
}

// What someone else has built under a name does not take the place of what the
// user has.
func TestSharedBuild(t *testing.T) {
	theirs, mine := cache(t), cache(t)
	var out bytes.Buffer
	first, err := mine.Build(t.Context(), "build:a", define("Bootstrap: docker\nFrom: debian:12\n", &out))
	must(t, err)
	_, err = theirs.Build(t.Context(), "build:a", define("Bootstrap: docker\nFrom: debian:13\n", &out))
	must(t, err)
	other, err := theirs.Build(t.Context(), "build:b", define("Bootstrap: docker\nFrom: debian:13\n", &out))
	must(t, err)
	mine.Shared = theirs.Dir
	if got, err := mine.Known("build:a"); err != nil || got.Sum != first.Sum || got.Shared {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := mine.Known("build:b"); err != nil || got.Sum != other.Sum || !got.Shared {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestUse(t *testing.T) {
	dir := t.TempDir()
	c := cache(t)
	c.Getenv = func(n string) string { return map[string]string{"USER": "ada", "WORK": dir}[n] }
	must(t, c.Use(jobs.Profile{ImageCache: "$WORK/$USER/images", Proxy: jobs.Proxy{HTTPS: "http://proxy:3128", No: "localhost"}}))
	if c.Dir != dir+"/ada/images" || c.Shared != "" {
		t.Errorf("%s, %q", c.Dir, c.Shared)
	}
	for name, want := range map[string]string{"https_proxy": "http://proxy:3128", "HTTPS_PROXY": "http://proxy:3128", "http_proxy": "", "NO_PROXY": "localhost", "Https_proxy": "", "USER": "ada"} {
		if got := c.Getenv(name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	c.Getenv = func(n string) string { return map[string]string{"HTTP_PROXY": "http://own:1"}[n] }
	must(t, c.Use(jobs.Profile{Proxy: jobs.Proxy{HTTPS: "http://proxy:3128"}}))
	if got := c.Getenv("https_proxy"); got != "" {
		t.Errorf("the caller's own words do not win: %q", got)
	}
	file := filepath.Join(dir, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	for _, bad := range []string{"$NOT_SET/x", "x/y", "/a:b", file} {
		if err := cache(t).Use(jobs.Profile{ImageCache: bad}); jobs.CodeOf(err) != jobs.CodeConfig || jobs.HintOf(err) == "" {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
