package apptainer

import (
	"cmp"
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

	"berth/apptainer/names"
	"berth/internal/images"
	"berth/internal/sys/disk"
	"berth/internal/sys/lease"
	"berth/internal/sys/run"
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
	Hint    string    `json:"hint,omitempty"` // what to do about Why, where that is known
	// cut is that nothing was found: the probe did not come to its end.
	cut bool
}

// A probe's positive answer holds until the next boot. A negative one holds for
// minutes, because an admin may repair its cause. It only makes berth skip one
// driver where there is another: nothing is refused by what is remembered.
const probeAgain = 10 * time.Minute

// probeTime bounds a probe that hangs. On a node that has much else to do one
// that works can take a minute; what waits for it has a time limit of its own.
var probeTime = 5 * time.Minute // tests shorten it

// probe returns what ask has found for the same words on this machine since it
// was booted, or asks. A remembered no counts where there is another way (o.ways).
// What was not asked to its end is not remembered: that there was no space, memory
// or time for it says nothing of the machine's ways.
func (o *opener) probe(ctx context.Context, words []string, ask func(context.Context) error) found {
	boot, _, _ := strings.Cut(lease.BootID(), "/")
	words = append(words, o.program, fileStamp(o.program))
	sum := sha256.Sum256([]byte(strings.Join(append([]string{images.Hostname(), boot}, words...), "\x00")))
	dir := filepath.Join(o.spec.Home, "probes")
	path := filepath.Join(dir, hex.EncodeToString(sum[:16])+".json")
	f := found{}
	if b, err := disk.ReadRegular(path, 1<<20); err == nil && boot != "" && json.Unmarshal(b, &f) == nil && f.Version == 1 {
		if age := time.Since(f.Time); f.OK || o.ways && age >= 0 && age < probeAgain && !unlucky(errors.New(f.Why)) {
			if !f.OK {
				f.Why += " (found at " + f.Time.UTC().Format(time.RFC3339) + ", remembered in " + path + ")"
			}
			return f
		}
	}
	tctx, cancel := context.WithTimeoutCause(ctx, probeTime, errLong)
	defer cancel()
	err := ask(tctx)
	f = found{Version: 1, What: strings.Join(words, " "), OK: err == nil, Host: images.Hostname(), Time: time.Now().UTC()}
	if err != nil {
		f.Why, f.Hint = err.Error(), jobs.HintOf(err)
	}
	if f.cut = ctx.Err() != nil || err != nil && tctx.Err() != nil || unlucky(err); f.cut {
		if ctx.Err() == nil && tctx.Err() != nil {
			f.Why = context.Cause(tctx).Error()
		}
		return f
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

// errLong is why a probe was cut off.
var errLong = errors.New("trying it did not end within its time; is the machine overloaded?")

// unlucky tells whether a probe has failed for what may be another way in a
// moment.
func unlucky(err error) bool {
	if err == nil {
		return false
	}
	return wasKilled(err) || names.SlowMount(err.Error()) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) ||
		slices.ContainsFunc(nodeTrouble, func(no syscall.Errno) bool { return errors.Is(err, no) }) || saysTrouble(err.Error())
}

// wasKilled tells whether a program was ended by SIGKILL, by whoever that was, or
// by SIGBUS, which is how a mapped file of a full tmpfs ends it.
func wasKilled(err error) bool {
	var failed *run.Error
	return errors.As(err, &failed) && slices.ContainsFunc([]syscall.Signal{syscall.SIGKILL, syscall.SIGBUS}, func(sig syscall.Signal) bool {
		return failed.Exit.Signal == int(sig) || failed.Exit.Code == 128+int(sig)
	})
}

// nodeTrouble is what the system says of a full disk, of no memory, of a broken
// disk and of a network that is cut.
var nodeTrouble = []syscall.Errno{
	syscall.ENOSPC, syscall.EDQUOT, syscall.ENOMEM, syscall.EIO,
	syscall.ESTALE, syscall.ENOTCONN, syscall.ETIMEDOUT, syscall.EHOSTDOWN,
}

// troubleWords are other words of programs for the same.
var troubleWords = []string{
	"no space left", "quota exceeded", "cannot allocate", "could not allocate block", "out of memory",
	"remote i/o error", "timed out", "signal: killed", "signal: bus error",
}

// saysTrouble finds words for no space, memory or time in what a program has
// said.
func saysTrouble(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(nodeTrouble, func(no syscall.Errno) bool { return strings.Contains(text, no.Error()) }) ||
		slices.ContainsFunc(troubleWords, func(words string) bool { return strings.Contains(text, words) })
}

// tellingLine is the line that says why a program has failed: the last of its
// words, or the last that tells of such trouble, of which what follows comes.
func tellingLine(said string) string {
	line := images.LastLine(said)
	for l := range strings.Lines(said) {
		if l = strings.TrimSpace(l); saysTrouble(l) {
			line = l
		}
	}
	return line
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
		return o.tryLayer(ctx, driver, near, lower, tiny)
	})
}

// tryLayer is what layerWorks asks, without remembering the answer.
func (o *opener) tryLayer(ctx context.Context, driver, near, lower string, tiny bool) error {
	if err := os.MkdirAll(near, 0o700); err != nil {
		return err
	}
	sweepOld(near, prefixProbe)
	if tiny {
		sweepOld(lower, prefixProbe)
	}
	temp, err := os.MkdirTemp(near, prefixProbe+"*")
	if err != nil {
		return err
	}
	defer func() { _ = removeTree(temp) }()
	layer, err := overlay.Temporary(ctx, o.at.On, temp, jobs.OverlaySpec{Driver: driver, Size: tinySize})
	if err != nil {
		return err
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
	err = o.changeAndLook(ctx, driver, img, layer.Path)
	if err != nil && !tiny && strings.Contains(err.Error(), overlay.ErrNoVictims.Error()) {
		// This image has no file to change. The probe starts again with another
		// image: nothing has been changed.
		if img, err = tinyImage(temp); err == nil {
			err = o.changeAndLook(ctx, driver, img, layer.Path)
		}
	}
	return err
}

// changeAndLook has one container change what an image has, and a second one
// look at that, over the same layer.
func (o *opener) changeAndLook(ctx context.Context, driver, img, layer string) error {
	in := jobs.Invocation{Guest: o.at.Guest, Place: jobs.Place{Overlay: jobs.OverlaySpec{Driver: driver}, Fakeroot: o.spec.Fakeroot}}
	for _, word := range []string{tryChange, tryLook} {
		if err := o.try(ctx, in, img, layer, word); err != nil {
			return err
		}
	}
	return nil
}

// networkNone tells whether a container without a network works here.
func (o *opener) networkNone(ctx context.Context) found {
	return o.probe(ctx, []string{"network", jobs.NetworkNone}, func(ctx context.Context) error {
		o.at.Progress("trying a container without a network (once on this machine)")
		return o.tryNetworkNone(ctx)
	})
}

// tryNetworkNone is what networkNone asks, without remembering the answer.
func (o *opener) tryNetworkNone(ctx context.Context) error {
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
	argv, err := o.b.Argv(jobs.Invocation{Guest: o.at.Guest, Place: jobs.Place{Network: jobs.Network{Mode: jobs.NetworkNone}}}, []string{"try", tryNetwork})
	if err != nil {
		return err
	}
	if i := slices.Index(argv, jobs.PlaceholderOverlay); i > 0 {
		argv = slices.Delete(argv, i-1, i+1)
	}
	return o.tryArgv(ctx, o.fill(argv, img, "", o.at.Scratch), false)
}

// try runs one word of [TryMain] in a container over a layer.
func (o *opener) try(ctx context.Context, in jobs.Invocation, img, layer, word string) error {
	argv, err := o.line(in, lineOf{lower: img, layer: layer, scratch: o.at.Scratch, guest: o.at.Guest, run: []string{"try", word}})
	if err != nil {
		return err
	}
	return o.tryArgv(ctx, argv, in.Overlay.Driver == jobs.DriverKernel)
}

// tryArgv runs a container whose command is [TryMain]. That leaves when its
// input ends, as it does when this process is killed.
func (o *opener) tryArgv(ctx context.Context, argv []string, own bool) error {
	in, owner, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _, _ = in.Close(), owner.Close() }()
	out, err := run.Output(ctx, o.at.On, jobs.Cmd{Argv: argv, Dir: "/", Env: o.environ(), Stdin: in, OwnMounts: own})
	if err == nil || wasKilled(err) {
		return err
	}
	said := strings.TrimSpace(string(out))
	var failed *run.Error
	if errors.As(err, &failed) && failed.Err == nil {
		// A warning there may tell why, before the words that the try ended with.
		if x := Explain(o.at.On, o.program, o.environ())(ctx, failed.Stderr+"\n"+said); x != nil {
			return &jobs.Error{Kind: x.Kind, Blame: x.Blame, Msg: tellingLine(cmp.Or(said, failed.Stderr)) + " (" + x.Msg + ")", Hint: x.Hint}
		}
		if said == "" {
			said = failed.Stderr
		}
	}
	if said != "" {
		return errors.New(tellingLine(said))
	}
	return err
}
