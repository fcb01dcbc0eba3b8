package judge

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
)

// A connection of this process's own is judged as a program's: the name, the addresses,
// the bounds. Its bytes are counted, and it is recorded when it is closed.
func TestDial(t *testing.T) {
	for host, want := range map[string]string{
		"a.example":    "",
		"b.example":    "refused",
		"in.example":   "refused", // which leads to a private address
		"gone.example": "unreached",
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.serve["93.184.216.34:443"] = func(c net.Conn) {
				_, _ = io.ReadFull(c, make([]byte, 4))
				_, _ = c.Write([]byte("answer"))
				_ = c.Close()
			}
			j := w.judge("a.example", "in.example", "gone.example")
			c, err := j.Dial(t.Context(), "p", host, 443)
			var no *RefusedError
			is := ""
			switch {
			case errors.As(err, &no):
				is = "refused"
			case err != nil:
				is = "unreached"
			}
			if is != want {
				t.Fatalf("%s: %v", host, err)
			}
			if want != "" {
				if len(w.entries) != 1 || (w.entries[0].Decision == Denied) != (want == "refused") {
					t.Errorf("%s: %+v", host, w.entries)
				}
				return
			}
			_, _ = c.Write([]byte("1234"))
			b, _ := io.ReadAll(c)
			if len(w.entries) != 0 {
				t.Errorf("recorded before its end: %+v", w.entries)
			}
			_ = c.Close()
			_ = c.Close()
			if string(b) != "answer" || len(w.entries) != 1 || w.entries[0].Up != 4 || w.entries[0].Down != 6 || w.entries[0].Decision != Allowed || w.entries[0].Phase != "p" {
				t.Errorf("%q, %+v", b, w.entries)
			}
			if n := j.flows.Load(); n != 0 {
				t.Errorf("%d flows are open", n)
			}
		})
	}
}
