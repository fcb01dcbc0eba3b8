//go:build linux

package session_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"berth/internal/link/session"
	"berth/internal/link/wire"
)

// echo allows one name, and sends back what a command says to it.
type echo struct {
	mu   sync.Mutex
	seen []wire.FlowMessage
}

func (*echo) Query(context.Context, string) wire.QueryAnswer { return wire.QueryAnswer{} }

func (e *echo) Flow(_ context.Context, m wire.FlowMessage, f *session.Flow) {
	e.mu.Lock()
	e.seen = append(e.seen, m)
	e.mu.Unlock()
	allowed := m.Host == "a.example"
	if m.Tell {
		f.Tell(wire.FlowAnswer{Allowed: allowed, Hint: "no rule allows it"})
	}
	if allowed {
		_, _ = io.Copy(f, f)
		_ = f.CloseWrite()
	}
}

// TestFlows has commands connect through the proxy door of a guest: what is said
// passes whole in both directions, a refusal is told, and many at once do not wait for
// one another.
func TestFlows(t *testing.T) {
	net := &echo{}
	p := open(t, session.Options{Network: net, NetworkWish: wire.NetworkWish{Door: true}})
	if had := p.s.Guest().Network; had == nil || had.Room {
		t.Fatalf("%+v", had)
	}
	const connect = `exec 3<>/dev/tcp/${BERTH_PROXY%:*}/${BERTH_PROXY#*:} && printf 'CONNECT %s:443 HTTP/1.1\r\nHost: x\r\n\r\n' `
	res, out, errs := p.run(shell(connect + `b.example >&3; cat <&3`))
	if !res.Exit.OK() || !strings.HasPrefix(out, "HTTP/1.1 403 ") || !strings.Contains(out, `"hint":"no rule allows it"`) {
		t.Errorf("%+v %q %q", res.Exit, out, errs)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			p := *p
			p.t = t
			// Twice the window, which nothing reads before the last byte is written.
			res, out, errs := p.run(shell(connect + `a.example >&3; while read -r l <&3 && [ "$l" != $'\r' ]; do :; done
				(head -c 300000 /dev/zero; printf end) >&3 & head -c 300003 <&3 | tail -c 5 | od -An -c; wait`))
			if !res.Exit.OK() || strings.Join(strings.Fields(out), "") != `\0\0end` {
				t.Errorf("%+v %q %q", res.Exit, out, errs)
			}
		})
	}
	all.Wait()
	net.mu.Lock()
	defer net.mu.Unlock()
	if n := len(net.seen); n != 9 || !slices.ContainsFunc(net.seen, func(m wire.FlowMessage) bool { return m.Host == "b.example" && m.Port == 443 && m.Tell }) {
		t.Errorf("%d flows: %+v", n, net.seen)
	}
}
