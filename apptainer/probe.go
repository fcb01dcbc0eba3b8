package apptainer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"berth/internal/lease"
	"berth/internal/run"
	"berth/jobs"
	"berth/overlay"
)

// found is what a probe has found on this machine, kept so that the next
// environment need not ask again.
type found struct {
	Version int       `json:"version"`
	What    string    `json:"what"` // what was asked, for people
	OK      bool      `json:"ok"`
	Why     string    `json:"why,omitempty"` // not
	Host    string    `json:"host"`
	Time    time.Time `json:"time"`
}

// A probe's answer holds until the next boot; one that said no may have been
// unlucky (a full disk) and is asked again after a while.
const (
	probeAgain = time.Hour
	probeTime  = 30 * time.Second
)

// probe returns what ask has found for the same words on this machine since it
// was booted, or asks.
func (o *opener) probe(ctx context.Context, words []string, ask func(context.Context) error) found {
	boot, _, _ := strings.Cut(lease.BootID(), "/")
	words = append(words, o.program, fileStamp(o.program))
	sum := sha256.Sum256([]byte(strings.Join(append([]string{hostname(), boot}, words...), "\x00")))
	dir := filepath.Join(o.spec.Home, "probes")
	path := filepath.Join(dir, hex.EncodeToString(sum[:16])+".json")
	f := found{}
	if b, err := os.ReadFile(path); err == nil && boot != "" && json.Unmarshal(b, &f) == nil && f.Version == 1 {
		if age := time.Since(f.Time); f.OK || age >= 0 && age < probeAgain {
			return f
		}
	}
	tctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	err := ask(tctx)
	f = found{Version: 1, What: strings.Join(words, " "), OK: err == nil, Host: hostname(), Time: time.Now().UTC()}
	if err != nil {
		f.Why = err.Error()
	}
	if ctx.Err() != nil {
		return f // it was not asked to the end
	}
	// Nothing depends on this file: it is neither synced nor missed.
	if b, err := json.MarshalIndent(f, "", "  "); err == nil && os.MkdirAll(dir, 0o700) == nil {
		if t, err := os.CreateTemp(dir, prefixNew+"*"); err == nil {
			_, werr := t.Write(b)
			if errors.Join(werr, t.Close(), os.Rename(t.Name(), path)) != nil {
				_ = os.Remove(t.Name())
			}
		}
	}
	return f
}

// prefixProbe begins the name of what a probe makes.
const prefixProbe = ".probe-"

// fileStamp changes when the file at path is replaced.
func fileStamp(path string) string {
	fi, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d:%d", fi.Size(), fi.ModTime().UnixNano())
}

// fileSystem names the file system that dir is on, or will be.
func fileSystem(dir string) string {
	for ; ; dir = filepath.Dir(dir) {
		var st syscall.Statfs_t
		var at syscall.Stat_t
		if syscall.Statfs(dir, &st) == nil && syscall.Stat(dir, &at) == nil {
			return fmt.Sprintf("%x:%d", st.Type, at.Dev)
		}
		if dir == "/" || dir == "." {
			return ""
		}
	}
}

// ownerOf tells whose a file is: of an unpacked image only its owner can have
// the kernel change the files.
func ownerOf(path string) string {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return ""
	}
	return fmt.Sprint(st.Uid)
}

// layerWorks tells whether a driver's layers are right here, with their files
// where near is, over the image lower, or, if tiny, over one made in lower: by
// a container that changes what the image has and another one that looks at
// that, in a layer that is thrown away.
func (o *opener) layerWorks(ctx context.Context, driver, near, lower string, tiny bool) found {
	words := []string{"layer", driver, fileSystem(near), fileSystem(lower), ownerOf(lower)}
	if o.spec.Fakeroot {
		words = append(words, "fakeroot")
	}
	return o.probe(ctx, words, func(ctx context.Context) error {
		o.at.Progress("trying the overlay driver " + driver + " (once on this machine)")
		if err := os.MkdirAll(near, 0o700); err != nil {
			return err
		}
		layer, err := os.MkdirTemp(near, prefixProbe+"*")
		if err != nil {
			return err
		}
		defer func() { _ = removeTree(layer) }()
		for _, d := range []string{"upper", "work"} {
			if err := os.Mkdir(filepath.Join(layer, d), 0o755); err != nil {
				return err
			}
		}
		img := lower
		if tiny {
			if img, err = os.MkdirTemp(lower, prefixProbe+"*"); err != nil {
				return err
			}
			defer func() { _ = removeTree(img) }()
			if err := os.Chmod(img, 0o755); err != nil {
				return err
			}
			if err := overlay.MakeTiny(img); err != nil {
				return err
			}
		}
		place := jobs.Place{Overlay: jobs.OverlaySpec{Driver: driver}, Fakeroot: o.spec.Fakeroot, Guest: o.at.Guest}
		for _, word := range []string{tryChange, tryLook} {
			if err := o.try(ctx, place, img, layer, word); err != nil {
				return err
			}
		}
		return nil
	})
}

// networkNone tells whether a container without a network can be had here.
func (o *opener) networkNone(ctx context.Context) found {
	return o.probe(ctx, []string{"network", NetworkNone}, func(ctx context.Context) error {
		o.at.Progress("trying a container without a network (once on this machine)")
		img, err := os.MkdirTemp(o.at.Scratch, prefixProbe+"*")
		if err != nil {
			return err
		}
		defer func() { _ = removeTree(img) }()
		if err := overlay.MakeTiny(img); err != nil {
			return err
		}
		// Read-only, it needs the mount point already.
		if err := os.WriteFile(filepath.Join(img, GuestPath), nil, 0o755); err != nil {
			return err
		}
		argv, err := o.b.Argv(jobs.Place{Network: NetworkNone, Guest: o.at.Guest}, []string{"try", tryNetwork})
		if err != nil {
			return err
		}
		if i := slices.Index(argv, jobs.HoleOverlay); i > 0 {
			argv = slices.Delete(argv, i-1, i+1)
		}
		return o.tryArgv(ctx, o.fill(argv, img, ""), false)
	})
}

// try runs one word of [TryMain] in a container over a layer.
func (o *opener) try(ctx context.Context, place jobs.Place, img, layer, word string) error {
	argv, own, err := o.argv(place, img, layer, []string{"try", word})
	if err != nil {
		return err
	}
	return o.tryArgv(ctx, argv, own)
}

func (o *opener) tryArgv(ctx context.Context, argv []string, own bool) error {
	out, err := run.Output(ctx, o.at.On, jobs.Cmd{Argv: argv, Dir: "/", Env: o.environ(), OwnMounts: own})
	if err == nil {
		return nil
	}
	if said := strings.TrimSpace(string(out)); said != "" {
		return errors.New(lastLine(said))
	}
	var failed *run.Error
	if errors.As(err, &failed) && failed.Err == nil && failed.Stderr != "" {
		return errors.New(lastLine(failed.Stderr))
	}
	return err
}
