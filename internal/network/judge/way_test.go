package judge

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"berth/internal/network/policy"
)

// What resolves where it connects is asked for a name that is allowed, and for no other
// one; an address is judged all the same.
func TestDialName(t *testing.T) {
	for host, want := range map[string]string{
		"a.example":     "allow by name a.example:80",
		"b.example":     "deny ",
		"93.184.216.34": "allow 93.184.216.34:80",
		"10.0.0.7":      "deny ",
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var got bytes.Buffer
			server := answering(&got, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			w.serve["93.184.216.34:80"] = server
			dialled := ""
			j := w.judge("a.example", "93.184.216.34:80")
			j.o.DialName = func(_ context.Context, host string, port uint16) (net.Conn, error) {
				dialled = net.JoinHostPort(host, strconv.Itoa(int(port)))
				near, far := pair()
				w.running.Go(func() { server(far) })
				return near, nil
			}
			c, wait := w.flow(j, host, 80)
			say(c, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
			e := wait()
			is := e.Decision + " " + strings.Join(w.dialled, " ") + dialled
			if e.ByName {
				is = e.Decision + " by name " + dialled
			}
			if is != want || len(w.asked) > 0 {
				t.Errorf("%s: %q, not %q; resolved %q, %+v", host, is, want, w.asked, e)
			}
		})
	}
}

// A flow waits until there is a way out, and is told when there is none.
func TestReady(t *testing.T) {
	for name, comes := range map[string]bool{"it comes": true, "it does not": false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var got bytes.Buffer
			w.serve["93.184.216.34:80"] = answering(&got, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			j := w.judge("a.example")
			way := make(chan struct{})
			j.o.Ready = func(ctx context.Context) error {
				select {
				case <-way:
					return nil
				case <-ctx.Done():
					return noWay{}
				}
			}
			if comes {
				time.AfterFunc(29*time.Second, func() { close(way) })
			}
			var told policy.Decision
			c, wait := w.begin(j, Request{Host: "a.example", Port: 80, Answer: func(d policy.Decision) { told = d }})
			said := say(c, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
			e := wait()
			if comes && (told.NoWay || !told.Allow || !strings.Contains(said, "200 OK") || e.Reason != "") {
				t.Errorf("%s: %+v %q %+v", name, told, said, e)
			}
			if !comes && (!told.NoWay || told.Allow || told.Hint != "no relay" || e.Reason != "no relay" || e.Decision != Allowed || len(w.asked) > 0) {
				t.Errorf("%s: %+v %q %+v", name, told, said, e)
			}
		})
	}
}

// The program reads it, where no door has told it; also of a way that is lost meanwhile.
func TestNoWayAnswer(t *testing.T) {
	for name, change := range map[string]func(w *world, o *Options){
		"none": func(_ *world, o *Options) { o.Ready = func(context.Context) error { return noWay{} } },
		"lost before the look-up": func(w *world, _ *Options) {
			w.resolve = func(string) ([]netip.Addr, error) { return nil, noWay{} }
		},
		"lost before it connects": func(_ *world, o *Options) {
			o.Dial = func(context.Context, string, netip.AddrPort) (net.Conn, error) { return nil, noWay{} }
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			j := w.judge("a.example")
			change(w, &j.o)
			c, wait := w.flow(j, "a.example", 80)
			said := say(c, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
			if e := wait(); e.Reason != "no relay" || !strings.HasPrefix(said, "HTTP/1.1 503 ") || !strings.Contains(said, `"hint":"no relay"`) {
				t.Errorf("%s: %q %+v", name, said, e)
			}
		})
	}
}

type noWay struct{}

func (noWay) Error() string        { return "no relay" }
func (noWay) Is(target error) bool { return target == ErrNoWay }

// Dial is told whether a rule has opened an address that is refused otherwise.
func TestOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := w.judge("a.example:25", "10.0.0.7:25", "in.example:25")
		opened := map[string]bool{}
		j.o.Dial = func(ctx context.Context, _ string, to netip.AddrPort) (net.Conn, error) {
			opened[to.Addr().String()] = Opened(ctx)
			near, far := pair()
			_ = far.Close()
			return near, nil
		}
		for _, host := range []string{"a.example", "10.0.0.7", "in.example"} {
			c, wait := w.flow(j, host, 25)
			say(c, "")
			wait()
		}
		if len(opened) != 2 || opened["93.184.216.34"] || !opened["10.0.0.7"] {
			t.Error(opened)
		}
	})
}
