package broker

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"berth/internal/network/credentials"
	"berth/internal/network/judge"
	"berth/jobs"

	"github.com/hashicorp/go-retryablehttp"
)

// Options are what a broker needs of its surroundings. Dial is required.
type Options struct {
	Credentials []Credential
	Caps        jobs.Caps
	Prices      jobs.Prices
	// Used is what counts as used from the beginning, of brokers before this one. Before
	// counts for the caps alone, and is no part of [Broker.Usage].
	Used, Before jobs.Usage
	// Keep has the usage recorded, durably, for who goes on after this process; nil is that
	// it is not kept. While there are caps, no request is sent before it has, and none where
	// it fails: Unkept is told of the first of several failures. It is called by one
	// goroutine at a time.
	Keep   func(jobs.Usage) error
	Unkept func(error)
	// Dial connects to a host: the policy of the network and its ways out apply there. What
	// they refuse is a [judge.RefusedError].
	Dial func(ctx context.Context, host string, port uint16) (net.Conn, error)
	// Roots are the certificates that are trusted; nil is this machine's.
	Roots *x509.CertPool
	// Record is told of each request, and Stop once of a cap that is met, but for those of an
	// [Account]. Both may be called by any goroutine.
	Record func(credentials.Use)
	Stop   func(Met)
}

// Broker carries requests. It is safe for concurrent use.
type Broker struct {
	o       Options
	list    map[string]*credential
	meter   *meter
	flights chan struct{} // at once
	over    chan struct{} // closed by end
	end     func()
	large   chan struct{} // of them, with large bodies
}

const (
	maxHeader  = 64 << 10
	maxFlights = 64
	largeBody  = 1 << 20
	maxBody    = 32 << 20 // the most that a vendor takes
	headerTime = 30 * time.Second
	leftTime   = 10 * time.Minute // of an answer whose program has left, while it is counted for a cap
	idleTime   = 5 * time.Minute  // of a connection between two requests, of a body to be there, of an answer to be read
)

// New returns a broker.
func New(o Options) (*Broker, error) {
	if o.Record == nil {
		o.Record = func(credentials.Use) {}
	}
	if o.Stop == nil {
		o.Stop = func(Met) {}
	}
	if o.Unkept == nil {
		o.Unkept = func(error) {}
	}
	over := make(chan struct{})
	b := &Broker{o: o, list: map[string]*credential{}, flights: make(chan struct{}, maxFlights),
		large: make(chan struct{}, 2), over: over, end: sync.OnceFunc(func() { close(over) }),
		meter: &meter{caps: o.Caps, prices: o.Prices, all: tally{used: o.Used, before: o.Before, stop: o.Stop}}}
	if o.Keep != nil {
		b.meter.kept = newKeeping(o.Keep, b.meter.usage, o.Unkept)
	}
	for _, c := range o.Credentials {
		ready, err := settle(c)
		if err != nil {
			return nil, err
		}
		if b.list[c.Name] != nil {
			return nil, fmt.Errorf("the credential %s is there twice", c.Name)
		}
		if err := b.connect(ready); err != nil {
			return nil, err
		}
		b.list[c.Name] = ready
	}
	return b, nil
}

// connect has a credential's requests go to its server alone.
func (b *Broker) connect(c *credential) error {
	roots := b.o.Roots
	if c.CA != "" {
		if roots == nil {
			roots, _ = x509.SystemCertPool() // of a machine that has none, none are trusted
		}
		if roots == nil {
			roots = x509.NewCertPool()
		}
		if !roots.AppendCertsFromPEM([]byte(c.CA)) {
			return fmt.Errorf("the credential %s: ca has no certificate in it", c.Name)
		}
	}
	c.transport = &http.Transport{
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			host, text, err := net.SplitHostPort(addr)
			if err != nil {
				return nil, err
			}
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil {
				return nil, err
			}
			return b.o.Dial(ctx, host, uint16(port))
		},
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    headerTime,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        time.Minute,
		MaxResponseHeaderBytes: 4 * maxHeader,
		DisableCompression:     true,
	}
	c.again = &retryablehttp.Client{
		HTTPClient: &http.Client{Transport: c.transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		RetryWaitMin: 500 * time.Millisecond, RetryWaitMax: 4 * time.Second, RetryMax: 2,
		CheckRetry: tryAgain, Backoff: backoff, ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	return nil
}

// backoff is the library's, whose server may ask for any time.
func backoff(least, most time.Duration, n int, r *http.Response) time.Duration {
	return min(most, retryablehttp.DefaultBackoff(least, most, n, r))
}

// tryAgain is for requests that may be repeated: the server was not reached, or says
// that another time is better.
func tryAgain(ctx context.Context, r *http.Response, err error) (bool, error) {
	switch {
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil:
		return !errors.As(err, new(*judge.RefusedError)), nil
	}
	return r.StatusCode == http.StatusBadGateway || r.StatusCode == http.StatusServiceUnavailable || r.StatusCode == http.StatusGatewayTimeout, nil
}

// send sends a request, several times where that is safe.
func (c *credential) send(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return c.transport.RoundTrip(r)
	}
	re, err := retryablehttp.FromRequest(r)
	if err != nil {
		return nil, err
	}
	return c.again.Do(re)
}

// Usage is what models were asked for so far.
func (b *Broker) Usage() jobs.Usage { return b.meter.usage() }

// Told is Usage without what the answers under way have still to say: caps that end a
// task are held to it.
func (b *Broker) Told() jobs.Usage { return b.meter.told() }

// Busy is how many requests are under way.
func (b *Broker) Busy() int { return len(b.flights) }

// Close ends connections that are not in use, and answers that are read for the counts
// alone. Usage is kept no more when it returns.
func (b *Broker) Close() {
	b.end()
	b.meter.kept.close()
	for _, c := range b.list {
		c.transport.CloseIdleConnections()
	}
}

// Serve answers the requests of one connection from inside, which is for a credential,
// and closes it. They are counted for the caps in its account; nil is that all requests of the
// broker count for them. It ends with ctx, too. The connection's SetReadDeadline has to end a
// Read that waits.
func (b *Broker) Serve(ctx context.Context, name string, of *Account, conn net.Conn) {
	c := b.list[name]
	if c == nil {
		_ = conn.Close()
		return
	}
	l := &once{conn: conn, ended: make(chan struct{})}
	s := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { b.handle(c, of, w, r) }),
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog:    log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateClosed || state == http.StateHijacked {
				l.end()
			}
		},
		DisableGeneralOptionsHandler: true,
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	_ = s.Serve(l)
	_ = conn.Close()
}

// once is a listener with one connection; the second one comes when that has ended.
type once struct {
	mu    sync.Mutex
	conn  net.Conn
	ended chan struct{}
	over  sync.Once
}

func (l *once) end() { l.over.Do(func() { close(l.ended) }) }

func (l *once) Accept() (net.Conn, error) {
	l.mu.Lock()
	conn := l.conn
	l.conn = nil
	l.mu.Unlock()
	if conn != nil {
		return conn, nil
	}
	<-l.ended
	return nil, io.EOF
}

// Close implements [net.Listener].
func (l *once) Close() error { return nil }

func (l *once) Addr() net.Addr { return &net.UnixAddr{Name: "inside", Net: "unix"} }

// handle answers one request, and records it.
func (b *Broker) handle(c *credential, of *Account, w http.ResponseWriter, r *http.Request) {
	u := &credentials.Use{Time: time.Now().UTC(), Credential: c.Name, Method: r.Method}
	f := &forward{b: b, c: c, of: &b.meter.all, key: c.held.Load(), r: r, use: u}
	if of != nil {
		f.of = &of.tally
	}
	defer func() {
		u.Seconds = time.Since(u.Time).Seconds()
		if u.Status != http.StatusUnauthorized { // who has no placeholder, perhaps another user, writes no records
			b.o.Record(*u)
		}
	}()
	err := f.run(w)
	var no *refusal
	switch {
	case err == nil:
	case errors.As(err, &no):
		u.Status, u.Reason = no.status, no.why
		b.meter.refused()
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close") // of a body that was not read
		}
		no.answer(c.API, w)
	default:
		u.Reason = err.Error()
		panic(http.ErrAbortHandler) // a part has left: its reader sees that it is cut
	}
}
