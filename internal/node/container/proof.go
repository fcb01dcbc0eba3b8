package container

import (
	"crypto/rand"
	"net"

	"berth/internal/link/wire"
)

// proof are sockets of this machine that must not be reached from inside of a place
// with a network of its own.
type proof struct {
	wish      *wire.Proof
	listeners []net.Listener
}

// newProof begins to listen. Where this machine cannot, the rest is tried all the same.
func newProof() *proof {
	p := &proof{wish: &wire.Proof{Port: 9, Abstract: "berth-proof-" + rand.Text()}} // 9 is discard: refused as well
	listen := func(network, at string) net.Listener {
		l, err := net.Listen(network, at)
		if err != nil {
			return nil
		}
		p.listeners = append(p.listeners, l)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_ = c.Close()
			}
		}()
		return l
	}
	if l := listen("tcp4", "127.0.0.1:0"); l != nil {
		p.wish.Port = l.Addr().(*net.TCPAddr).Port
	}
	listen("unix", "@"+p.wish.Abstract)
	return p
}

func (p *proof) close() {
	for _, l := range p.listeners {
		_ = l.Close()
	}
}
