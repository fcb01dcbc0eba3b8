package wayout

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"berth/internal/network/judge"
	"berth/jobs"
)

// A Way resolves and dials what a judge has allowed.
type Way interface {
	judge.Resolver
	Dial(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error)
}

// ByName is a way that resolves where it connects.
type ByName interface {
	DialName(ctx context.Context, host string, port uint16) (net.Conn, error)
}

// Open makes the way of a network for the attempt or environment in dir. Closing it ends
// the connections of a relay.
func Open(n jobs.Network, dir string) (Way, io.Closer, error) {
	switch {
	case n.Via == "" || n.Via == jobs.ViaNode:
		return Node(), io.NopCloser(nil), nil
	case n.Via == jobs.ViaLogin:
		r, err := Listen(dir)
		if err != nil {
			return nil, nil, err
		}
		return r, r, nil
	}
	url, ok := strings.CutPrefix(n.Via, jobs.ViaProxy)
	if !ok {
		return nil, nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "network.via: there is no way " + n.Via,
			Hint: "node, login, proxy:http://HOST:PORT, proxy:https://HOST:PORT or proxy:socks5h://HOST:PORT"}
	}
	w, err := Proxy(url)
	return w, io.NopCloser(nil), err
}

// Use has a judge take a way.
func Use(o *judge.Options, w Way) {
	o.Resolver, o.Dial, o.Own = w, w.Dial, own
	if p, ok := w.(ByName); ok {
		o.DialName = p.DialName
	}
	if r, ok := w.(*Relay); ok {
		o.Ready, o.Own = r.Ready, r.Own
	}
}

// Node is the way of the machine that this process runs on.
func Node() Way { return node{&net.Resolver{}, &net.Dialer{}} }

type node struct {
	*net.Resolver
	dialer *net.Dialer
}

func (n node) Dial(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
	return n.dialer.DialContext(ctx, network, to.String())
}

// ownLife is how long the addresses of this machine's interfaces are taken to stay: each
// connection asks for them, and to find them takes a tenth of its time.
const ownLife = time.Second

var owned struct {
	mu    sync.Mutex
	at    time.Time
	addrs []netip.Addr
}

// own are the addresses of this machine's interfaces. The caller does not change them.
func own() []netip.Addr {
	owned.mu.Lock()
	defer owned.mu.Unlock()
	if owned.at.IsZero() || time.Since(owned.at) > ownLife {
		owned.at, owned.addrs = time.Now(), interfaces()
	}
	return owned.addrs
}

func interfaces() (out []netip.Addr) {
	all, _ := net.InterfaceAddrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr())
		}
	}
	return out
}
