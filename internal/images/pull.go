package images

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/sys/lease"
	"berth/internal/sys/run"
	"berth/jobs"
	"berth/jobs/store"
	"berth/overlay"
)

// Resolver asks a registry what it has under a name.
type Resolver interface {
	// Digest returns the digest of the manifest for one platform: the content
	// that is to run.
	Digest(ctx context.Context, n Name) (string, error)
}

// ErrNoDigest is what a [Resolver] says of a library that it does not know, or
// that does not know the user: the container program knows more of both, and
// what it brings is known by its SHA-256.
var ErrNoDigest = errors.New("no digest can be asked for")

// Cache is the images of a state directory, and how more are fetched.
type Cache struct {
	Dir      string // see [Dir]
	On       jobs.Starter
	Program  func() (string, error)               // path of the container program
	Tool     Tool                                 // what is known of it
	Environ  func() []string                      // of that program, without its directories
	Getenv   func(string) string                  // of the caller
	Scratch  string                               // a profile's scratch directory, to build in; "" is chosen
	Progress func(string)                         // tells a person what takes long; never nil
	Meter    func(Meter)                          // shows how far that is; nil where there is no terminal: then there are lines now and then
	Resolve  Resolver                             // nil: the program itself follows tags
	Offline  bool                                 // nothing is asked of a network
	Sleep    func(context.Context, time.Duration) // nil is the real one
	Patience lease.Patience                       // 0 is the usual
	// Shared is another user's cache that is looked in first; "" is none.
	Shared string

	profileScratch string // see [Cache.Use]
}

// usual is how a puller that may be gone is waited for: it beats every 5 s.
var usual = lease.Patience{Look: 500 * time.Millisecond, Silent: 180 * time.Second}

// beatEvery is how often a puller shows that it works on.
const beatEvery = 5 * time.Second

// byDigest begins the record of a content that a registry knows by its digest,
// whatever names lead there.
const byDigest = "digest:"

// Known returns what a reference was last found to be, without asking anybody.
func (c *Cache) Known(ref string) (Image, error) {
	if img, ok := c.found(ref); ok {
		return c.use(img), nil
	}
	if IsBuilt(ref) {
		return Image{}, notBuilt(ref)
	}
	return Image{}, &jobs.Error{Kind: jobs.KindNotFound, Msg: "the cache has no " + ref,
		Hint: "fetch it first, where there is a network: berth image pull " + ref}
}

// Get returns the image that a reference stands for now: a tag is looked up in
// its registry, and what is not in the cache is fetched, by one process of all
// machines. Offline it is what the tag was last found to be.
func (c *Cache) Get(ctx context.Context, ref string) (Image, error) {
	if c.Offline || IsBuilt(ref) {
		return c.Known(ref)
	}
	ask, digest, err := c.pin(ctx, ref)
	if err != nil {
		return Image{}, err
	}
	return c.pinned(ctx, ref, ask, digest)
}

// pinned returns the image of which pin has said what it is.
func (c *Cache) pinned(ctx context.Context, ref, ask, digest string) (Image, error) {
	w := want{ref: ref, ask: ask, digest: digest, lookup: ref, content: digest != ""}
	if digest != "" {
		w.lookup = byDigest + digest
		if img, ok := c.found(w.lookup); ok {
			img.Reference, img.Digest = ref, digest
			return c.use(img), c.note(ref, digest, img.Sum)
		}
	}
	img, err := c.once(ctx, w)
	if err != nil {
		return Image{}, err
	}
	img.Reference, img.Digest = ref, digest
	return c.use(img), c.note(ref, digest, img.Sum)
}

// Digest is what a reference means now: a digest, or "" where none can be asked
// for.
func (c *Cache) Digest(ctx context.Context, ref string) (string, error) {
	_, digest, err := c.pin(ctx, ref)
	return digest, err
}

// HaveDigest returns the image that a reference means, when it is in the cache.
func (c *Cache) HaveDigest(ref, digest string) (Image, bool) {
	img, ok := c.found(byDigest + digest)
	if !ok {
		return img, false
	}
	img.Reference, img.Digest = ref, digest
	return c.use(img), c.note(ref, digest, img.Sum) == nil
}

// ForJob is what [Cache.Get] gives, but what no digest can be asked for is fetched
// only when the cache does not have it; known says that it had.
func (c *Cache) ForJob(ctx context.Context, ref string) (img Image, known bool, err error) {
	if c.Offline || IsBuilt(ref) {
		img, err = c.Known(ref)
		return img, false, err
	}
	ask, digest, err := c.pin(ctx, ref)
	if err == nil && digest == "" {
		if img, err := c.Known(ref); err == nil {
			return img, true, nil
		}
	}
	if err == nil {
		img, err = c.pinned(ctx, ref, ask, digest)
	}
	return img, false, err
}

// pin returns what is to be asked of the container program for a reference,
// and the digest of that.
func (c *Cache) pin(ctx context.Context, ref string) (ask, digest string, err error) {
	if begins(named, ref) {
		n, err := ParseName(ref)
		if err != nil || c.Resolve == nil && n.Digest == "" {
			return ref, "", err
		}
		digest := n.Digest
		if c.Resolve != nil {
			digest, err = c.Resolve.Digest(ctx, n)
			if errors.Is(err, ErrNoDigest) {
				return ref, "", nil
			}
			if err != nil {
				return "", "", err
			}
		}
		if !IsDigest(digest) {
			return "", "", &jobs.Error{Kind: jobs.KindInfra,
				Msg: fmt.Sprintf("the registry %s gives %.100q as the digest of %s, which is none", n.Host, digest, ref)}
		}
		return n.At(digest), digest, nil
	}
	if file, ok := archive(ref); ok {
		sum, err := Sum(ctx, file)
		if errors.Is(err, fs.ErrNotExist) {
			return "", "", &jobs.Error{Kind: jobs.KindNotFound, Msg: "the archive " + file + " does not exist on " + Hostname(),
				Hint: "name what docker save has written, from / on"}
		}
		return ref, "sha256:" + sum, err
	}
	return ref, "", nil
}

// want is an image that is to be made.
type want struct {
	ref    string // as it is named
	ask    string // of the container program
	digest string // of the registry's manifest, or ""
	lookup string // under which its record is found
	// content says that what is recorded under lookup is the same for ever.
	content bool
	// It is built from def, or made by by, where it is not fetched.
	def *Definition
	by  func(ctx context.Context, path string) error
}

// once fetches, unless another process does: then it waits for that one, or
// takes over from it when it is gone.
func (c *Cache) once(ctx context.Context, w want) (Image, error) {
	k := key(w.lookup)
	dir := filepath.Join(c.Dir, dirPulls, k)
	if err := c.makeDir(filepath.Dir(dir)); err != nil {
		return Image{}, noRoom(err, c.Dir)
	}
	if _, err := ownDir(dir, 0o700); err != nil {
		return Image{}, noRoom(err, c.Dir)
	}
	mine, err := os.MkdirTemp(dir, "beat-*")
	if err != nil {
		return Image{}, noRoom(err, c.Dir)
	}
	defer func() { _ = disk.RemoveTree(mine) }()
	self := lease.Self()
	me := self.Owner(mine)
	p := c.Patience
	if p.Look == 0 {
		p = usual
	}
	began := time.Now()
	for said := false; ; {
		l, err := lease.Acquire(dir, me, func(o lease.Owner) bool {
			if !said {
				said = true
				c.Progress(fmt.Sprintf("process %d on %s makes %s: waiting for it", o.PID, o.Host, w.ref))
			}
			return lease.Gone(ctx, o, self, p, func(string) bool {
				if o.Process().Gone(self) {
					return true
				}
				h, err := lease.Holder(dir)
				return err == nil && (h == nil || h.Dir != o.Dir)
			})
		})
		if err == nil {
			img, err := c.held(ctx, l, mine, w, began)
			return img, errors.Join(err, l.Release())
		}
		var held *lease.HeldError
		if ctx.Err() != nil {
			return Image{}, ctx.Err()
		}
		if !errors.As(err, &held) && jobs.KindOf(err) != jobs.KindAgain {
			if jobs.HintOf(err) == "" {
				err = noRoom(err, c.Dir)
			}
			return Image{}, err
		}
	}
}

// held fetches as the one puller.
func (c *Cache) held(ctx context.Context, l *lease.Lease, mine string, w want, began time.Time) (Image, error) {
	// Another process may have been quicker. A tag that the program itself follows
	// is fetched again, unless that process began after this one.
	if img, ok := c.found(w.lookup); ok && (w.content || c.newer(w.lookup, began)) {
		return img, nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer func() { cancel(nil); <-done }()
	beat := filepath.Join(mine, "beat")
	if err := os.WriteFile(beat, []byte("0"), 0o600); err != nil {
		close(done)
		return Image{}, err
	}
	go func() {
		defer close(done)
		for n := 1; ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-time.After(beatEvery):
			}
			if !l.Stands() {
				cancel(&jobs.Error{Kind: jobs.KindAgain,
					Msg:  "another process has taken over the making of " + w.ref + ", because this one was silent for long",
					Hint: "try again"})
				return
			}
			_ = os.WriteFile(beat, fmt.Append(nil, n), 0o600)
		}
	}()
	backoff := []time.Duration{5 * time.Second, 20 * time.Second, time.Minute}
	for try := 0; ; try++ {
		img, err := c.make(ctx, w)
		switch {
		case err == nil:
			return img, c.note(w.lookup, w.digest, img.Sum)
		case ctx.Err() != nil:
			return Image{}, context.Cause(ctx)
		case try == len(backoff) || w.ask == "" || !passing(err):
			return Image{}, err
		}
		c.Progress(fmt.Sprintf("%v; again in %s", err, backoff[try]))
		c.sleep(ctx, backoff[try])
	}
}

func (c *Cache) newer(ref string, than time.Time) bool {
	r, ok := c.recorded(ref)
	return ok && r.Time.After(than)
}

func (c *Cache) sleep(ctx context.Context, d time.Duration) {
	if c.Sleep != nil {
		c.Sleep(ctx, d)
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// make has the container program make a SIF and puts that in place.
func (c *Cache) make(ctx context.Context, w want) (Image, error) {
	k := key(w.lookup)
	program, err := c.Program()
	if err != nil {
		return Image{}, err
	}
	infra := func(err error) (Image, error) {
		return Image{}, &jobs.Error{Kind: jobs.KindInfra, Msg: "keep the image of " + w.ref, Err: err, Hint: hintRoom(c.Dir)}
	}
	if old, err := filepath.Glob(filepath.Join(c.Dir, prefixNew+k+"-*")); err == nil {
		for _, dir := range old { // its maker has lost the lease
			_ = disk.RemoveTree(dir)
		}
	}
	temp, err := os.MkdirTemp(c.Dir, prefixNew+k+"-*")
	if err != nil {
		return infra(err)
	}
	defer func() { _ = disk.RemoveTree(temp) }()
	made := filepath.Join(temp, "image.sif")
	if w.by != nil {
		if err := w.by(ctx, made); err != nil {
			return Image{}, err
		}
		return c.keep(ctx, made, w)
	}
	base, err := c.buildBase()
	if err != nil {
		return Image{}, err
	}
	scratch, err := newScratch(base, "image-"+k[:8], temp)
	if err != nil {
		return Image{}, err
	}
	defer func() { _ = disk.RemoveTree(scratch) }()
	if w.def != nil {
		if err := c.build(ctx, program, scratch, made, w); err != nil {
			return Image{}, err
		}
	} else if err := c.fetch(ctx, program, scratch, made, w); err != nil {
		return Image{}, err
	}
	return c.keep(ctx, made, w)
}

// fetch has the container program fetch an image as a SIF.
func (c *Cache) fetch(ctx context.Context, program, scratch, made string, w want) error {
	argv := []string{program, "build", made, w.ask}
	if begins(pulled, w.ask) {
		argv = []string{program, "pull", made, w.ask}
	}
	c.Progress("fetching " + w.ref + " (once; it may take some minutes)")
	stop := c.watch(scratch, made, w.ref)
	_, err := run.Output(ctx, c.On, jobs.Cmd{Argv: argv, Dir: "/", Env: c.environ(program, scratch, w.ask)})
	stop()
	if err != nil {
		return c.Tool.fetchError(w.ref, err)
	}
	return bySum(ctx, made, w)
}

// bySum compares what has come out of a library with its digest, which is the
// SHA-256 of the file: the container program does not do so for a tag. Of an
// archive the digest is that of the archive, which must have stayed what it was.
func bySum(ctx context.Context, made string, w want) error {
	ask, digest := w.ask, w.digest
	if file, ok := archive(ask); ok && digest != "" {
		sum, err := Sum(ctx, file)
		if err == nil && "sha256:"+sum != digest {
			err = &jobs.Error{Kind: jobs.KindAgain, Msg: "the archive " + file + " was changed while it was read",
				Hint: "wait until whatever writes it is done, and try again"}
		}
		return err
	}
	if digest == "" || !strings.HasPrefix(ask, "library://") {
		return nil
	}
	sum, err := Sum(ctx, made)
	if err == nil && "sha256:"+sum != digest {
		err = &jobs.Error{Kind: jobs.KindInfra, Msg: "the library has sent something else than " + ask,
			Err:  errors.New("the SHA-256 of what came is " + sum),
			Hint: "the content was changed on its way, or the library is broken: do not use it"}
	}
	return err
}

// keep puts a SIF that was made into the cache.
func (c *Cache) keep(ctx context.Context, made string, w want) (Image, error) {
	infra := func(err error) (Image, error) {
		return Image{}, &jobs.Error{Kind: jobs.KindInfra, Msg: "keep the image of " + w.ref, Err: err, Hint: hintRoom(c.Dir)}
	}
	id, err := Whole(made)
	if err != nil {
		return infra(err)
	}
	sum, err := Sum(ctx, made)
	if err != nil {
		return infra(err)
	}
	f, err := os.Open(made)
	if err != nil {
		return infra(err)
	}
	fi, err := f.Stat()
	if err == nil {
		err = f.Chmod(c.fileMode())
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = c.makeDir(filepath.Dir(c.Path(sum)))
	}
	if err != nil {
		return infra(err)
	}
	img := Image{Version: 1, Sum: sum, Size: fi.Size(), ID: id, Reference: w.ref, Digest: w.digest, Host: Hostname(), Created: time.Now().UTC()}
	if w.def != nil {
		img.Definition, img.Fakeroot = w.def.sum(), w.def.mode
		if _, err := store.CreateOnce(c.DefinitionPath(sum), w.def.Text); err != nil {
			return infra(err)
		}
	}
	b, err := json.MarshalIndent(img, "", "  ")
	if err != nil {
		return infra(err)
	}
	// What stands there under this name has this content, or was damaged.
	if err := os.Rename(made, c.Path(sum)); err != nil {
		return infra(err)
	}
	if err := disk.SyncDir(filepath.Dir(c.Path(sum))); err != nil {
		return infra(err)
	}
	if _, err := store.CreateOnce(c.record(sum), b); err != nil {
		return infra(err)
	}
	if mode := c.fileMode(); mode != 0o600 {
		if err := os.Chmod(c.record(sum), mode); err != nil {
			return infra(err)
		}
	}
	return c.Have(sum)
}

// buildBase is a directory on this machine's own disk: layers are unpacked
// there, thousands of small files.
func (c *Cache) buildBase() (string, error) {
	if c.Scratch != "" {
		return scratchBase(c.Scratch, c.Getenv)
	}
	base, err := scratchBase(c.profileScratch, c.Getenv)
	if err != nil && c.profileScratch != "" {
		base, err = scratchBase("", c.Getenv) // a login node need not have what nodes have
	}
	if err != nil {
		return "", err
	}
	for _, dir := range []string{base, "/var/tmp", "/tmp"} {
		if fi, err := os.Stat(dir); err == nil && fi.IsDir() && overlay.TakesDirectories(dir) {
			return dir, nil
		}
	}
	return "", &jobs.Error{Kind: jobs.KindConfig, Msg: base + " is on a network file system, and so are /var/tmp and /tmp: an image cannot be built there",
		Hint: "set TMPDIR to a directory on a disk of " + Hostname()}
}

// environ is the environment of the program that fetches. Its cache and its
// temporary files go to scratch: a home directory may have no room for them.
// The user's own configuration holds the logins to registries. ask is what is
// fetched, or "" where nothing is: then there are no logins in it, which scripts
// of a definition that run outside of the container (%setup, %pre) would see.
func (c *Cache) environ(program, scratch, ask string) []string {
	env, logins := c.Environ(), c.Tool.logins()
	for _, name := range c.Tool.credentials() {
		if v := c.Getenv(name); v != "" && (ask != "" || !slices.Contains(logins, name)) {
			env = append(env, name+"="+v)
		}
	}
	w := workIn(scratch)
	w.Home = c.Getenv("HOME")
	n, err := ParseName(ask)
	w.Plain = err == nil && n.Loopback()
	return append(env, c.Tool.Work(program, w)...)
}
