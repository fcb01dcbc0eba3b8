package judge

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"berth/internal/network/policy"
)

const get = "GET / HTTP/1.1\r\nHost: a.example\r\n"

// Requests to the name itself are passed on as they are.
func TestRequests(t *testing.T) {
	for name, text := range map[string]string{
		"one":               get + "\r\n",
		"HTTP/1.0":          "GET / HTTP/1.0\r\nHost: a.example\r\n\r\n",
		"in other words":    "GET / HTTP/1.1\r\nhOsT: A.EXAMPLE.:80\r\n\r\n",
		"a URL":             "GET http://a.example/x?y=http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"a URL with a port": "GET HTTP://a.example:80 HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"all of it":         "OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"two":               get + "\r\n" + get + "\r\n",
		"a body":            "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello" + get + "\r\n",
		"chunks":            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\nA\r\n0123456789\r\n0\r\n\r\n" + get + "\r\n",
		"much":              "PUT / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100_000) + get + "\r\n",
		"a long head":       get + "Cookie: " + strings.Repeat("x", 20_000) + "\r\n\r\n",
		"a body like one":   "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 37\r\n\r\nGET / HTTP/1.1\r\nHost: b.example\r\n\r\n..",
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var got bytes.Buffer
			w.serve["93.184.216.34:80"] = answering(&got, "HTTP/1.1 200 OK\r\n\r\n")
			in, wait := w.flow(w.judge("a.example"), "a.example", 80)
			answer := say(in, text)
			e := wait()
			if got.String() != text || answer != "HTTP/1.1 200 OK\r\n\r\n" || e.Decision != Allowed || e.Reason != "" || e.Opaque {
				t.Errorf("%s: %+v\nhas %q\nanswer %q", name, e, &got, answer)
			}
		})
	}
}

// What is not plainly a request to the name is refused: nothing leaves.
func TestBadRequests(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"the other host":           {"GET / HTTP/1.1\r\nHost: b.example\r\n\r\n", `request for \"b.example\"`},
		"a host below":             {"GET / HTTP/1.1\r\nHost: x.a.example\r\n\r\n", "403"},
		"another port":             {"GET / HTTP/1.1\r\nHost: a.example:81\r\n\r\n", "403"},
		"the address":              {"GET / HTTP/1.1\r\nHost: 93.184.216.34\r\n\r\n", "403"},
		"a host with a NUL":        {"GET / HTTP/1.1\r\nHost: a.example\x00\r\n\r\n", "control character"},
		"a host and more":          {"GET / HTTP/1.1\r\nHost: a.example b.example\r\n\r\n", "403"},
		"a list of hosts":          {"GET / HTTP/1.1\r\nHost: a.example,b.example\r\n\r\n", "403"},
		"a user":                   {"GET / HTTP/1.1\r\nHost: x@a.example\r\n\r\n", "403"},
		"two hosts":                {get + "Host: b.example\r\n\r\n", "2 Host lines"},
		"the same host twice":      {get + "Host: a.example\r\n\r\n", "2 Host lines"},
		"no host":                  {"GET / HTTP/1.1\r\n\r\n", "0 Host lines"},
		"no host, HTTP/1.0":        {"GET / HTTP/1.0\r\n\r\n", "0 Host lines"},
		"an empty host":            {"GET / HTTP/1.1\r\nHost:\r\n\r\n", "403"},
		"a URL of another host":    {"GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", `request for \"b.example\"`},
		"a host beside the URL":    {"GET http://a.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n", `request for \"b.example\"`},
		"a user in the URL":        {"GET http://a.example@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", "403"},
		"a backslash in the URL":   {"GET http://a.example\\@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", "403"},
		"a URL of https":           {"GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", "neither a path nor a URL"},
		"CONNECT":                  {"CONNECT a.example:80 HTTP/1.1\r\nHost: a.example\r\n\r\n", "CONNECT"},
		"HTTP/0.9":                 {"GET /\r\n", "does not begin with"},
		"HTTP/2":                   {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "not HTTP/1.0"},
		"a version":                {"GET / HTTP/1.2\r\nHost: a.example\r\n\r\n", "not HTTP/1.0"},
		"two blanks":               {"GET  / HTTP/1.1\r\nHost: a.example\r\n\r\n", "does not begin with"},
		"a tab":                    {"GET\t/ HTTP/1.1\r\nHost: a.example\r\n\r\n", "does not begin with"},
		"an empty line first":      {"\r\n" + get + "\r\n", "does not begin with"},
		"LF alone":                 {"GET / HTTP/1.1\nHost: a.example\n\n", "CR LF"},
		"LF alone in between":      {get + "X: y\nHost: b.example\r\n\r\n", "CR LF"},
		"CR alone":                 {get + "X: y\rHost: b.example\r\n\r\n", "control character"},
		"a folded line":            {get + " b.example\r\n\r\n", "folded"},
		"a folded first line":      {"GET / HTTP/1.1\r\n Host: b.example\r\nHost: a.example\r\n\r\n", "folded"},
		"a blank before the colon": {"GET / HTTP/1.1\r\nHost : a.example\r\n\r\n", "no header"},
		"a length and an encoding": {get + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "more than one length"},
		"two lengths":              {get + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", "more than one length"},
		"a list of lengths":        {get + "Content-Length: 5, 5\r\n\r\nhello", "Content-Length that is no number"},
		"a length of +5":           {get + "Content-Length: +5\r\n\r\nhello", "Content-Length that is no number"},
		"a length of -1":           {get + "Content-Length: -1\r\n\r\nhello", "Content-Length that is no number"},
		"an empty length":          {get + "Content-Length:\r\n\r\nhello", "Content-Length that is no number"},
		"two encodings":            {get + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "more than one length"},
		"another encoding":         {get + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "not chunked"},
		"an encoding of HTTP/1.0":  {"POST / HTTP/1.0\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "not chunked"},
		"a large head":             {get + "X: " + strings.Repeat("x", 40<<10) + "\r\n\r\n", "431"},
		"SSH":                      {"SSH-2.0-x\r\n", "does not begin with"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			in, wait := w.flow(w.judge("a.example", "b.example"), "a.example", 80)
			answer := say(in, c.text)
			e := wait()
			if !strings.Contains(answer, c.want) || !strings.HasPrefix(answer, "HTTP/1.1 4") || !strings.Contains(answer, `{"host":"a.example","port":80,`) {
				t.Errorf("%s: answer %q", name, answer)
			}
			if e.Decision != Denied || !strings.HasPrefix(e.Reason, "HTTP: ") || e.Up != 0 || len(w.dialled) > 0 {
				t.Errorf("%s: %+v, dialled %v", name, e, w.dialled)
			}
		})
	}
}

// What follows the first request is judged as it was; the connection ends there.
func TestLaterRequests(t *testing.T) {
	second := "GET /second HTTP/1.1\r\nHost: b.example\r\n\r\n"
	for name, c := range map[string]struct{ first, rest, want string }{
		"another host":    {get + "\r\n", second, `request for "b.example"`},
		"behind a body":   {"POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello", second, `request for "b.example"`},
		"behind chunks":   {get + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", second, `request for "b.example"`},
		"a trailer":       {get + "Transfer-Encoding: chunked\r\n\r\n0\r\n", "X: y\r\n\r\n", "a trailer"},
		"a long chunk":    {get + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello", "world\r\n0\r\n\r\n", "does not end where it says"},
		"a chunk of +5":   {get + "Transfer-Encoding: chunked\r\n\r\n", "+5\r\nhello\r\n0\r\n\r\n", "no plain number"},
		"a chunk of 0x5":  {get + "Transfer-Encoding: chunked\r\n\r\n", "0x5\r\nhello\r\n0\r\n\r\n", "no plain number"},
		"a chunk and ext": {get + "Transfer-Encoding: chunked\r\n\r\n", "5;a=b\r\nhello\r\n0\r\n\r\n", "no plain number"},
		"a huge chunk":    {get + "Transfer-Encoding: chunked\r\n\r\n", "ffffffffffffffff\r\n", "no plain number"},
		"a late upgrade":  {get + "\r\n", get + "Upgrade: websocket\r\n\r\n", "behind another request"},
		"garbage":         {get + "\r\n", "\x00\x01\x02\r\n", "control character"},
		"a half":          {get + "\r\n", "GET / HTTP", "ended within"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var got bytes.Buffer
			w.serve["93.184.216.34:80"] = answering(&got, "")
			in, wait := w.flow(w.judge("a.example", "b.example"), "a.example", 80)
			say(in, c.first+c.rest)
			e := wait()
			if !strings.HasPrefix(got.String(), c.first[:len(get)]) || strings.Contains(got.String(), "second") || len(got.String()) > len(c.first) {
				t.Errorf("%s: the server has %q", name, &got)
			}
			if !strings.Contains(e.Reason, c.want) || (e.Decision == Denied) != (name != "a half") || e.Up != int64(got.Len()) {
				t.Errorf("%s: %+v", name, e)
			}
		})
	}
}

// Behind a 101 nothing is read; behind any other answer requests are.
func TestUpgrade(t *testing.T) {
	const up = "GET /ws HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n"
	for name, c := range map[string]struct {
		answer, then, got string
		denied            bool
	}{
		"101":          {"HTTP/1.1 101 Switching Protocols\r\n\r\nframes", "\x81\x05hello", "\x81\x05hello", false},
		"103, then it": {"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 101 Switching Protocols\r\n\r\n", "\x81\x05hello", "\x81\x05hello", false},
		"200":          {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", get + "\r\n", get + "\r\n", false},
		"200, frames":  {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "\x81\x05hello\r\n", "", true},
		"200 and host": {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n", "", true},
		"no HTTP":      {"101 yes\r\n\r\n", "\x81\x05hello\r\n", "", true},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var got bytes.Buffer
			w.serve["93.184.216.34:80"] = func(conn net.Conn) {
				b := make([]byte, len(up))
				if _, err := io.ReadFull(conn, b); err != nil || string(b) != up {
					t.Errorf("%s: %q %v", name, b, err)
				}
				for _, part := range strings.SplitAfter(c.answer, "\n") {
					_, _ = io.WriteString(conn, part)
				}
				_, _ = io.Copy(&got, conn)
				_ = conn.Close()
			}
			in, wait := w.flow(w.judge("a.example", "b.example"), "a.example", 80)
			answer := say(in, up+c.then)
			e := wait()
			if got.String() != c.got || answer != c.answer || (e.Decision == Denied) != c.denied {
				t.Errorf("%s: %+v\nhas %q\nanswer %q", name, e, &got, answer)
			}
		})
	}
	// An upgrade to what could not be judged is not asked for.
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var got bytes.Buffer
		w.serve["93.184.216.34:80"] = answering(&got, "")
		in, wait := w.flow(w.judge("a.example"), "a.example", 80)
		say(in, get+"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n")
		if e := wait(); got.String() != get+"Connection: Upgrade, HTTP2-Settings\r\n\r\n" || e.Decision != Allowed {
			t.Errorf("%q, %+v", &got, e)
		}
	})
}

// A request to a proxy loses what is for the proxy, and is the only one of its flow.
func TestProxy(t *testing.T) {
	for name, c := range map[string]struct {
		host string
		port uint16
		text string
		want string // at the server
	}{
		"plain": {"a.example", 80,
			"GET http://a.example/x?y HTTP/1.1\r\nHost: a.example\r\nProxy-Connection: keep-alive\r\nProxy-Authorization: Basic eA==\r\nAccept: */*\r\n\r\n",
			"GET /x?y HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\nConnection: close\r\n\r\n"},
		"no path": {"a.example", 8080, "GET http://a.example:8080?y HTTP/1.1\r\nHost: a.example:8080\r\nUpgrade: websocket\r\n\r\n",
			"GET /?y HTTP/1.1\r\nHost: a.example:8080\r\nConnection: close\r\n\r\n"},
		"an address": {"93.184.216.34", 80, "POST http://93.184.216.34/ HTTP/1.1\r\nHost: 93.184.216.34\r\nContent-Length: 2\r\n\r\nok",
			"POST / HTTP/1.1\r\nHost: 93.184.216.34\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"},
		"a path":         {"a.example", 80, get + "\r\n", ""},
		"the other host": {"a.example", 80, "GET http://b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n", ""},
		"the other port": {"a.example", 8080, "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var got bytes.Buffer
			serve := func(conn net.Conn) {
				b := make([]byte, len(c.want))
				_, _ = io.ReadFull(conn, b)
				got.Write(b)
				_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
				_ = conn.Close()
			}
			w.serve["93.184.216.34:80"], w.serve["93.184.216.34:8080"] = serve, serve
			in, wait := w.begin(w.judge("a.example", "a.example:8080", "93.184.216.34"), Request{Host: c.host, Port: c.port, Proxy: true})
			answer := say(in, c.text+"GET http://b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n")
			e := wait()
			if got.String() != c.want || (e.Decision == Allowed) != (c.want != "") || strings.HasPrefix(answer, "HTTP/1.1 200") != (c.want != "") ||
				e.Up != int64(len(c.want)) {
				t.Errorf("%s: %+v\nhas %q\nanswer %q", name, e, &got, answer)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		in, wait := w.begin(w.judge("a.example"), Request{Host: "b.example", Port: 80, Proxy: true})
		answer := say(in, "GET http://b.example/ HTTP/1.1\r\nHost: b.example\r\n\r\n")
		if e := wait(); !strings.HasPrefix(answer, "HTTP/1.1 403") || !strings.Contains(answer, `"hint":"no rule allows it; the rule b.example would"`) ||
			e.Decision != Denied {
			t.Errorf("%+v, %q", e, answer)
		}
	})
}

// What is taken for a request is one for others, too, to the same host and of the
// same length.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{get + "\r\n", "POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhello",
		get + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", get + " b\r\n\r\n", "GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bufio.NewReaderSize(bytes.NewReader(b), 64)
		h, err := readHead(r)
		if err != nil {
			return
		}
		fl := &flow{name: "a.example", req: Request{Port: 80}}
		if err := h.judged(fl); err != nil {
			if r := (*refusal)(nil); !errors.As(err, &r) {
				t.Fatal(err)
			}
			return
		}
		var body bytes.Buffer
		bodyErr := h.copyBody(r, func(b []byte) error { body.Write(b); return nil })
		sent := h.bytes(false)
		o, err := http.ReadRequest(bufio.NewReader(io.MultiReader(bytes.NewReader(sent), &body)))
		if err != nil {
			return // net/http reads URLs, too
		}
		text, port, _ := splitHost(o.Host)
		if name, ok := policy.Normalise(text); !ok || name != "a.example" || port != 80 {
			t.Fatalf("%q is taken for a request to a.example, and is one to %q", b, o.Host)
		}
		if h.length >= 0 && o.ContentLength != h.length || h.length < 0 && (len(o.TransferEncoding) != 1 || o.TransferEncoding[0] != "chunked") {
			t.Fatalf("%q: length %d, others see %d %v", b, h.length, o.ContentLength, o.TransferEncoding)
		}
		n, err := io.Copy(io.Discard, o.Body)
		if bodyErr == nil && (err != nil || len(o.Trailer) > 0 || h.length >= 0 && n != h.length) {
			t.Fatalf("%q: the body is %d bytes, others read %d: %v", b, h.length, n, err)
		}
	})
}
