package wayout

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/link/wire"
	"berth/internal/network/judge"
	"berth/internal/network/policy"
	"berth/internal/sys/leaks"
	"berth/internal/sys/socket"
	"berth/jobs"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// world is what a relay reaches: each address is the server of the test.
type world struct {
	t      testing.TB
	server net.Listener

	mu      sync.Mutex
	asked   []string
	dialled []string
}

func newWorld(t testing.TB, serve func(net.Conn)) *world {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var working sync.WaitGroup
	working.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			working.Go(func() {
				serve(c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		working.Wait()
	})
	return &world{t: t, server: l}
}

func (w *world) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, host)
	switch host {
	case "a.example.":
		return []netip.Addr{netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("93.184.216.34")}, nil
	case "slow.example.":
		return nil, &net.DNSError{Err: "timeout", IsTimeout: true}
	}
	return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
}

func (w *world) Dial(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	w.dialled = append(w.dialled, to.String())
	w.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, w.server.Addr().String())
}

// supervisor is the way of an attempt in a fresh directory.
func supervisor(t testing.TB, interval time.Duration) (*Relay, string) {
	t.Helper()
	run := t.TempDir()
	if err := os.Chmod(run, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_RUNTIME_DIR", run)
	dir := t.TempDir()
	r, err := listen(dir, interval)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r, dir
}

// relay is one that has come; stop kills it, and waits until it is noticed.
func relay(t testing.TB, r *Relay, dir string, w Way) (stop func()) {
	t.Helper()
	f, err := Join(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = Serve(ctx, f, w)
	}()
	if err := r.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	now := r.now
	r.mu.Unlock()
	stop = func() {
		cancel()
		<-ended
		r.mu.Lock()
		gone, changed := r.now != now, r.changed
		r.mu.Unlock()
		if !gone {
			<-changed
		}
	}
	t.Cleanup(stop)
	return stop
}

func judged(t testing.TB, r Way, limits judge.Limits, words ...string) *judge.Judge {
	t.Helper()
	p, err := policy.Compile(policy.Words{Mode: policy.Allow, Allow: words, Origin: "task"})
	if err != nil {
		t.Fatal(err)
	}
	o := judge.Options{Policy: p, Limits: limits}
	Use(&o, r)
	return judge.New(o)
}

// flow carries what a program says, and returns what it is answered.
func flow(t testing.TB, j *judge.Judge, host, say string) (string, judge.Entry) {
	t.Helper()
	in, told := begin(t, j, host, say)
	b, _ := io.ReadAll(in)
	_ = in.Close()
	return string(b), <-told
}

func begin(t testing.TB, j *judge.Judge, host, say string) (net.Conn, <-chan judge.Entry) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	in, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	out, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	t.Cleanup(func() { _ = in.Close() })
	told := make(chan judge.Entry, 1)
	go func() { told <- j.Flow(t.Context(), judge.Request{Host: host, Port: 80}, out.(*net.TCPConn)) }()
	if _, err := io.WriteString(in, say); err != nil {
		t.Fatal(err)
	}
	return in, told
}

func hello200(c net.Conn) {
	b := make([]byte, 4<<10)
	_, _ = c.Read(b)
	_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
}

const get = "GET / HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n"

// A relay resolves, the judge judges all addresses, and the relay dials the one that is
// allowed. What is denied is not asked for.
func TestRelay(t *testing.T) {
	w := newWorld(t, hello200)
	r, dir := supervisor(t, interval)
	if s, err := Peek(dir); err != nil || s == nil || s.Relay != nil || s.Secret != "" || s.Since.IsZero() {
		t.Fatalf("%+v %v", s, err)
	}
	stop := relay(t, r, dir, w)
	_ = r.record()
	if s, err := Peek(dir); err != nil || s.Relay == nil || s.Relay.PID != os.Getpid() {
		t.Errorf("%+v %v", s, err)
	}
	j := judged(t, r, judge.Limits{}, "a.example", "slow.example")
	said, e := flow(t, j, "a.example", get)
	if !strings.HasSuffix(said, "hello") || e.Addr != "93.184.216.34" || e.Decision != judge.Allowed || e.Reason != "" {
		t.Errorf("%q %+v", said, e)
	}
	if said, e = flow(t, j, "b.example", get); e.Decision != judge.Denied {
		t.Errorf("%q %+v", said, e)
	}
	if said, e = flow(t, j, "slow.example", strings.ReplaceAll(get, "a.", "slow.")); !strings.Contains(e.Reason, "has not answered") {
		t.Errorf("%q %+v", said, e)
	}
	w.mu.Lock()
	if got := strings.Join(append(w.asked, w.dialled...), " "); got != "a.example. slow.example. 93.184.216.34:80" {
		t.Error(got)
	}
	w.mu.Unlock()
	stop()
	_ = r.Close()
	if s, err := Peek(dir); s != nil || err != nil {
		t.Errorf("%+v %v", s, err)
	}
	if _, err := Join(t.Context(), dir); jobs.KindOf(err) != jobs.KindNotFound {
		t.Error(err)
	}
}

// Without a relay a flow waits for a bounded time; one that comes serves those that wait.
func TestWaits(t *testing.T) {
	w := newWorld(t, hello200)
	r, dir := supervisor(t, interval)
	said, e := flow(t, judged(t, r, judge.Limits{Way: time.Millisecond}, "a.example"), "a.example", get)
	if !strings.HasPrefix(said, "HTTP/1.1 503 ") || !strings.Contains(e.Reason, "berth network relay start") {
		t.Errorf("%q %+v", said, e)
	}
	done := make(chan string)
	go func() {
		said, _ := flow(t, judged(t, r, judge.Limits{}, "a.example"), "a.example", get)
		done <- said
	}()
	relay(t, r, dir, w)
	if said := <-done; !strings.HasSuffix(said, "hello") {
		t.Errorf("%q", said)
	}
}

// A relay that is killed amid an answer cuts it off; the next one is taken up.
func TestKilled(t *testing.T) {
	half := make(chan struct{})
	w := newWorld(t, func(c net.Conn) {
		b := make([]byte, 4<<10)
		_, _ = c.Read(b)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
		<-half
		_, _ = io.Copy(io.Discard, c)
	})
	r, dir := supervisor(t, interval)
	stop := relay(t, r, dir, w)
	j := judged(t, r, judge.Limits{}, "a.example")
	in, told := begin(t, j, "a.example", get)
	b := make([]byte, 4<<10)
	n, err := in.Read(b)
	if err != nil || !strings.HasSuffix(string(b[:n]), "half") {
		t.Fatalf("%q %v", b[:n], err)
	}
	stop()
	_, _ = io.ReadAll(in)
	_ = in.Close()
	if e := <-told; e.Reason == "" {
		t.Errorf("%+v", e)
	}
	close(half)
	_ = r.record()
	if s, err := Peek(dir); err != nil || s.Relay != nil {
		t.Errorf("%+v %v", s, err)
	}
	again := newWorld(t, hello200)
	relay(t, r, dir, again)
	if said, e := flow(t, j, "a.example", get); !strings.HasSuffix(said, "hello") {
		t.Errorf("%q %+v", said, e)
	}
}

// A second relay is refused while the first is heard, and taken when that says nothing.
func TestSecond(t *testing.T) {
	w := newWorld(t, hello200)
	r, dir := supervisor(t, 20*time.Millisecond)
	stop := relay(t, r, dir, w)
	if f, err := Join(t.Context(), dir); jobs.KindOf(err) != jobs.KindAgain || !strings.Contains(err.Error(), "there is a relay: process") {
		t.Error(f, err)
	}
	stop()
	f, err := Join(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := greetSupervisor(wire.NewReader(f), wire.NewWriter(f)); err != nil {
		t.Fatal(err)
	}
	relay(t, r, dir, w) // the one that has greeted and says nothing is replaced
	if said, e := flow(t, judged(t, r, judge.Limits{}, "a.example"), "a.example", get); !strings.HasSuffix(said, "hello") {
		t.Errorf("%q %+v", said, e)
	}
}

// Who does not know the secret is no relay, and a relay takes no supervisor that does not.
func TestStranger(t *testing.T) {
	r, dir := supervisor(t, interval)
	s, err := peek(dir)
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(filepath.Join(dir, fileRelay)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Error(fi, err)
	}
	f, err := socket.Dial(t.Context(), s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := proveFirst(f, "another"); !errors.Is(err, errStranger) {
		t.Error(err)
	}
	// It may also say anything.
	if _, err := f.Write(bytes.Repeat([]byte{0}, 32)); err != nil {
		t.Error(err)
	}
	if b, err := io.ReadAll(f); len(b) > 0 {
		t.Errorf("%q %v", b, err)
	}
	_ = f.Close()
	r.mu.Lock()
	if r.now != nil {
		t.Error("it is taken for a relay")
	}
	r.mu.Unlock()
	s.Secret = "another"
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Join(t.Context(), dir); !errors.Is(err, errStranger) {
		t.Error(err)
	}
	s.BootID = "another"
	if err := s.write(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Join(t.Context(), dir); jobs.KindOf(err) != jobs.KindConfig || !strings.Contains(err.Error(), s.Host) {
		t.Error(err)
	}
}

// The relay does not dial what policies refuse, unless a rule has opened the address.
func TestRefused(t *testing.T) {
	mine := "127.0.0.1"
	for _, a := range own() {
		if policy.Forbidden(a) == "" {
			mine = a.String()
		}
	}
	w := newWorld(t, hello200)
	r, dir := supervisor(t, interval)
	relay(t, r, dir, w)
	for _, a := range []string{"127.0.0.1", "169.254.169.254", "10.1.2.3", "::1", "fe80::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", mine} {
		if c, err := r.Dial(t.Context(), "tcp", netip.AddrPortFrom(netip.MustParseAddr(a), 80)); err == nil || !strings.Contains(err.Error(), "the relay does not dial") {
			t.Error(a, c, err)
		}
	}
	if c, err := r.Dial(t.Context(), "tcp", netip.AddrPort{}); err == nil {
		t.Error(c)
	}
	said, e := flow(t, judged(t, r, judge.Limits{}, "10.1.2.3:80"), "10.1.2.3", strings.ReplaceAll(get, "a.example", "10.1.2.3"))
	if !strings.HasSuffix(said, "hello") {
		t.Errorf("%q %+v", said, e)
	}
}

// Close wakes who waits.
func TestClose(t *testing.T) {
	r, _ := supervisor(t, interval)
	go func() { _ = r.Close() }()
	if _, err := r.LookupNetIP(t.Context(), "ip", "a.example."); !errors.Is(err, judge.ErrNoWay) {
		t.Error(err)
	}
}

func TestOpen(t *testing.T) {
	_, dir := supervisor(t, interval)
	for via, ok := range map[string]bool{
		"": true, "node": true, "login": true, "proxy:http://p.example:3128": true, "proxy:socks5h://u:secret@p.example:1080": true,
		"relay": false, "proxy:https://p.example:1": true, "proxy:https://p.example": false, "proxy:http://p.example": false, "proxy:socks5://p.example:1080": false,
		"proxy:http://u:secret@p.example:1/x": false, "proxy:http://u:secret@p.example:z": false,
	} {
		_, c, err := Open(jobs.Network{Via: via}, dir)
		if (err == nil) != ok || err != nil && (jobs.KindOf(err) != jobs.KindConfig || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%q: %v", via, err)
		}
		if err == nil {
			_ = c.Close()
		}
	}
}
