package door

import (
	"net/netip"
	"strings"
	"testing"
)

func TestHTTP(t *testing.T) {
	const rest = " HTTP/1.1\r\nHost: x\r\n\r\n"
	for text, want := range map[string]opening{
		"CONNECT a.example:443" + rest:              {host: "a.example", port: 443, size: len("CONNECT a.example:443" + rest)},
		"CONNECT a.example:22 HTTP/1.0\r\n\r\nSSH-": {host: "a.example", port: 22, size: len("CONNECT a.example:22 HTTP/1.0\r\n\r\n")},
		"CONNECT [2001:db8::7]:443" + rest:          {host: "2001:db8::7", port: 443, size: len("CONNECT [2001:db8::7]:443" + rest)},
		"CONNECT 10.0.0.7:5432" + rest:              {host: "10.0.0.7", port: 5432, size: len("CONNECT 10.0.0.7:5432" + rest)},
		"GET http://a.example/x" + rest:             {host: "a.example", port: 80, proxy: true},
		"POST HTTP://A.example:8080?x HTTP/1.0\r\n": {host: "A.example", port: 8080, proxy: true},
		"GET http://[::1]" + rest:                   {host: "::1", port: 80, proxy: true},
	} {
		if o, more, err := readHTTP([]byte(text)); err != nil || more || o != want {
			t.Errorf("%q: %+v, more %v, %v", text, o, more, err)
		}
	}
	for _, text := range []string{
		"CONNECT a.example" + rest, "CONNECT a.example:" + rest, "CONNECT a.example:0" + rest, "CONNECT a.example:0443" + rest, "CONNECT a.example:+443" + rest,
		"CONNECT a.example:65536" + rest, "CONNECT :443" + rest, "CONNECT u@a.example:443" + rest, "CONNECT a%2eexample:443" + rest, "CONNECT 2001:db8::7:443" + rest,
		"CONNECT [::1%25lo]:443" + rest, "CONNECT [10.0.0.7]:443" + rest, "CONNECT [::1:443" + rest, "CONNECT ä.example:443" + rest, "CONNECT http://a.example:443" + rest,
		"CONNECT a.example:443/x" + rest, "CONNECT  a.example:443" + rest, "CONNECT\ta.example:443" + rest, "CONNECT a.example:443\n", "CONNECT a.example:443 HTTP/2.0\r\n",
		"CONNECT a.example:443 HTTP/1.1\r\nHost: x\n", "CONNECT a.example:443 HTTP/1.1\r\n folded: x\r\n", "CONNECT a.example:443 HTTP/1.1\r\nx\r\n", "CONNECT a.example:443 HTTP/1.1\r\nx: \x00",
		"GET / HTTP/1.1\r\n", "GET https://a.example/ HTTP/1.1\r\n", "GET ftp://a.example/ HTTP/1.1\r\n", "GET a.example:443 HTTP/1.1\r\n", "GET http://u:p@a.example/ HTTP/1.1\r\n", "GET http:///x HTTP/1.1\r\n",
		"PRI * HTTP/2.0\r\n", "SSH-2.0-OpenSSH_9.9\r\n", "GET\r\n", "\r\n", "A\x00",
	} {
		if o, more, err := readHTTP([]byte(text)); err == nil {
			t.Errorf("%q: %+v, more %v", text, o, more)
		}
	}
}

// What has begun in one way goes on in that way, however it comes in pieces, and
// nothing odd leaves as a host.
func FuzzHTTP(f *testing.F) {
	for _, s := range []string{
		"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n\x16\x03", "GET http://[::1]:80/x HTTP/1.0\r\n\r\n", "CONNECT [::1]:1 HTTP/1.0\r\nx\r\n\r\n", "A\r", "CONNECT a:1 HTTP/1.1\r\n\r",
	} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		o, more, err := readHTTP(b)
		check(t, b, o, more || err != nil)
		if at < 0 || at > len(b) {
			return
		}
		part, partMore, partErr := readHTTP(b[:at])
		switch {
		case partMore:
		case partErr != nil && (err == nil || err.Error() != partErr.Error()):
			t.Errorf("%q: %v, and the first %d bytes: %v", b, err, at, partErr)
		case partErr == nil && part != o:
			t.Errorf("%q: %+v, and the first %d bytes: %+v", b, o, at, part)
		}
	})
}

func FuzzSOCKS(f *testing.F) {
	for _, s := range []string{"\x05\x01\x00\x01\x7f\x00\x00\x01\x00\x50", "\x05\x01\x00\x03\x01a\x01\xbbx", "\x05\x01\x00\x04" + strings.Repeat("\x00", 15) + "\x01\x00\x16", "\x05\x03\x00\x01", "\x05\x02\x01\x00\x05"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		size, plain, more := readGreeting(b)
		if size > len(b) || more && (plain || size != 0) {
			t.Errorf("greeting %q: %d %v %v", b, size, plain, more)
		}
		o, more, reply := readSOCKS(b)
		check(t, b, o, more || reply != 0)
	})
}

func check(t *testing.T, b []byte, o opening, nothing bool) {
	t.Helper()
	if nothing {
		return
	}
	a, err := netip.ParseAddr(o.host)
	if o.port == 0 || o.size > len(b) || o.proxy && o.size != 0 || !isPlain(o.host) && (err != nil || !a.Is6() || a.Zone() != "") {
		t.Errorf("%q: %+v", b, o)
	}
	host, port, err := authority(join(o.host, o.port), 0)
	if err != nil || host != o.host || port != o.port {
		t.Errorf("%q: %+v is read as %s %d: %v", b, o, host, port, err)
	}
}
