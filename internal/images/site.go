package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"berth/jobs"
)

// Use has the cache follow a profile: where images are kept, how registries are
// reached, and where there is fast local disk. The profile's cache that belongs
// to this user is where images are put; another user's is looked in first, and
// never written.
func (c *Cache) Use(p jobs.Profile) error {
	c.profileScratch = p.Scratch
	if p.Proxy != (jobs.Proxy{}) {
		c.Getenv = proxied(c.Getenv, p.Proxy)
	}
	if p.ImageCache == "" {
		return nil
	}
	dir, err := expand(p.ImageCache, c.Getenv)
	if err != nil {
		return err
	}
	fi, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.Dir = dir // made when something is put there
		return nil
	case err != nil || !fi.IsDir():
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the profile's image_cache " + dir + " is no directory", Err: err,
			Hint: "correct image_cache in the profile"}
	}
	if err := oneWriter(dir, fi); err != nil {
		return err
	}
	if int(ownerOf(fi)) == os.Getuid() {
		c.Dir = dir
	} else {
		c.Shared = dir
	}
	return nil
}

// oneWriter refuses a cache into which others than its owner may put something:
// what its records call an image is run with the user's rights.
func oneWriter(dir string, fi fs.FileInfo) error {
	owner := ownerOf(fi)
	for _, d := range []string{dir, filepath.Join(dir, dirContents), filepath.Join(dir, dirRefs)} {
		if d != dir {
			var err error
			fi, err = os.Lstat(d)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			if !fi.IsDir() {
				return planted(d)
			}
		}
		if by := ownerOf(fi); fi.Mode().Perm()&0o022 != 0 || by != owner && by != 0 {
			return &jobs.Error{Kind: jobs.KindConfig,
				Msg: "the profile's image_cache " + dir + " may be written by others than its owner (" +
					d + "), and images are run with your rights",
				Hint: "chmod go-w " + d + ", by whom it belongs to, after a look at what is in it: ls -lR " + dir}
		}
	}
	return nil
}

// ownerOf is the user whose file it is.
func ownerOf(fi fs.FileInfo) uint32 {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return st.Uid
	}
	return 0
}

// shared is another user's cache, or nil.
func (c *Cache) shared() *Cache {
	if c.Shared == "" {
		return nil
	}
	return &Cache{Dir: c.Shared}
}

// proxied gives the profile's way out where the caller's environment names none.
func proxied(getenv func(string) string, p jobs.Proxy) func(string) string {
	of := map[string]string{"http_proxy": p.HTTP, "https_proxy": p.HTTPS, "no_proxy": p.No}
	own := false
	for name := range of {
		own = own || getenv(name) != "" || getenv(strings.ToUpper(name)) != ""
	}
	if own {
		return getenv
	}
	return func(name string) string {
		if v := of[strings.ToLower(name)]; v != "" && (name == strings.ToLower(name) || name == strings.ToUpper(name)) {
			return v
		}
		return getenv(name)
	}
}

// expand makes a path of the profile's image_cache.
func expand(word string, getenv func(string) string) (string, error) {
	out, missing := jobs.Expand(word, getenv)
	bad := func(what string) (string, error) {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "the profile's image_cache " + what, Hint: "correct image_cache in the profile"}
	}
	switch {
	case missing != "":
		return bad("names $" + missing + ", which is not set here")
	case !filepath.IsAbs(out) || strings.ContainsAny(out, ":,") || jobs.CheckText("", out) != nil:
		return bad(fmt.Sprintf("%q is not an absolute path without ':' and ','", out))
	}
	return filepath.Clean(out), nil
}

// makeDir makes a directory of the cache, readable for those for whom the cache
// itself is: who opens that to a group shares what is in it.
func (c *Cache) makeDir(dir string) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	made, err := ownDir(dir, 0o700)
	if err == nil && made {
		err = os.Chmod(dir, 0o700|c.others()&0o055)
	}
	return err
}

// others is what others than the owner may do with the directory of the cache.
func (c *Cache) others() fs.FileMode {
	fi, err := os.Stat(c.Dir)
	if err != nil {
		return 0
	}
	return fi.Mode().Perm() & 0o055
}

// fileMode is that of a file which others may read when the cache is open to
// them.
func (c *Cache) fileMode() fs.FileMode { return 0o600 | c.others()&0o044 }
