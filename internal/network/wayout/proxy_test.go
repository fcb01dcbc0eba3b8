package wayout

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"testing"

	"berth/internal/network/judge"
)

// httpDoor is a proxy that takes CONNECT with a password, for a name that it resolves itself.
func httpDoor(c net.Conn) {
	r := bufio.NewReader(c)
	var head []string
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			break
		}
		head = append(head, line)
	}
	login := "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("ada:se cret"))
	switch all := strings.Join(head, "\n"); {
	case !strings.Contains(all, login):
		_, _ = io.WriteString(c, "HTTP/1.1 407 Proxy \x1b[1mAuthentication\r\n\r\n")
	case !strings.HasPrefix(all, "CONNECT a.example:80 HTTP/1.1\nHost: a.example:80\n"):
		_, _ = io.WriteString(c, "HTTP/1.1 403 Forbidden\r\n\r\n")
	default: // and the server speaks at once
		_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\nVia: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
	}
	for line := "x"; strings.TrimSpace(line) != "" && strings.HasPrefix(head[0], "CONNECT a"); { // the request
		if line, _ = r.ReadString('\n'); line == "" {
			return
		}
	}
}

// socksDoor is a proxy of SOCKS5 with a password (RFC 1928, 1929), likewise.
func socksDoor(c net.Conn) {
	read := func(n int) []byte {
		b := make([]byte, n)
		_, _ = io.ReadFull(c, b)
		return b
	}
	read(int(read(2)[1]))
	_, _ = c.Write([]byte{5, 2})
	user := string(read(int(read(2)[1])))
	password := string(read(int(read(1)[0])))
	if user != "ada" || password != "se cret" {
		_, _ = c.Write([]byte{1, 1})
		return
	}
	_, _ = c.Write([]byte{1, 0})
	head := read(4)
	if head[3] != 3 || string(read(int(read(1)[0]))) != "a.example" {
		_, _ = c.Write([]byte{5, 2, 0, 1, 0, 0, 0, 0, 0, 0})
		return
	}
	read(2)
	_, _ = c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
	hello200(c)
}

// A proxy is told the name, and the record says that it has resolved it.
func TestProxy(t *testing.T) {
	trusted := httptest.NewTLSServer(nil)
	defer trusted.Close()
	roots := x509.NewCertPool()
	roots.AddCert(trusted.Certificate())
	httpsDoor := func(c net.Conn) {
		s := tls.Server(c, trusted.TLS)
		httpDoor(s)
		_ = s.Close()
	}
	for scheme, door := range map[string]func(net.Conn){"http": httpDoor, "https": httpsDoor, "socks5h": socksDoor} {
		w := newWorld(t, door)
		for login, want := range map[string]string{"ada:se%20cret@": "hello", "ada:wrong@": "502"} {
			p, err := proxyOf(scheme+"://"+login+w.server.Addr().String(), roots)
			if err != nil {
				t.Fatal(err)
			}
			said, e := flow(t, judged(t, p, judge.Limits{}, "a.example"), "a.example", get)
			if !strings.Contains(said, want) || !e.ByName || e.Addr != "" || (want == "hello") != (e.Reason == "") || strings.Contains(e.Reason, "\x1b") {
				t.Errorf("%s %s: %q %+v", scheme, login, said, e)
			}
		}
		p, err := proxyOf(scheme+"://ada:se%20cret@"+w.server.Addr().String(), roots)
		if err != nil {
			t.Fatal(err)
		}
		if _, e := flow(t, judged(t, p, judge.Limits{}, "b.example"), "b.example", strings.ReplaceAll(get, "a.", "b.")); e.Reason == "" || e.Decision != judge.Allowed {
			t.Errorf("%s: %+v", scheme, e)
		}
	}
	// One that this machine does not trust hears of no name.
	w := newWorld(t, httpsDoor)
	p, err := Proxy("https://ada:se%20cret@" + w.server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, e := flow(t, judged(t, p, judge.Limits{}, "a.example"), "a.example", get); !strings.Contains(e.Reason, "TLS to the proxy: ") || !strings.Contains(e.Reason, "certificate") {
		t.Errorf("%+v", e)
	}
}
