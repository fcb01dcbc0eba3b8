package doctor

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A node says by which way its connections leave: itself, a proxy, else the login node.
func TestWay(t *testing.T) {
	listen := func(serve func(net.Conn)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				serve(c)
				_ = c.Close()
			}
		}()
		return l.Addr().String()
	}
	there := listen(func(net.Conn) {})
	proxy := listen(func(c net.Conn) {
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	})
	shut, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone := shut.Addr().String()
	_ = shut.Close()
	for name, c := range map[string]struct {
		where, contact, proxy, via string
		status                     Status
		want                       string
	}{
		"not a node":      {"here", there, "", "", "", ""},
		"from here":       {"node", there, "", "", OK, "node"},
		"by a proxy":      {"node", gone, "http://" + proxy, "", Warn, "proxy:http://" + proxy},
		"as configured":   {"node", gone, "http://" + proxy, "proxy:http://" + proxy, OK, "proxy:http://" + proxy},
		"with a password": {"node", gone, "http://ada:secret@" + proxy, "", Warn, ""},
		"in no way":       {"node", gone, "http://" + gone, "", Warn, "login"},
		"in no way, said": {"node", gone, "", "login", OK, "login"},
		"no port in it":   {"node", "::1:2:3", "", "", Skip, ""},
	} {
		w := Where{Where: c.where, Contact: c.contact, Getenv: func(n string) string {
			if n == "http_proxy" {
				return c.proxy
			}
			return ""
		}}
		w.Profile.Via = c.via
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		got := checkWay(ctx, &look{Where: w})
		cancel()
		if c.status == "" {
			if got != nil {
				t.Errorf("%s: %+v", name, got)
			}
			continue
		}
		if len(got) != 1 || got[0].Status != c.status || got[0].Data["via"] != c.want || strings.Contains(got[0].Why+got[0].Do, "secret") {
			t.Errorf("%s: %+v", name, got)
		}
	}
	p := Profile("x", &Place{}, &Place{Host: "n1", Findings: []Finding{with(Finding{ID: "way"}, "via", "login")}})
	if !strings.Contains(p, "\n[network]\nvia = \"login\"\n") {
		t.Error(p)
	}
}
