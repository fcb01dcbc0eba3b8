package door

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"berth/internal/sys/leaks"

	"golang.org/x/net/proxy"
	"golang.org/x/sys/unix"
)

// The test program is the one that is dialled with, too.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "dial" {
		os.Exit(DialMain(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	leaks.Main(m)
}

// serve has a door with a flow until the test ends.
func serve(t *testing.T, flow func(Request, Conn), change ...func(*Door)) *Door {
	t.Helper()
	d, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range change {
		c(d)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Serve(flow)
	}()
	t.Cleanup(func() {
		d.Close()
		<-done
	})
	return d
}

func connect(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Error(err)
		panic(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// say returns all that is answered to text. The program's direction stays open.
func say(t *testing.T, addr, text string) string {
	t.Helper()
	c := connect(t, addr)
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, text); err != nil {
		t.Error(err)
	}
	b, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("%q: %v", text, err)
	}
	return string(b)
}

// decided is a judge that allows what has "allowed" in its name and leads all of it to one server.
func decided(server string) func(Request, Conn) {
	return func(r Request, c Conn) {
		switch {
		case r.Proxy:
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"+r.Host)
			return
		case strings.Contains(r.Host, "gone"):
			r.Answer(Decision{Verdict: Unavailable, Hint: "later"})
		case strings.Contains(r.Host, "broken"):
		case !strings.Contains(r.Host, "allowed"):
			r.Answer(Decision{Rule: "*.example", Hint: "no\r\nway"})
		default:
			r.Answer(Decision{Verdict: Allowed})
			to, err := net.Dial("tcp", server)
			if err != nil {
				return
			}
			defer func() { _ = to.Close() }()
			both(c, to.(*net.TCPConn))
		}
		_ = c.Close()
	}
}

// both copies both ways until both have ended.
func both(a, b Conn) {
	var up sync.WaitGroup
	up.Go(func() {
		_, _ = io.Copy(b, a)
		_ = b.CloseWrite()
	})
	_, _ = io.Copy(a, b)
	_ = a.CloseWrite()
	up.Wait()
}

func TestWords(t *testing.T) {
	d := serve(t, decided(""))
	const refused = `{"host":"no.example","port":443,"rule":"*.example","hint":"no\r\nway"}` + "\n"
	socks := func(code byte) string { return "\x05\x00" + string(socksReply(code)) }
	for text, want := range map[string]string{
		"CONNECT no.example:443 HTTP/1.1\r\n\r\nearly": "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nX-Berth-Denied: *.example; no??way\r\n" +
			fmt.Sprintf("Content-Length: %d\r\nConnection: close\r\n\r\n", len(refused)) + refused,
		"CONNECT gone.example:443 HTTP/1.1\r\n\r\n":    "HTTP/1.1 503 Service Unavailable\r\n*" + `{"host":"gone.example","port":443,"hint":"later"}` + "\n",
		"CONNECT broken.example:443 HTTP/1.1\r\n\r\n":  "HTTP/1.1 503 *\"hint\":\"the way to the judge has ended\"}\n",
		"GET http://any.example/ HTTP/1.1\r\n\r\n":     "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nany.example",
		"GET / HTTP/1.1\r\n\r\n":                       "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n*{\"hint\":\"this is berth's proxy*}\n",
		"CONNECT 2130706433:x HTTP/1.1\r\n\r\n":        "HTTP/1.1 400 *not HOST:PORT*",
		"\x16\x03\x01\x02\x00\x01":                     "HTTP/1.1 400 *",
		"\x04\x01\x00\x50\x7f\x00\x00\x01\x00":         "HTTP/1.1 400 *",
		"CONNECT a:1 HTTP/1.1\r\n" + many:              "HTTP/1.1 431 *",
		"CONNECT no.example:1 HTTP/1.1\r\n\r\n" + many: "HTTP/1.1 403 *\"hint\":\"no\\r\\nway\"}\n",
		"\x05\x01\x02": "\x05\xff",
		"\x05\x00":     "\x05\xff",
		"\x05\x01\x00\x05\x01\x00\x03\x01a\x01\xbb":         socks(socksForbidden),
		"\x05\x01\x00\x05\x01\x00\x03\x04gone\x01\xbb":      socks(socksFailed),
		"\x05\x01\x00\x05\x01\x00\x03\x06broken\x01\xbb":    socks(socksFailed),
		"\x05\x01\x00\x05\x01\x00\x01\x0a\x00\x00\x07\x00P": socks(socksForbidden),
		"\x05\x01\x00\x05\x02\x00\x01\x00\x00\x00\x00\x00P": socks(socksNoCommand),
		"\x05\x01\x00\x05\x03\x00\x01\x00\x00\x00\x00\x00P": socks(socksNoCommand),
		"\x05\x01\x00\x05\x01\x00\x02\x00\x00\x00":          socks(socksNoAddresses),
		"\x05\x01\x00\x05\x01\x00\x03\x02a \x01\xbb":        socks(socksFailed),
		"\x05\x01\x00\x05\x01\x00\x03\x01a\x00\x00":         socks(socksFailed),
		"\x05\x01\x00\x04\x01":                              socks(socksFailed),
	} {
		got := say(t, d.Addr(), text)
		first, last, any := strings.Cut(want, "*")
		if mid, end, ok := strings.Cut(last, "*"); ok && !strings.HasPrefix(want, "HTTP/1.1 403") {
			if !strings.HasPrefix(got, first) || !strings.Contains(got, mid) || !strings.HasSuffix(got, end) {
				t.Errorf("%q: %q", text, got)
			}
		} else if got != want && (!any || !strings.HasPrefix(got, first) || !strings.HasSuffix(got, last)) {
			t.Errorf("%q: %q", text, got)
		}
	}
}

var many = strings.Repeat("x: "+strings.Repeat("y", 1000)+"\r\n", 70)

// Each way in gives the host and port as they were meant, and the bytes behind it.
func TestRequests(t *testing.T) {
	d := serve(t, func(r Request, c Conn) {
		if r.Answer != nil {
			_, err := c.Write([]byte("too early"))
			r.Answer(Decision{Verdict: Allowed})
			r.Answer(Decision{Hint: "a second answer"})
			if err == nil {
				return
			}
		}
		b, _ := io.ReadAll(c)
		_, _ = fmt.Fprintf(c, "%s %d %v %s", r.Host, r.Port, r.Proxy, b)
	})
	const ok, granted = "HTTP/1.1 200 Connection established\r\n\r\n", "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"
	long := strings.Repeat("abcdefgh", 20_000)
	for text, want := range map[string]string{
		"CONNECT [2001:db8::7]:8443 HTTP/1.1\r\nProxy-Authorization: x\r\n\r\n" + long: ok + "2001:db8::7 8443 false " + long,
		"GET http://a.example:81/ HTTP/1.1\r\nHost: a.example:81\r\n\r\nbody":          "a.example 81 true GET http://a.example:81/ HTTP/1.1\r\nHost: a.example:81\r\n\r\nbody",
		"\x05\x02\x02\x00\x05\x01\x00\x03\x09a.example\x01\xbbmore":                    granted + "a.example 443 false more",
		"\x05\x01\x00\x05\x01\x00\x01\x0a\x00\x00\x07\x00\x50":                         granted + "10.0.0.7 80 false ",
		"\x05\x01\x00\x05\x01\x00\x04" + strings.Repeat("\x00", 15) + "\x01\x00\x50":   granted + "::1 80 false ",
	} {
		for _, pieces := range []int{len(text), 1 + len(text)/3, 1} {
			if pieces == 1 && len(text) > 1000 {
				continue
			}
			c := connect(t, d.Addr())
			var got []byte
			var reading sync.WaitGroup
			reading.Go(func() { got, _ = io.ReadAll(c) })
			for part := range slices.Chunk([]byte(text), pieces) {
				if _, err := c.Write(part); err != nil {
					t.Fatal(err)
				}
			}
			_ = c.CloseWrite()
			if reading.Wait(); string(got) != want {
				t.Errorf("%.80q in pieces of %d: %.200q", text, pieces, got)
			}
		}
	}
}

// The end of one direction is passed on, and the other one goes on.
func TestHalfClosed(t *testing.T) {
	server := listener(t, func(c *net.TCPConn) {
		_, _ = io.WriteString(c, "hello")
		_ = c.CloseWrite()
		b, _ := io.ReadAll(c)
		heard <- string(b)
	})
	d := serve(t, decided(server))
	c := connect(t, d.Addr())
	_, _ = io.WriteString(c, "CONNECT allowed.example:22 HTTP/1.1\r\n\r\n")
	if b, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(b), "\r\n\r\nhello") {
		t.Errorf("%q, %v", b, err)
	}
	_, _ = io.WriteString(c, "and back")
	_ = c.CloseWrite()
	if got := <-heard; got != "and back" {
		t.Errorf("the server read %q", got)
	}
}

var heard = make(chan string, 1)

// listener is a server on the loopback.
func listener(t *testing.T, serve func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer func() { _ = c.Close() }()
				serve(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return l.Addr().String()
}

// A program that says nothing, or not all, is let go.
func TestSlow(t *testing.T) {
	d := serve(t, func(r Request, _ Conn) { t.Errorf("a flow to %s", r.Host) }, func(d *Door) { d.beginTime = time.Millisecond })
	for _, text := range []string{"", "CONNECT a.example:443 HTTP/1.1\r\nHos", "\x05", "\x05\x01\x00\x05\x01"} {
		if got := strings.TrimPrefix(say(t, d.Addr(), text), "\x05\x00"); got != "" {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// No more than the bound are open at once, and all are served.
func TestBound(t *testing.T) {
	var now, most, served atomic.Int32
	d := serve(t, func(_ Request, c Conn) {
		n := now.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		_, _ = c.Read(make([]byte, 1<<10))
		served.Add(1)
		now.Add(-1)
	}, func(d *Door) { d.free = make(chan struct{}, 3) })
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { say(t, d.Addr(), "GET http://a.example/ HTTP/1.1\r\n\r\n") })
	}
	all.Wait()
	if most.Load() > 3 || served.Load() != 20 {
		t.Errorf("%d at once, %d served", most.Load(), served.Load())
	}
}

// The end of the door ends what waits and what is carried.
func TestClose(t *testing.T) {
	begun := make(chan struct{})
	d := serve(t, func(r Request, c Conn) {
		r.Answer(Decision{Verdict: Allowed})
		close(begun)
		_, _ = io.Copy(c, c)
	})
	idle, busy := connect(t, d.Addr()), connect(t, d.Addr())
	_, _ = io.WriteString(busy, "CONNECT allowed.example:22 HTTP/1.1\r\n\r\n")
	<-begun
	d.Close()
	for _, c := range []net.Conn{idle, busy} {
		_, _ = io.Copy(io.Discard, c)
	}
	if c, err := net.Dial("tcp", d.Addr()); err == nil {
		_ = c.Close()
		t.Error("the door is open")
	}
}

// A flow that still reads when its program is refused is told of an end, though the
// program stays.
func TestRefusedWhileReading(t *testing.T) {
	d := serve(t, func(r Request, c Conn) {
		read := make(chan error)
		go func() {
			_, err := io.Copy(io.Discard, c)
			read <- err
		}()
		r.Answer(Decision{Hint: "no"})
		if err := <-read; err != nil {
			t.Error(err)
		}
		if _, err := c.Write([]byte("x")); err == nil {
			t.Error("it was written")
		}
		_ = c.Close()
	})
	if got := say(t, d.Addr(), "CONNECT a.example:22 HTTP/1.1\r\n\r\n"); !strings.HasSuffix(got, `{"host":"a.example","port":22,"hint":"no"}`+"\n") {
		t.Errorf("%q", got)
	}
}

// A program that goes on writing reads why it is refused all the same.
func TestRefusedWhileWriting(t *testing.T) {
	d := serve(t, decided(""))
	c := connect(t, d.Addr())
	_, _ = io.WriteString(c, "CONNECT no.example:443 HTTP/1.1\r\n\r\n")
	r := bufio.NewReaderSize(c, 16)
	first, err := r.ReadString(' ')
	for range 30 {
		if err == nil {
			_, err = c.Write(make([]byte, 1<<10))
		}
	}
	_ = c.CloseWrite()
	rest, failed := io.ReadAll(r)
	if err != nil || failed != nil || !strings.HasPrefix(string(rest), "403 ") {
		t.Errorf("%q %q, %v, %v", first, rest, err, failed)
	}
}

func TestClients(t *testing.T) {
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) }))
	defer web.Close()
	d := serve(t, decided(web.Listener.Addr().String()))
	_, port, _ := strings.Cut(d.Addr(), ":")
	for _, at := range []string{d.Addr(), "[::1]:" + port} {
		if len(d.listeners) == 1 && at != d.Addr() {
			continue
		}
		at, err := url.Parse("http://" + at)
		if err != nil {
			t.Fatal(err)
		}
		tr := web.Client().Transport.(*http.Transport).Clone()
		tr.Proxy, tr.TLSClientConfig.ServerName = http.ProxyURL(at), "example.com"
		defer tr.CloseIdleConnections()
		client := &http.Client{Transport: tr}
		if got, err := get(client, "https://allowed.example/"); err != nil || got != "allowed.example" {
			t.Errorf("%q, %v", got, err)
		}
		if got, err := get(client, "https://no.example/"); err == nil || !strings.Contains(err.Error(), "Forbidden") {
			t.Errorf("%q, %v", got, err)
		}
	}
	dialer, err := proxy.SOCKS5("tcp", d.Addr(), nil, proxy.Direct)
	if err != nil {
		t.Fatal(err)
	}
	tr := web.Client().Transport.(*http.Transport).Clone()
	tr.DialContext, tr.TLSClientConfig.ServerName = dialer.(proxy.ContextDialer).DialContext, "example.com"
	defer tr.CloseIdleConnections()
	client := &http.Client{Transport: tr}
	if got, err := get(client, "https://allowed.example/"); err != nil || got != "allowed.example" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := get(client, "https://no.example/"); err == nil || !strings.Contains(err.Error(), "not allowed") {
		t.Errorf("%q, %v", got, err)
	}
}

func get(client *http.Client, at string) (string, error) {
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, at, nil)
	if err != nil {
		return "", err
	}
	res, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return string(b), err
}

func TestEnv(t *testing.T) {
	d := serve(t, decided(""))
	env := d.Env(false)
	for _, want := range []string{
		"http_proxy=http://" + d.Addr(), "HTTPS_PROXY=http://" + d.Addr(), "all_proxy=http://" + d.Addr(), "NO_PROXY=localhost,127.0.0.1,::1",
		"NODE_USE_ENV_PROXY=1", "CARGO_HTTP_PROXY=http://" + d.Addr(), "BERTH_PROXY=" + d.Addr(), "GIT_SSH_COMMAND=ssh -o 'ProxyCommand=" + os.Args[0] + " dial %h %p'",
	} {
		if !slices.Contains(env, want) {
			t.Errorf("no %s", want)
		}
	}
	if open := d.Env(true); slices.ContainsFunc(open, func(v string) bool { return strings.HasPrefix(v, "GIT_SSH_COMMAND=") }) || len(open) != len(env)-1 {
		t.Errorf("with a transparent door: %q", open)
	}
	for _, l := range d.listeners {
		if flags, err := unix.FcntlInt(l.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("commands inherit %s", l.Name())
		}
	}
	if d.port <= 1024 {
		t.Errorf("port %d", d.port)
	}
}

func TestDial(t *testing.T) {
	server := listener(t, func(c *net.TCPConn) {
		r := bufio.NewReader(c)
		line, _ := r.ReadString('\n')
		rest, _ := io.ReadAll(r)
		_, _ = fmt.Fprintf(c, "%s%s", line, rest)
	})
	d := serve(t, decided(server))
	t.Setenv(AddrVar, d.Addr())
	for line, want := range map[string]struct {
		code   int
		out    string
		stderr string
	}{
		"allowed.example 22": {0, "first\nlast", ""},
		"no.example 22":      {78, "", "berth: error: no.example:22: refused by the rule *.example\nberth: hint: no\r\nway\n"},
		"::1 22":             {78, "", "berth: error: [::1]:22: refused by the rule *.example\nberth: hint: no\r\nway\n"},
		"gone.example 22":    {75, "", "berth: error: gone.example:22: no way out now\nberth: hint: later\n"},
		"no.example 0":       {2, "", "usage: berth-node dial HOST PORT\n"},
		"no.exa\rmple 22":    {2, "", "usage: berth-node dial HOST PORT\n"},
		"no.example":         {2, "", "usage: berth-node dial HOST PORT\n"},
	} {
		if code, out, stderr := dialled(t, strings.Split(line, " ")); code != want.code || out != want.out || stderr != want.stderr {
			t.Errorf("%q: %d %q %q", line, code, out, stderr)
		}
	}
	d.Close()
	if code, _, stderr := dialled(t, []string{"allowed.example", "22"}); code != 75 || !strings.Contains(stderr, "reach the proxy of this place, BERTH_PROXY=\""+d.Addr()+"\": connection refused\nberth: hint: ") {
		t.Errorf("without a door: %d %q", code, stderr)
	}
	t.Setenv(AddrVar, "")
	if code, _, stderr := dialled(t, []string{"allowed.example", "22"}); code != 75 || !strings.Contains(stderr, `BERTH_PROXY="": it is no address`) {
		t.Errorf("without a variable: %d %q", code, stderr)
	}
}

func dialled(t *testing.T, args []string) (code int, out, stderr string) {
	t.Helper()
	in, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(inW, "first\nlast")
	_ = inW.Close()
	var words strings.Builder
	code = DialMain(args, in, outW, &words)
	_ = outW.Close()
	b, err := io.ReadAll(outR)
	if err != nil {
		t.Error(err)
	}
	_, _ = in.Close(), outR.Close()
	return code, string(b), words.String()
}

// What git is told makes ssh go through the door, where there is an ssh.
func TestSSH(t *testing.T) {
	if _, err := exec.LookPath("ssh"); err != nil {
		return
	}
	banner := make(chan string, 1)
	d := serve(t, decided(listener(t, func(c *net.TCPConn) {
		line, _ := bufio.NewReader(c).ReadString('\n')
		banner <- line
	})))
	ssh := func(host string) string {
		c := exec.Command("sh", "-c", `eval "$GIT_SSH_COMMAND -F none -p 2222 $HOST true"`)
		c.Env = append(d.Env(false), "HOST="+host, "PATH="+os.Getenv("PATH"), "SHELL=/bin/sh")
		b, _ := c.CombinedOutput()
		return string(b)
	}
	out := ssh("allowed.example")
	select {
	case line := <-banner:
		if !strings.HasPrefix(line, "SSH-2.0-") {
			t.Errorf("%q: %s", line, out)
		}
	default:
		t.Error(out)
	}
	if out := ssh("no.example"); !strings.Contains(out, "berth: error: no.example:2222: refused by the rule *.example") {
		t.Error(out)
	}
}
