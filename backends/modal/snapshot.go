package modal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"berth/backends/external/protocol"

	sdk "github.com/modal-labs/modal-client/go"
)

const (
	snapshotLimit = 8 * time.Minute // of a snapshot, of the 10 that a stop has
	exitLimit     = 45 * time.Second
)

// save makes an image of the sandbox's files and publishes it.
func (c *conn) save(ctx context.Context, b *box, r *protocol.Request, say func(format string, args ...any)) error {
	image, err := c.image(ctx, b, r, say)
	if err != nil {
		return err
	}
	return c.publish(ctx, image, r, true)
}

// image makes an image of the sandbox's files.
func (c *conn) image(ctx context.Context, b *box, r *protocol.Request, say func(format string, args ...any)) (*sdk.Image, error) {
	defer alive(say, "waiting for the snapshot of "+r.Name)()
	image, err := patiently(ctx, say, func() (*sdk.Image, error) {
		return b.SnapshotFilesystem(ctx, &sdk.SandboxSnapshotFilesystemParams{Timeout: snapshotLimit, TTL: sdk.NoExpiryTTL})
	})
	return image, trouble("take a snapshot of "+r.Name, err)
}

// publish gives an image the names by which it is found: the environment's, and the
// user's own for other machines where shared is set, or where the image before has
// it still. That one is deleted, unless it has other names, too.
func (c *conn) publish(ctx context.Context, image *sdk.Image, r *protocol.Request, shared bool) error {
	last, err := c.saved(ctx, published(r))
	if err != nil || last != nil && last.ImageID == image.ImageID {
		return err
	}
	var had []string // names
	if last != nil {
		if had, err = c.names(ctx, last.ImageID); err != nil {
			return err
		}
	}
	names := []string{published(r)}
	if name := r.Options[optSnapshot]; name != "" && (shared || slices.Contains(had, fullName(name))) {
		names = append(names, fullName(name))
	}
	for _, name := range names {
		if err := image.Publish(ctx, name, nil); err != nil {
			return trouble("publish the snapshot as "+name, err)
		}
	}
	if last == nil || slices.ContainsFunc(had, func(name string) bool { return !slices.Contains(names, name) }) {
		return nil
	}
	return c.forget(ctx, last.ImageID)
}

// saved finds the image that was published under a name; nil is none.
func (c *conn) saved(ctx context.Context, name string) (*sdk.Image, error) {
	image, err := c.Images.FromName(ctx, name, nil)
	var missing sdk.NotFoundError
	if errors.As(err, &missing) {
		return nil, nil
	}
	return image, trouble("look for the snapshot "+name, err)
}

// forget deletes an image, if it is there.
func (c *conn) forget(ctx context.Context, id string) error {
	err := trouble("delete the snapshot "+id, c.Images.Delete(ctx, id, nil))
	if is(err, protocol.NotFound) {
		return nil
	}
	return err
}

// last finds the image of the files of a sandbox that has ended, which Modal makes
// by itself where that was asked for; nil is none.
func (c *conn) last(ctx context.Context, b *box) (*sdk.Image, error) {
	if isV1(b.SandboxID) {
		return nil, nil
	}
	limit := exitLimit
	image, err := patiently(ctx, c.say, func() (*sdk.Image, error) {
		return b.ExperimentalGetExitSnapshot(ctx, &sdk.SandboxExperimentalGetExitSnapshotParams{Timeout: &limit})
	})
	var (
		missing sdk.NotFoundError
		invalid sdk.InvalidError
		failed  sdk.SnapshotCreationError
		late    sdk.TimeoutError
	)
	switch {
	case err == nil:
		return image, nil
	case errors.As(err, &missing), errors.As(err, &invalid), errors.As(err, &failed), errors.As(err, &late):
		return nil, nil // there is none: the published one counts
	}
	return nil, trouble(fmt.Sprintf("look for the last files of the sandbox %s", b.SandboxID), err)
}
