package wire

import (
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A window grows where the link is what its reader waits for, up to what all may grow by, and
// gives that back.
func TestWindowGrows(t *testing.T) {
	const trip = 10 * time.Millisecond
	for name, c := range map[string]struct {
		rate   int // bytes a second that the reader takes
		growth int
		want   int
	}{
		"a fast reader":         {1 << 30, 32 << 20, MaxWindow},
		"a slow reader":         {512 << 10, 32 << 20, Window},
		"little is left":        {1 << 30, Window, 2 * Window},
		"nothing is left":       {1 << 30, 0, Window},
		"an odd number is left": {1 << 30, 1000, Window + 1000},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewGrowth(c.growth)
				b, s := NewInbox(Stdin), NewSender(NewWriter(io.Discard), Stdin, 1)
				b.Widen(g)
				s.Widen()
				go func() { // what has credit is there half of a round trip later, as much as there is
					for {
						n, err := s.take(MaxData)
						if err != nil {
							return
						}
						time.AfterFunc(trip/2, func() {
							if err := b.Put(make([]byte, n)); err != nil {
								t.Error(err)
							}
						})
					}
				}()
				grant := func(n int) {
					time.AfterFunc(trip/2, func() {
						if err := s.Grant(n); err != nil {
							t.Error(err)
						}
					})
				}
				buf := make([]byte, 64<<10)
				for began := time.Now(); time.Since(began) < time.Second/2; {
					n, err := b.Read(buf, grant)
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Duration(n) * time.Second / time.Duration(c.rate))
				}
				if b.window != c.want || g.left != c.growth-(c.want-Window) {
					t.Errorf("a window of %d with %d left, want %d", b.window, g.left, c.want)
				}
				s.Stop()
				synctest.Wait()
				b.Fail()
				b.Fail()
				if g.left != c.growth {
					t.Errorf("%d given back, want %d", g.left, c.growth)
				}
				time.Sleep(time.Second)
			})
		})
	}
}

// A sender that does not know of windows that grow refuses more credit than it had, and
// one that does refuses what is above all of them.
func TestWidened(t *testing.T) {
	w := NewWriter(io.Discard)
	if err := NewSender(w, Stdin, 1).Grant(1); err == nil {
		t.Error("credit for what was never sent was taken")
	}
	s := NewSender(w, Stdin, 1)
	s.Widen()
	if err := s.Grant(MaxWindow - Window); err != nil {
		t.Error(err)
	}
	if err := s.Grant(1); err == nil {
		t.Error("a window above all was taken")
	}
}
