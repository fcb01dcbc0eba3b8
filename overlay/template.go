package overlay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"berth/internal/sys/disk"
	"berth/jobs"

	"golang.org/x/sys/unix"
)

// A template is a new ext3 image that was made once for its size and number of
// inodes. It is kept packed: the blocks that are not zero, each with its place,
// compressed. So it takes a few hundred KiB, does not depend on a file system
// that keeps holes or finds them again, and one that was cut off or changed is
// noticed by its checksum.
//
// The packed form is gzip of: templateMagic, the image's size (8 bytes, little
// endian), and for each run of blocks its place and length (8 bytes each) and
// its bytes; a run of length 0 at the image's end closes it.

const (
	templateMagic = "berth ext3 2\n"
	templateBlock = 4096
	templateRun   = 1 << 20 // the longest run
)

// templateFile names the template for what shapes an image.
func templateFile(dir string, size jobs.Bytes, inodes int64) string {
	return filepath.Join(dir, fmt.Sprintf("%d-%d-%d-%d.gz", size, inodes, os.Getuid(), os.Getgid()))
}

// fromTemplate makes the image at path, and the template when there is none.
func fromTemplate(ctx context.Context, on jobs.Starter, path, dir string, size jobs.Bytes, inodes int64) error {
	file := templateFile(dir, size, inodes)
	err := unpackTemplate(file, path, size)
	if err == nil || ctx.Err() != nil {
		return err
	}
	if !errors.Is(err, fs.ErrNotExist) { // damaged, of another version, or no file at all
		if err := disk.RemoveTree(file); err != nil {
			return err
		}
	}
	if err := packTemplate(ctx, on, file, size, inodes); err != nil {
		return err
	}
	return unpackTemplate(file, path, size)
}

// packTemplate makes a template. Whoever makes the same one at the same time
// makes it as good.
func packTemplate(ctx context.Context, on jobs.Starter, file string, size jobs.Bytes, inodes int64) (err error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	// On the machine's own disk or memory: on some network file systems the
	// holes of a sparse image cannot be found again.
	temp, err := os.MkdirTemp("", "berth-ext3-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, disk.RemoveTree(temp)) }()
	img := filepath.Join(temp, fileImage)
	if err := mkfs(ctx, on, img, size, inodes); err != nil {
		return err
	}
	in, err := os.Open(img)
	if err != nil {
		return err
	}
	defer in.Close()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if err := pack(z, in, int64(size)); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return disk.Replace(file, packed.Bytes(), 0o600)
}

// pack writes what of an image is not zero.
func pack(w io.Writer, img *os.File, size int64) error {
	head := append([]byte(templateMagic), binary.LittleEndian.AppendUint64(nil, uint64(size))...)
	if _, err := w.Write(head); err != nil {
		return err
	}
	run := func(at int64, b []byte) error {
		head := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(at)), uint64(len(b)))
		if _, err := w.Write(head); err != nil {
			return err
		}
		_, err := w.Write(b)
		return err
	}
	err := dataRuns(img, size, run)
	if err != nil {
		return err
	}
	return run(size, nil)
}

// dataRuns gives do what of the first size bytes of a file is not zero, in
// runs of whole blocks.
func dataRuns(f *os.File, size int64, do func(at int64, b []byte) error) error {
	buf, zero := make([]byte, templateRun), make([]byte, templateBlock)
	for at := int64(0); at < size; {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // only a hole is left
		}
		if err != nil {
			data = at
		}
		at = data / templateBlock * templateBlock
		n, err := f.ReadAt(buf[:min(templateRun, size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if n == 0 {
			return nil
		}
		for i := 0; i < n; {
			end := i
			for end < n && !bytes.Equal(buf[end:min(end+templateBlock, n)], zero[:min(templateBlock, n-end)]) {
				end = min(end+templateBlock, n)
			}
			if end > i {
				if err := do(at+int64(i), buf[i:end]); err != nil {
					return err
				}
			}
			i = end + templateBlock
		}
		at += int64(n)
	}
	return nil
}

// unpackTemplate makes the image at path from a template, in one rename.
func unpackTemplate(file, path string, size jobs.Bytes) (err error) {
	in, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	tmp := path + ".new"
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	out, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = unpack(out, in, int64(size))
	if cerr := out.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return nil
}

var errTemplate = errors.New("the template of ext3 images is damaged")

func unpack(out *os.File, in io.Reader, size int64) error {
	if err := out.Truncate(size); err != nil {
		return err
	}
	z, err := gzip.NewReader(bufio.NewReaderSize(in, 1<<16))
	if err != nil {
		return fmt.Errorf("%w: %w", errTemplate, err)
	}
	head := make([]byte, len(templateMagic)+8)
	if _, err := io.ReadFull(z, head); err != nil || string(head[:len(templateMagic)]) != templateMagic {
		return errTemplate
	}
	if int64(binary.LittleEndian.Uint64(head[len(templateMagic):])) != size {
		return errTemplate
	}
	buf := make([]byte, templateRun)
	for {
		if _, err := io.ReadFull(z, buf[:16]); err != nil {
			return fmt.Errorf("%w: %w", errTemplate, err)
		}
		at, n := binary.LittleEndian.Uint64(buf), binary.LittleEndian.Uint64(buf[8:])
		if n > templateRun || at > uint64(size) || at+n > uint64(size) {
			return errTemplate
		}
		if n == 0 {
			break
		}
		if _, err := io.ReadFull(z, buf[:n]); err != nil {
			return fmt.Errorf("%w: %w", errTemplate, err)
		}
		if _, err := out.WriteAt(buf[:n], int64(at)); err != nil {
			return err
		}
	}
	// The checksum stands behind the last byte.
	if n, err := io.Copy(io.Discard, z); err != nil || n > 0 {
		return fmt.Errorf("%w: %w", errTemplate, err)
	}
	return nil
}
