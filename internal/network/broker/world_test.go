package broker

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/internal/network/credentials"
	"berth/internal/sys/leaks"
	"berth/jobs"
	"berth/test/fakes/models"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const (
	key         = "sk-real-0123456789abcdef"
	placeholder = "berth-placeholder-for-tests"
)

// world is a broker, what is inside, and the vendors.
type world struct {
	t      *testing.T
	server *models.Server
	reply  func(models.Request) models.Reply
	change func(*jobs.Credential)
	caps   jobs.Caps
	prices jobs.Prices
	before jobs.Usage
	keep   func(jobs.Usage) error
	unkept chan error

	b    *Broker
	stop chan Met
	mu   sync.Mutex
	uses []credentials.Use
	dial func(ctx context.Context, host string, port uint16) (net.Conn, error)
}

// start makes a broker of ready-made credentials, whose vendors are played.
func (w *world) start(t *testing.T, names ...string) *world {
	w.t, w.stop, w.unkept = t, make(chan Met, 9), make(chan error, 9)
	w.server = models.Start(t, key, w.reply)
	if w.dial == nil {
		w.dial = w.server.Dial
	}
	o := Options{Caps: w.caps, Prices: w.prices, Dial: w.dial, Roots: w.server.Roots, Before: w.before, Keep: w.keep,
		Unkept: func(err error) { w.unkept <- err }, Stop: func(m Met) { w.stop <- m },
		Record: func(u credentials.Use) { w.mu.Lock(); w.uses = append(w.uses, u); w.mu.Unlock() }}
	for _, name := range names {
		c := credentials.Ready()[name]
		path := ""
		if i := strings.Index(strings.TrimPrefix(c.Upstream, "https://"), "/"); i > 0 {
			path = strings.TrimPrefix(c.Upstream, "https://")[i:]
		}
		if c.Upstream = "https://" + models.Host + path; w.change != nil {
			w.change(&c)
		}
		o.Credentials = append(o.Credentials, Credential{Credential: c, Key: key, Placeholder: placeholder})
	}
	var err error
	if w.b, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.b.Close)
	return w
}

// client is a program inside that uses a credential.
func (w *world) client(name string, of *Account) *http.Client {
	ctx, cancel := context.WithCancel(context.Background())
	tr := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		in, out := net.Pipe()
		go w.b.Serve(ctx, name, of, out)
		return in, nil
	}}
	w.t.Cleanup(func() { tr.CloseIdleConnections(); cancel() })
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// ask sends a request with the placeholder. The body is what came, an error what ended it.
func (w *world) ask(name, method, path, body string, header ...string) (status int, answer string, h http.Header, err error) {
	w.t.Helper()
	return w.askOf(nil, name, method, path, body, header...)
}

// askOf is ask over a connection that has an account.
func (w *world) askOf(of *Account, name, method, path, body string, header ...string) (status int, answer string, h http.Header, err error) {
	w.t.Helper()
	r, err := http.NewRequest(method, "http://127.0.0.1:4001"+path, strings.NewReader(body))
	if body == "" {
		r.Body, r.ContentLength = nil, 0
	}
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+placeholder)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := w.client(name, of).Do(r)
	if err != nil {
		return 0, "", nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res.StatusCode, string(b), res.Header, err
}

// used waits until n requests are recorded.
func (w *world) used(n int) []credentials.Use {
	w.t.Helper()
	for range 2000 {
		w.mu.Lock()
		uses := w.uses
		w.mu.Unlock()
		if len(uses) >= n {
			return uses
		}
		time.Sleep(time.Millisecond)
	}
	w.t.Fatalf("no %d requests are recorded: %+v", n, w.uses)
	return nil
}

func (w *world) met() Met {
	w.t.Helper()
	select {
	case m := <-w.stop:
		return m
	case <-time.After(10 * time.Second):
		w.t.Fatal("nothing was stopped")
	}
	return Met{}
}
