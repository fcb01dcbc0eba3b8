package judge

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"testing"
)

// records splits the message of a ClientHello into records of so many bytes.
func records(b []byte, size int) (out []byte) {
	for message := b[5:]; len(message) > 0; {
		part := message[:min(size, len(message))]
		message = message[len(part):]
		out = append(append(out, 22, 3, 1, byte(len(part)>>8), byte(len(part))), part...)
	}
	return out
}

// craft makes a ClientHello with these extensions, whole.
func craft(extensions ...[]byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 1, 1, 0)
	all := bytes.Join(extensions, nil)
	body = append(append(body, byte(len(all)>>8), byte(len(all))), all...)
	message := append([]byte{1, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
	return append([]byte{22, 3, 1, byte(len(message) >> 8), byte(len(message))}, message...)
}

func extension(kind int, body []byte) []byte {
	return append([]byte{byte(kind >> 8), byte(kind), byte(len(body) >> 8), byte(len(body))}, body...)
}

// sni is the extension with names.
func sni(names ...string) []byte {
	var list []byte
	for _, n := range names {
		list = append(append(list, 0, byte(len(n)>>8), byte(len(n))), n...)
	}
	return extension(0, append([]byte{byte(len(list) >> 8), byte(len(list))}, list...))
}

func TestParseHello(t *testing.T) {
	plain := hello(t, "a.example", nil)
	ssl2 := []byte{0x80, 0x2e, 1, 0, 2}
	for name, c := range map[string]struct {
		b    []byte
		want string
		err  error
	}{
		"Go's":                  {plain, "a.example", nil},
		"Go's, TLS 1.2":         {hello(t, "a.example", func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), "a.example", nil},
		"with early bytes":      {append(bytes.Clone(plain), 20, 3, 3, 0, 1, 1), "a.example", nil},
		"records of 1 byte":     {records(plain, 1), "a.example", nil},
		"records of 100 bytes":  {records(plain, 100), "a.example", nil},
		"no name":               {hello(t, "", nil), "", nil},
		"an address":            {hello(t, "10.0.0.7", nil), "", nil},
		"crafted":               {craft(sni("a.example")), "a.example", nil},
		"an outer name of ECH":  {craft(extension(0xfe0d, make([]byte, 200)), sni("front.example")), "front.example", nil},
		"two names in a list":   {craft(sni("a.example", "b.example")), "", errBadHello},
		"two lists":             {craft(sni("a.example"), sni("b.example")), "", errBadHello},
		"an empty name":         {craft(sni("")), "", errBadHello},
		"an empty list":         {craft(sni()), "", errBadHello},
		"a short extension":     {craft([]byte{0, 0, 0, 9, 1}), "", errBadHello},
		"behind the extensions": {craft(append(sni("a.example"), 1)), "", errBadHello},
		"a second message":      {join(plain, plain[5:]), "", errBadHello},
		"64 KiB":                {records(bigHello(64<<10), 16<<10), "", errBigHello},
		"17 KiB":                {records(bigHello(17<<10), 1<<10), "", errBigHello},
		"an empty record":       {append([]byte{22, 3, 1, 0, 0}, plain...), "", errBadHello},
		"an alert between":      {append(records(plain[:100], 95), 21, 3, 1, 0, 2, 1, 0), "", errBadHello},
		"another message":       {[]byte{22, 3, 1, 0, 4, 2, 0, 0, 0}, "", errNoHello},
		"SSL 2":                 {ssl2, "", errNoHello},
		"HTTP":                  {[]byte("GET / HTTP/1.1\r\n"), "", errNoHello},
		"ssh":                   {[]byte("SSH-2.0-x\r\n"), "", errNoHello},
	} {
		got, done, err := parseHello(c.b)
		if got != c.want || !errors.Is(err, c.err) || done != (c.err == nil) {
			t.Errorf("%s: %q %t %v", name, got, done, err)
		}
	}
	// However it is cut, nothing is known before its end.
	for _, b := range [][]byte{plain, records(plain, 7)} {
		for n := 1; n < len(b); n++ {
			if name, done, err := parseHello(b[:n]); done || err != nil || name != "" {
				t.Fatalf("%d bytes: %q %t %v", n, name, done, err)
			}
		}
	}
}

// join puts more of a handshake into the record.
func join(b, more []byte) []byte {
	out := append(bytes.Clone(b), more...)
	out[3], out[4] = byte((len(out)-5)>>8), byte(len(out)-5)
	return out
}

func bigHello(n int) []byte {
	b := craft(sni("a.example"), extension(21, make([]byte, min(n, 60<<10))))
	size := 4 + n
	b[6], b[7], b[8] = byte(size>>16), byte(size>>8), byte(size)
	return append(b, make([]byte, n)...)
}

// Whatever is taken for a ClientHello has the name that a server sees in it.
func FuzzHello(f *testing.F) {
	f.Add(hello(f, "a.example", nil))
	f.Add(records(craft(sni("a.example")), 9))
	f.Add(craft(sni("a.example", "b.example")))
	f.Add(craft(extension(0xfe0d, nil), sni("a.example")))
	f.Fuzz(func(t *testing.T, b []byte) {
		name, done, err := parseHello(b)
		if err != nil && done || !done && name != "" {
			t.Fatalf("%q %t %v", name, done, err)
		}
		if !done {
			return
		}
		near, far := pair()
		go func() {
			_, _ = near.Write(b)
			_ = near.CloseWrite()
		}()
		go func() { _, _ = io.Copy(io.Discard, near) }() // alerts
		stop := errors.New("seen")
		_ = tls.Server(far, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			if h.ServerName != name {
				t.Errorf("it has %q, and a server sees %q", name, h.ServerName)
			}
			return nil, stop
		}}).Handshake()
		_ = far.Close()
	})
}
