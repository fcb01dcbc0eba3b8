package overlay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/sys/run"
	"berth/jobs"
)

// An attempt may work on a copy of its overlay, so that only one that has
// succeeded changes it. The copy stands in the overlay's directory, in
// .attempt-ID, and comes there complete, by a rename from a directory
// .making-*. Its promotion is one exchange of two names, or of a file one
// rename; where a file system cannot exchange names it is two renames, and a
// kill between them is finished by whoever has the lease next ([settleSwap]),
// because the decision had been made. Everything else that a kill leaves is
// removed by the next one ([clearAttempts]).
const (
	prefixAttempt = ".attempt-"
	fileAttempt   = "attempt.json" // says whose copy it is; one without is not of berth's making
	dirOld        = "old"          // the layer that is giving way
)

// Up to so much a layer is copied for an attempt where the copy takes its full
// space, and up to so many files anywhere: sharing blocks does not make these
// for nothing.
const (
	smallLayer = 2 * jobs.GiB
	manyFiles  = 100_000
)

// attemptCopy is attempt.json.
type attemptCopy struct {
	Version int       `json:"version"`
	Overlay string    `json:"overlay"`
	Attempt string    `json:"attempt"`
	Driver  string    `json:"driver"`
	Created time.Time `json:"created"`
}

// testStep is told each step of a snapshot and of a promotion before it is
// done; only tests set it.
var testStep = func(string) {}

// testNoExchange makes a file system of those that cannot exchange two names;
// only tests set it.
var testNoExchange bool

// Snapshot has an attempt work on a copy of the layer from now on, where want
// and the place allow it: [Layer.Path] is the copy then. What becomes of it is
// said by [Layer.Promote]; without that [Layer.Close] removes it. The layer must
// be a persistent one.
func (l *Layer) Snapshot(ctx context.Context, on jobs.Starter, want, attempt string) (jobs.OverlayUse, error) {
	use := jobs.OverlayUse{Name: filepath.Base(l.dir), Driver: l.driver, Way: jobs.WayInPlace}
	var copied bool
	var err error
	if copied, use.Why, err = l.worthCopy(ctx, want); err != nil || !copied {
		return use, err
	}
	if err = l.copyFor(ctx, on, use.Name, attempt); err == nil {
		use.Way = jobs.WaySnapshot
		return use, nil
	}
	if ctx.Err() != nil || want == jobs.SnapshotAlways {
		return use, &jobs.Error{Kind: jobs.KindInfra, Msg: "copy overlay " + use.Name + " for the attempt", Err: err,
			Hint: `is there space left? df -h ` + l.dir + `; overlay_snapshot = "never" works in the overlay itself`}
	}
	use.Why = "it could not be copied: " + err.Error()
	return use, nil
}

// worthCopy decides whether an attempt works on a copy, and says why.
func (l *Layer) worthCopy(ctx context.Context, want string) (yes bool, why string, err error) {
	switch want {
	case jobs.SnapshotNever:
		return false, "as asked for", nil
	case jobs.SnapshotAlways:
		return true, "as asked for", nil
	}
	took, err := layerSpace(ctx, l.driver, l.own, Space{Bytes: smallLayer, Files: manyFiles})
	if err != nil {
		return false, "", err
	}
	if took.Files > manyFiles {
		return false, fmt.Sprintf("it has more than %d files", manyFiles), nil
	}
	if sharesBlocks(l.dir) {
		return true, "the file system shares blocks between copies", nil
	}
	if took.Bytes > smallLayer {
		return false, fmt.Sprintf("it takes more than %s, and the file system does not share blocks between copies", smallLayer), nil
	}
	free, err := Free(l.dir)
	if err == nil && free < took.Bytes+took.Bytes/4 {
		return false, fmt.Sprintf("it takes %s, and %s are free on its file system", shown(took.Bytes), shown(free)), nil
	}
	return true, "it takes " + shown(took.Bytes), nil
}

// shown is a number of bytes for people, in whole MiB.
func shown(b jobs.Bytes) string {
	if b < jobs.MiB {
		return "less than 1 MiB"
	}
	return jobs.Bytes(b.MiB() * int64(jobs.MiB)).String()
}

// copyFor makes the copy. It is not synced: whatever a crash leaves of it is
// thrown away.
func (l *Layer) copyFor(ctx context.Context, on jobs.Starter, name, attempt string) error {
	testStep("snapshot: begin")
	temp, err := os.MkdirTemp(l.dir, prefixTemp+"*")
	if err != nil {
		return err
	}
	to := filepath.Join(l.dir, prefixAttempt+attempt)
	err = func() error {
		testStep("snapshot: copy")
		if err := copyLayer(ctx, on, l.driver, l.own, layerPath(temp, l.driver)); err != nil {
			return err
		}
		b, err := json.MarshalIndent(attemptCopy{Version: 1, Overlay: name, Attempt: attempt, Driver: l.driver, Created: time.Now().UTC()}, "", "  ")
		if err != nil {
			return err
		}
		testStep("snapshot: name")
		if err := os.WriteFile(filepath.Join(temp, fileAttempt), b, 0o600); err != nil {
			return err
		}
		testStep("snapshot: place")
		return os.Rename(temp, to)
	}()
	if err != nil {
		return errors.Join(err, run.RemoveFiles(context.WithoutCancel(ctx), on, temp))
	}
	testStep("snapshot: done")
	l.work, l.Path, l.on = to, layerPath(to, l.driver), on
	return nil
}

// Snapshotted tells whether the attempt works on a copy.
func (l *Layer) Snapshotted() bool { return l.work != "" }

// Promote puts the copy that the attempt worked on in the place of the overlay,
// at once or not at all, and durably. Nothing may have it mounted any more, and
// the caller vouches that what it holds is to be kept: it asks for it when a
// task has succeeded, and where one stops at a point from which it will be
// resumed. stands tells whether the caller still may; the lease is looked at
// here. After an error the overlay is as it was, or as it should be.
func (l *Layer) Promote(_ context.Context, stands func() bool) error {
	if l.work == "" {
		return nil
	}
	name := filepath.Base(l.dir)
	fail := func(err error) error {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "what the task has changed in overlay " + name + " could not be kept", Err: err,
			Hint: "the overlay is as it was before; is there space left? df -h " + l.dir}
	}
	mayStill := func() error {
		if !l.lease.Stands() || !stands() {
			return &jobs.Error{Kind: jobs.KindInfra,
				Msg: "what the task has changed in overlay " + name + " is not kept: " +
					"another process has taken over the overlay or the attempt",
				Hint: "berth overlay show " + name + " says who has it"}
		}
		return nil
	}
	if err := mayStill(); err != nil {
		return err
	}
	if err := hasLayer(l.Path, l.driver); err != nil {
		return fail(err)
	}
	if l.driver == jobs.DriverExt3 {
		clean, err := ext3Clean(l.Path)
		if err != nil {
			return fail(err)
		}
		if !clean { // a repaired image would pass its check and lack unwritten data
			return fail(errors.New("its image was not unmounted cleanly"))
		}
	}
	testStep("promote: sync")
	if err := errors.Join(syncLayer(l.driver, l.Path), disk.SyncDir(l.work)); err != nil {
		return fail(err)
	}
	if err := mayStill(); err != nil { // a sync may take long
		return err
	}
	testStep("promote: swap")
	if err := swap(l.Path, l.own); err != nil {
		return fail(err)
	}
	testStep("promote: swapped")
	if err := errors.Join(disk.SyncDir(l.dir), disk.SyncDir(l.work)); err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "overlay " + name + " has what the task has changed, and a crash of the node may undo that",
			Err: err}
	}
	testStep("promote: done")
	return nil
}

// settleSwap does the second half of a promotion or a restore that was killed
// between its two renames. The caller has the lease.
func settleSwap(dir, driver string) error {
	layer := layerPath(dir, driver)
	if _, err := os.Lstat(layer); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, work := range attempts(dir) {
		if _, err := os.Lstat(filepath.Join(work, dirOld)); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return err
		}
		if err := os.Rename(filepath.Join(work, filepath.Base(layer)), layer); err != nil {
			return err
		}
		return disk.SyncDir(dir)
	}
	from := filepath.Join(dir, dirRestored, filepath.Base(layer))
	if err := os.Rename(from, layer); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// attempts are the copies in an overlay's directory that attempts worked on.
func attempts(dir string) (out []string) {
	for _, p := range startingWith(dir, prefixAttempt) {
		if isAttempt(p) {
			out = append(out, p)
		}
	}
	return out
}

// startingWith are the paths in dir whose names begin so.
func startingWith(dir, prefix string) (out []string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			out = append(out, filepath.Join(dir, e.Name()))
		}
	}
	return out
}

// isAttempt tells whether berth has made that copy.
func isAttempt(work string) bool {
	fi, err := os.Lstat(work)
	if err != nil || !fi.IsDir() {
		return false
	}
	f, err := os.OpenFile(filepath.Join(work, fileAttempt), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	var c attemptCopy
	return json.NewDecoder(f).Decode(&c) == nil && prefixAttempt+c.Attempt == filepath.Base(work)
}

// clearAttempts removes what an attempt that was killed has left: its copy, and
// half made ones. The caller has the lease, so no other process works on them.
func clearAttempts(ctx context.Context, on jobs.Starter, dir string) error {
	var errs []error
	for _, work := range attempts(dir) {
		errs = append(errs, removeAttempt(ctx, on, work))
	}
	for _, p := range startingWith(dir, prefixTemp) {
		errs = append(errs, run.RemoveFiles(ctx, on, p))
	}
	return errors.Join(errs...)
}

// removeAttempt removes a copy. It gets the name of what is half made first:
// killed in the middle, it may have lost the file that tells whose it is.
func removeAttempt(ctx context.Context, on jobs.Starter, work string) error {
	gone := filepath.Join(filepath.Dir(work), prefixTemp+strings.TrimPrefix(filepath.Base(work), "."))
	if err := os.Rename(work, gone); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	testStep("remove: renamed")
	return run.RemoveFiles(ctx, on, gone)
}
