package judge

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/network/policy"
	"berth/internal/sys/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// end is one of a connection in memory, on which either direction ends alone.
type end struct {
	*io.PipeReader
	*io.PipeWriter
	net.Conn // nil: what is not below is not used
}

func (e *end) Read(b []byte) (int, error)       { return e.PipeReader.Read(b) }
func (e *end) Write(b []byte) (int, error)      { return e.PipeWriter.Write(b) }
func (e *end) CloseWrite() error                { return e.PipeWriter.Close() }
func (e *end) SetDeadline(time.Time) error      { return nil }
func (e *end) SetReadDeadline(time.Time) error  { return nil }
func (e *end) SetWriteDeadline(time.Time) error { return nil }
func (e *end) Close() error {
	_ = e.PipeReader.Close()
	return e.PipeWriter.Close()
}

func pair() (*end, *end) {
	r1, w1 := io.Pipe()
	r2, w2 := io.Pipe()
	return &end{PipeReader: r1, PipeWriter: w2}, &end{PipeReader: r2, PipeWriter: w1}
}

// world is an internet in memory.
type world struct {
	t       *testing.T
	names   map[string]string                       // NAME -> addresses, with blanks between them
	resolve func(name string) ([]netip.Addr, error) // instead of names
	serve   map[string]func(net.Conn)               // ADDRESS:PORT -> its server
	own     []netip.Addr
	limits  Limits

	mu      sync.Mutex
	asked   []string
	dialled []string
	entries []Entry
	running sync.WaitGroup
}

func newWorld(t *testing.T) *world {
	return &world{t: t, names: map[string]string{"a.example": "93.184.216.34", "b.example": "93.184.216.35", "in.example": "10.0.0.7"},
		serve: map[string]func(net.Conn){}}
}

func (w *world) LookupNetIP(ctx context.Context, _, host string) (out []netip.Addr, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, host)
	name, ok := strings.CutSuffix(host, ".")
	if !ok && strings.Contains(host, ".") {
		w.t.Errorf("%s was resolved with a search list", host)
	}
	if w.resolve != nil {
		return w.resolve(name)
	}
	for a := range strings.FieldsSeq(w.names[name]) {
		out = append(out, netip.MustParseAddr(a))
	}
	if out == nil {
		err = &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return out, err
}

func (w *world) dial(_ context.Context, _ string, to netip.AddrPort) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dialled = append(w.dialled, to.String())
	serve := w.serve[to.String()]
	if serve == nil {
		return nil, errors.New("connection refused")
	}
	near, far := pair()
	w.running.Go(func() { serve(far) })
	return near, nil
}

func (w *world) record(e Entry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.entries = append(w.entries, e)
}

// judge is one with rules of allow, and those of opaque behind "opaque".
func (w *world) judge(words ...string) *Judge {
	w.t.Helper()
	rules := policy.Words{Mode: policy.Allow, Allow: words, Origin: "task"}
	if i := slices.Index(words, "opaque"); i >= 0 {
		rules.Allow, rules.Opaque = words[:i], words[i+1:]
	}
	p, err := policy.Compile(rules)
	if err != nil {
		w.t.Fatal(err)
	}
	return New(Options{Policy: p, Resolver: w, Dial: w.dial, Own: func() []netip.Addr { return w.own }, Record: w.record, Limits: w.limits})
}

// flow begins one, and returns the program's side and what waits for its end.
func (w *world) flow(j *Judge, host string, port uint16) (*end, func() Entry) {
	return w.begin(j, Request{Host: host, Port: port})
}

func (w *world) begin(j *Judge, req Request) (*end, func() Entry) {
	in, out := pair()
	result := make(chan Entry, 1)
	go func() { result <- j.Flow(w.t.Context(), req, out) }()
	return in, func() Entry {
		w.t.Helper()
		e := <-result
		_ = in.Close()
		w.running.Wait()
		return e
	}
}

// say writes, ends its own direction and returns what is answered.
func say(c *end, text string) string {
	go func() {
		_, _ = io.WriteString(c, text)
		_ = c.CloseWrite()
	}()
	b, _ := io.ReadAll(c)
	return string(b)
}

// answering is a server that reads all and then answers.
func answering(got *bytes.Buffer, answer string) func(net.Conn) {
	return func(c net.Conn) {
		_, _ = io.Copy(got, c)
		_, _ = io.WriteString(c, answer)
		_ = c.Close()
	}
}

var certificate = sync.OnceValues(func() (tls.Certificate, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"a.example", "b.example"}, NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		panic(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
})

// tlsEcho is a server of TLS that sends back what it reads.
func tlsEcho(c net.Conn) {
	cert, _ := certificate()
	s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{cert}})
	_, _ = io.Copy(s, s)
	_ = s.Close()
}

// hello is the ClientHello of Go's client.
func hello(t testing.TB, name string, change func(*tls.Config)) []byte {
	near, far := pair()
	c := &tls.Config{ServerName: name, InsecureSkipVerify: true}
	if change != nil {
		change(c)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = tls.Client(near, c).Handshake()
	}()
	b := make([]byte, 64<<10)
	n, err := io.ReadAtLeast(far, b, 5)
	for size := 5 + int(b[3])<<8 + int(b[4]); err == nil && n < size; {
		var m int
		m, err = far.Read(b[n:])
		n += m
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = far.Close()
	<-done
	return b[:n]
}
