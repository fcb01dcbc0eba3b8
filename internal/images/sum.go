package images

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"berth/internal/sys/lease"
	"berth/jobs"
)

// Sum is the SHA-256 of a file, in hexadecimal.
func Sum(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	return sumOf(ctx, f, nil)
}

// sumOf reads a file, and tells how far it is.
func sumOf(ctx context.Context, f *os.File, progress func(done, of int64)) (string, error) {
	fi, err := f.Stat()
	if err != nil {
		return "", err
	}
	h := sha256.New()
	buf := make([]byte, 1<<20)
	var done int64
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		n, err := f.Read(buf)
		_, _ = h.Write(buf[:n])
		if done += int64(n); progress != nil {
			progress(done, fi.Size())
		}
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}

// slowFile is from which size on the reading of a file is spoken of.
const slowFile = 512 << 20

// Content is the SHA-256 of a file of the user's, outside the cache. It is read
// once on a machine since that was booted, as long as nothing touches it.
func (c *Cache) Content(ctx context.Context, path string) (string, error) {
	var progress func(done, of int64)
	if fi, err := os.Stat(path); err == nil && fi.Size() >= slowFile {
		var last time.Time
		progress = func(done, of int64) {
			if time.Since(last) < meterEvery {
				return
			}
			first := last.IsZero()
			if last = time.Now(); first {
				c.Progress(fmt.Sprintf("reading %s (%s) for its SHA-256, once on this machine", path, jobs.Bytes(of&^(1<<20-1))))
			}
			c.meter(Meter{What: "reading " + path, Done: done, Of: of})
		}
		defer c.meter(Meter{})
	}
	return content(ctx, c.Dir, path, progress)
}

// young is how recent a change may be for another one to leave the same times:
// some file systems count in seconds. A variable for tests.
var young = 2 * time.Second

// content is the SHA-256 of a file; dir is where what was read is remembered.
func content(ctx context.Context, dir, path string, progress func(done, of int64)) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	// Of the file that is read, whatever a link on the way to it leads to later.
	stamp, changed := openStamp(f)
	memo := ""
	if stamp != "" {
		memo = filepath.Join(dir, dirChecked, key(Hostname(), lease.BootID(), path, stamp))
		if b, err := readOwn(memo); err == nil && sumForm().Match(b) {
			return string(b), nil
		}
	}
	sum, err := sumOf(ctx, f, progress)
	if err != nil {
		return "", err
	}
	now, _ := openStamp(f)
	if there, _ := fileStamp(path); now != stamp || there != stamp {
		return "", &jobs.Error{Kind: jobs.KindAgain, Msg: "the image " + path + " was changed while it was read",
			Hint: "wait until whatever writes it is done, and try again"}
	}
	if memo != "" && time.Since(changed) > young {
		_ = (&Cache{Dir: dir}).replace(memo, []byte(sum)) // nothing but time depends on it
	}
	return sum, nil
}

// ContentWithin is the SHA-256 of a file, see [Cache.Content], or "" when it
// cannot be read in so short a time.
func ContentWithin(ctx context.Context, home, path string, most time.Duration) (string, error) {
	short, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	sum, err := content(short, Dir(home), path, nil)
	if err != nil && short.Err() != nil && ctx.Err() == nil {
		return "", nil
	}
	return sum, err
}

// Check looks on a node whether the file at path has this content. A file is
// read once on a machine since it was booted, as long as nothing touches it.
func Check(ctx context.Context, home, path, sum string) error {
	if !sumForm().MatchString(sum) {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("the job's record has no SHA-256 of its image: %.100q", sum)}
	}
	got, err := content(ctx, Dir(home), path, nil)
	if err != nil || got == sum {
		return err
	}
	hint := "it was replaced after the job was submitted: submit again"
	if filepath.Base(path) == sum+suffixSIF {
		hint = "submit again; berth image verify " + sum[:12] + " tells whether the cache is damaged"
	}
	return &jobs.Error{Kind: jobs.KindConfig, Msg: "the image " + path + " is not the one that was submitted",
		Err: fmt.Errorf("its SHA-256 is %s here on %s, and was %s", got, Hostname(), sum), Hint: hint}
}
