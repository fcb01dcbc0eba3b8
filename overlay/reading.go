package overlay

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"berth/jobs"
)

// Reading is an overlay whose files stay as they are until it is closed.
type Reading struct {
	Mark  Mark
	Bytes int64 // of the content of its files
	set   *Set
	src   *source
	tree  tree
}

// Read opens an overlay for a verb that reads it. Of an overlay that is in use,
// it opens the last snapshot.
func (s *Set) Read(ctx context.Context, name, verb string) (*Reading, error) {
	src, err := s.read(ctx, name, verb)
	if err != nil {
		return nil, err
	}
	t, err := s.survey(ctx, src)
	if err != nil {
		src.release()
		return nil, err
	}
	return &Reading{Mark: *src.mark, Bytes: t.content(), set: s, src: src, tree: t}, nil
}

// Close gives the overlay back.
func (r *Reading) Close() { r.src.release() }

// Apply makes a directory that holds the files of the overlay's image what a
// container shows: with the overlay's files, and without what it has deleted.
// Files of other ids are theirs where a user namespace has these.
func (r *Reading) Apply(ctx context.Context, root string, progress func(done, all int64)) error {
	_, err := r.set.through(ctx, r.src, r.tree, root, unpackApply, progress)
	return err
}

// Over has it read over an image that it may stand over, wherever that is now.
func (r *Reading) Over(img Image) error {
	if err := r.Mark.CheckImage(r.src.name, img); err != nil {
		return err
	}
	r.Mark.Image, r.Mark.ImageID, r.Mark.ImageSum = img.Path, img.ID, img.Sum
	return nil
}

// Digest tells the files of an overlay from others: it is the SHA-256, in hexadecimal digits, of
// the tar of them, without what is told of the overlay in front.
func (r *Reading) Digest(ctx context.Context) (string, error) {
	h := sha256.New()
	if err := r.set.writeFiles(ctx, r.src, r.tree, h, nil); err != nil {
		return "", unreadable(r.src.name, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// ImageSize is how many bytes the files of an overlay's image have when it is
// unpacked, or 0 where that cannot be told, and an error when it is not the
// image that the overlay belongs to.
func (r *Reading) ImageSize(ctx context.Context) (int64, error) {
	l, err := readImage(ctx, r.set.On, &r.Mark)
	if errors.Is(err, errNoLister) {
		return 0, nil
	}
	if err != nil {
		return 0, &jobs.Error{Kind: jobs.KindConfig, Msg: "the image of overlay " + r.src.name + ", " + r.Mark.Image, Err: err,
			Hint: "it has to be there, as it was: berth overlay show " + r.src.name}
	}
	return l.bytes(), nil
}
