//go:build linux

// Package internet is a small internet for tests of a task's network: names, several
// sites under them, and a record of whatever arrives. Nothing of it leaves the machine.
//
// Its addresses look public, because a judge refuses private ones, those of documentation
// and of benchmarks: they are of 11.0.0.0/8, a network that no one reaches in the
// open internet, and are routed only inside of the test's own network. That is
// a network namespace of the test (see [Around]), or a network of docker without a way out (scripts/testbed).
//
// Every host has every service, so that only what was asked for tells names apart:
// HTTP on 80 and 8080, HTTPS on 443 and 8443 with a certificate for the name that the client
// says, ssh with git on 22, an echo on other ports. DNS is on .53 alone.
package internet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"berth/test/fakes/models"
)

// Options are of one internet.
type Options struct {
	Base netip.Prefix // of IPv4, a /24
	Node netip.Addr   // that node.test has: the supervisor's own
	Dir  string       // ca.pem, the repository, and log.jsonl
	// Device is the interface whose packets are recorded, too; "" is none.
	Device string
}

// The last byte of hosts.
const (
	hostWeb     = 10 // allowed.test
	hostOther   = 11 // other.test
	hostFront   = 12 // of several names
	hostPackage = 13 // pypi.test, npm.test, goproxy.test, git.test
	hostModel   = 14 // api.test, which echoes what it is asked with, and model.test
	hostRaw     = 15 // raw.test
	hostDNS     = 53
)

// EchoPorts are those of the echo.
var EchoPorts = []int{25, 853, 3128, 4000, 4001, 4002, 5432, 9418}

// UDPEchoPort is where datagrams come back, QUICPort where they are only recorded.
const (
	UDPEchoPort = 4000
	QUICPort    = 443
)

// Internet is one that runs.
type Internet struct {
	o    Options
	log  *log
	ca   *authority
	repo string // its parent directory

	mu       sync.Mutex
	rebinds  int
	closers  []io.Closer
	packages packages
	models   models.Server
}

// ModelKey is the key of the vendors of models behind model.test. What comes with it
// has to be a broker: it is in no container.
const ModelKey = "sk-test-8f14e45fceea167a5a36dedd4bea2543"

// Start serves on all addresses of this network namespace.
func Start(o Options) (i *Internet, err error) {
	i = &Internet{o: o, models: models.Server{Key: ModelKey}}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	if i.log, err = openLog(filepath.Join(o.Dir, "log.jsonl")); err != nil {
		return nil, err
	}
	if i.ca, err = newAuthority(filepath.Join(o.Dir, "ca.pem")); err != nil {
		return nil, err
	}
	if i.packages, err = makePackages(); err != nil {
		return nil, err
	}
	if i.repo, err = makeRepository(o.Dir); err != nil {
		return nil, err
	}
	if o.Device != "" {
		if err := i.sniff(o.Device); err != nil {
			return nil, fmt.Errorf("record the packets of %s: %w", o.Device, err)
		}
	}
	if err := i.serve(); err != nil {
		i.Close()
		return nil, err
	}
	return i, nil
}

// Close ends it.
func (i *Internet) Close() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, c := range i.closers {
		_ = c.Close()
	}
}

func (i *Internet) closes(c io.Closer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closers = append(i.closers, c)
}

// host is an address of this internet.
func (i *Internet) host(n byte) netip.Addr {
	b := i.o.Base.Addr().As4()
	b[3] = n
	return netip.AddrFrom4(b)
}

func (i *Internet) serve() error {
	handler := http.HandlerFunc(i.web)
	for _, s := range []struct {
		port   int
		secure bool
	}{{80, false}, {8080, false}, {443, true}, {8443, true}} {
		l, err := i.listen(s.port)
		if err != nil {
			return err
		}
		if s.secure {
			l = tls.NewListener(l, i.tls())
		}
		server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, ErrorLog: quiet()}
		i.closes(server)
		go func() { _ = server.Serve(l) }()
	}
	for _, port := range EchoPorts {
		l, err := i.listen(port)
		if err != nil {
			return err
		}
		go i.accept(l, func(c net.Conn) { _, _ = io.Copy(c, c) })
	}
	l, err := i.listen(22)
	if err != nil {
		return err
	}
	if err := i.ssh(l); err != nil {
		return err
	}
	return errors.Join(i.dns(), i.datagrams(hostRaw, UDPEchoPort, true), i.datagrams(hostWeb, QUICPort, false))
}

// listen takes connections to all addresses, and records each.
func (i *Internet) listen(port int) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	i.closes(l)
	return recorded{l, i.log}, nil
}

type recorded struct {
	net.Listener
	log *log
}

func (r recorded) Accept() (net.Conn, error) {
	c, err := r.Listener.Accept()
	if err == nil {
		r.log.add(Event{Kind: "tcp", To: plain(c.LocalAddr()), From: plain(c.RemoteAddr())})
	}
	return c, err
}

func (i *Internet) accept(l net.Listener, serve func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			serve(c)
		}()
	}
}

// datagrams records them, and sends them back where that is asked for.
func (i *Internet) datagrams(host byte, port int, back bool) error {
	at := netip.AddrPortFrom(i.host(host), uint16(port))
	c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
	if err != nil {
		return err
	}
	i.closes(c)
	go func() {
		b := make([]byte, 64<<10)
		for {
			n, from, err := c.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			i.log.add(Event{Kind: "udp", To: at.String(), From: from.String()})
			if back {
				_, _ = c.WriteToUDPAddrPort(b[:n], from)
			}
		}
	}()
	return nil
}

// plain is an address, of IPv4 where it is one inside of IPv6.
func plain(a net.Addr) string {
	if p, err := netip.ParseAddrPort(a.String()); err == nil {
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port()).String()
	}
	return a.String()
}
