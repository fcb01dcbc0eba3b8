package wire

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// pieces is a pipe behind a step: it has a piece of 1 KiB more after each pause.
type pieces struct {
	began time.Time
	pause time.Duration
	read  int // bytes
	most  int // pieces
	calls int
}

func (p *pieces) Read(b []byte) (int, error) {
	p.calls++
	for {
		there := min(int(time.Since(p.began)/p.pause), p.most)<<10 - p.read
		if there > 0 {
			n := min(there, len(b))
			p.read += n
			return n, nil
		}
		if p.read == p.most<<10 {
			return 0, io.EOF
		}
		time.Sleep(p.pause)
	}
}

func TestGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		many := &pieces{began: time.Now(), pause: 15 * time.Microsecond, most: 4096}
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, Gather(many), make([]byte, 64<<10))
		if took := time.Since(many.began); n != 4<<20 || err != nil || many.calls > 400 || took > 65*time.Millisecond {
			t.Errorf("%d bytes in %d reads, %v, %v", n, many.calls, took, err)
		}
		few := &pieces{began: time.Now(), pause: time.Millisecond, most: 1000}
		r, b := Gather(few), make([]byte, 64<<10)
		for i := 1; i <= few.most; i++ {
			if n, err := r.Read(b); n != 1<<10 || err != nil || time.Since(few.began) != time.Duration(i)*few.pause {
				t.Fatalf("question %d: %d bytes after %v, %v", i, n, time.Since(few.began), err)
			}
		}
	})
}
