package replica

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"berth/internal/sys/disk"
	"berth/internal/sys/pattern"
	"berth/jobs"
)

// ImagePath is where an image of this content stands in a state directory.
func ImagePath(home, sum string) string {
	return filepath.Join(home, "images", "sha256", sum+".sif")
}

// watched ends with its context, and tells how far it is.
type watched struct {
	ctx      context.Context
	r        io.Reader
	progress func(int64)
	n        int64
}

func (w *watched) Read(b []byte) (int, error) {
	if err := w.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := w.r.Read(b)
	if w.n += int64(n); w.progress != nil {
		w.progress(w.n)
	}
	return n, err
}

// tellEvery is how often it is told how far a copy is, in lines of their own.
const tellEvery = 5 * time.Second

// telling returns what tells, now and then, how much of something has gone to the site.
func (s *Site) telling(what string, size int64) func(done int64) {
	last := time.Now()
	return func(done int64) {
		if now := time.Now(); now.Sub(last) >= tellEvery {
			last = now
			s.c.Progress(fmt.Sprintf("copying %s to %s: %v of %v", what, s, jobs.Bytes(done&^(1<<20-1)), jobs.Bytes(size)))
		}
	}
}

const (
	wordHave = "have" // it stands there
	wordSend = "send" // it does not
)

// PutImage makes sure that a file of this machine stands there at to, which
// [ImagePath] has named by its content. It is sent once.
func (s *Site) PutImage(ctx context.Context, from, home, to string) error {
	sum := strings.TrimSuffix(filepath.Base(to), ".sif")
	if to != ImagePath(home, sum) {
		return fmt.Errorf("%s is not a place for an image", to)
	}
	f, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	r, w := io.Pipe()
	// Nothing is sent before the other side wants it.
	said := &answered{done: make(chan struct{})}
	go func() {
		in := bufio.NewReader(r)
		line, err := in.ReadString('\n')
		said.say(err == nil && strings.TrimSpace(line) == wordSend)
		_, _ = io.Copy(io.Discard, in)
	}()
	progress := s.telling(filepath.Base(from), fi.Size())
	err = s.node(ctx, imageTime, []string{verbImage, "--home", home, "--sum", sum, "--size", strconv.FormatInt(fi.Size(), 10)}, func() io.Reader {
		return &whenAsked{said: said, r: &watched{ctx: ctx, r: io.NewSectionReader(f, 0, fi.Size()), progress: progress}}
	}, w)
	_ = w.Close()
	said.say(false)
	if err != nil {
		return fmt.Errorf("copy the image %s to %s: %w", from, s, err)
	}
	return nil
}

// imageTime bounds the copy of an image.
const imageTime = 24 * time.Hour

// answered is whether the other side asks for an image; the first word counts.
type answered struct {
	once sync.Once
	done chan struct{}
	yes  bool
}

func (a *answered) say(yes bool) {
	a.once.Do(func() {
		a.yes = yes
		close(a.done)
	})
}

// whenAsked is an input that is empty unless the other side asks for it.
type whenAsked struct {
	said *answered
	r    io.Reader
}

func (w *whenAsked) Read(b []byte) (int, error) {
	if <-w.said.done; !w.said.yes {
		return 0, io.EOF
	}
	return w.r.Read(b)
}

var sha = pattern.Lazy(`^[0-9a-f]{64}$`)

// image is the far side of [Site.PutImage].
func (f *far) image(home, sum string, size int64) (err error) {
	st, err := at(home)
	if err != nil {
		return err
	}
	if !sha().MatchString(sum) || size <= 0 {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "that names no image"}
	}
	path := ImagePath(st.Home(), sum)
	if fi, err := os.Stat(path); err == nil && fi.Size() == size {
		_, err := io.WriteString(f.stdout, wordHave+"\n")
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	sweepParts(dir)
	tmp, err := os.CreateTemp(dir, partImage+"*")
	if err != nil {
		return err
	}
	defer func() {
		_ = tmp.Close()
		_ = os.Remove(tmp.Name())
	}()
	if _, err := io.WriteString(f.stdout, wordSend+"\n"); err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(tmp, h), io.LimitReader(f.stdin, size+1))
	if err == nil && (n != size || hex.EncodeToString(h.Sum(nil)) != sum) {
		err = errors.New("it did not arrive whole")
	}
	if err == nil {
		err = tmp.Sync()
	}
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "take the image", Err: err, Hint: "is there room? df -h " + dir}
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	return disk.SyncDir(dir)
}

const partImage = ".part-"

// sweepParts removes what a killed copy has left.
func sweepParts(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), partImage) && time.Since(fi.ModTime()) > 24*time.Hour {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
