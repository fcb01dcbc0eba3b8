package mux

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"berth/internal/link/trunk"

	"golang.org/x/sys/unix"
)

// How much data goes through files. What comes in a trickle, and the beginning
// of all else, goes as bytes: a file of a network's file system takes longer.
const (
	dirSpool    = "io.spool" // in the environment's directory
	chunkSize   = 32 << 20
	inlineMost  = 256 << 10 // as bytes before files begin
	inlineSize  = 64 << 10
	chunkBuffer = 1 << 20
	maxChunks   = 3 // that the other side has not taken
	idleTime    = 50 * time.Millisecond
	staleTime   = time.Hour
	nameTime    = 10 * time.Second // for a file's name to be seen by the other machine
)

// newSpoolID names the files of one transfer.
func newSpoolID() string { return rand.Text() }

// checkSpoolID tells an id from a path.
func checkSpoolID(id string) error {
	if len(id) < 16 || len(id) > 64 || strings.Trim(id, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") != "" {
		return fmt.Errorf("%q is no name of a transfer", id)
	}
	return nil
}

// spool is where the files of one transfer are.
type spool struct {
	dir, id string
	used    atomic.Bool
}

func (s *spool) path(n int) string {
	s.used.Store(true)
	return filepath.Join(s.dir, s.id+"."+strconv.Itoa(n))
}

// clean removes what is left, if there ever was anything.
func (s *spool) clean() {
	if !s.used.Load() {
		return
	}
	left, _ := filepath.Glob(filepath.Join(s.dir, s.id+".*")) // an id has nothing special
	for _, p := range left {
		_ = os.Remove(p)
	}
}

// sweepSpool removes files that were not taken for long: their transfer was
// killed on both sides.
func sweepSpool(dir string, now time.Time) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		id, _, ok := strings.Cut(e.Name(), ".")
		if fi, err := e.Info(); err == nil && ok && checkSpoolID(id) == nil && fi.Mode().IsRegular() && now.Sub(fi.ModTime()) > staleTime {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// source is where the bytes to send come from. A read returns errIdle when
// nothing came for a while, if it is asked to.
type source interface {
	read(p []byte, idle bool) (int, error)
}

var errIdle = errors.New("nothing came for a while")

// sending sends what a source holds: a little as bytes, much through files.
type sending struct {
	spool *spool
	out   *records
	taken chan struct{} // one for each file that the other side is done with
	gone  <-chan struct{}
	sent  int
	done  int // of them, that the other side was seen to be done with
}

// run sends all, up to the source's end.
func (s *sending) run(from source) error {
	buf := make([]byte, inlineSize)
	budget := inlineMost
	for {
		asked := time.Now()
		n, err := from.read(buf, false)
		if n > 0 {
			// A pause is one of the source, not of who takes it from here.
			if time.Since(asked) > idleTime {
				budget = inlineMost
			}
			if err := s.out.put(recBytes, int64(n), buf[:n]); err != nil {
				return err
			}
			budget -= n
		}
		if err == nil && budget <= 0 {
			if len(buf) < chunkBuffer {
				buf = make([]byte, chunkBuffer)
			}
			err = s.files(from, buf)
			buf = buf[:inlineSize]
			budget = inlineMost
		}
		switch {
		case errors.Is(err, io.EOF):
			return s.out.put(recOver, 0, nil)
		case err != nil:
			return err
		}
	}
}

// files sends files until the source pauses. At its end the error is io.EOF.
func (s *sending) files(from source, buf []byte) error {
	buf = buf[:cap(buf)]
	for {
		if s.sent-s.done >= maxChunks { // a pause sends none, so it must not count one as taken
			select {
			case <-s.taken:
				s.done++
			case <-s.gone:
				return trunk.ErrOver
			}
		}
		size, err := s.file(from, buf)
		if size > 0 {
			s.sent++
			if perr := s.out.put(recChunk, size, nil); perr != nil {
				return perr
			}
		}
		if errors.Is(err, errIdle) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// file writes the next file.
func (s *sending) file(from source, buf []byte) (size int64, err error) {
	path := s.spool.path(s.sent)
	if err := os.Mkdir(s.spool.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return 0, err
	}
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return 0, err
	}
	for size < chunkSize && err == nil {
		var n int
		n, err = from.read(buf[:min(int64(len(buf)), chunkSize-size)], true)
		if n > 0 {
			size += int64(n)
			if _, werr := f.Write(buf[:n]); werr != nil {
				_ = f.Close()
				return 0, werr
			}
		}
	}
	// On a network's file system, closing is what the other machine sees.
	if cerr := f.Close(); cerr != nil {
		return 0, cerr
	}
	if size == 0 {
		_ = os.Remove(path + ".new")
		return 0, err
	}
	if rerr := os.Rename(path+".new", path); rerr != nil {
		return 0, rerr
	}
	return size, err
}

// receiving takes the files that the other side has made.
type receiving struct {
	spool *spool
	n     int
}

// chunk writes the next file to w, and removes it.
func (r *receiving) chunk(w io.Writer, size int64, buf []byte) error {
	path := r.spool.path(r.n)
	r.n++
	f, err := openChunk(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_ = os.Remove(path)
	fi, err := f.Stat()
	if err == nil && (!fi.Mode().IsRegular() || fi.Size() != size) {
		err = fmt.Errorf("%s is a file of %d bytes, and not of %d", path, fi.Size(), size)
	}
	if err != nil {
		return err
	}
	// The wrappers hide what io.Copy would use instead of the buffer.
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, struct{ io.Reader }{f}, buf)
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// openChunk opens a file of the other machine, whose name may be seen late.
func openChunk(path string) (*os.File, error) {
	for until := time.Now().Add(nameTime); ; time.Sleep(20 * time.Millisecond) {
		f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if !errors.Is(err, fs.ErrNotExist) || time.Now().After(until) {
			return f, err
		}
	}
}
