package wayout

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"berth/jobs"

	"golang.org/x/net/proxy"
)

// Proxy is the way by a proxy: http://[USER:PASSWORD@]HOST:PORT (CONNECT), https:// (the same
// over TLS, by the authorities that this machine trusts) or socks5h://.
func Proxy(text string) (Way, error) { return proxyOf(text, nil) }

// proxyOf is Proxy with these authorities; nil is the machine's.
func proxyOf(text string, roots *x509.CertPool) (Way, error) {
	u, err := url.Parse(text)
	bad := func(why string) error {
		// The URL may have a password: it is not shown.
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "network.via: the proxy: " + why,
			Hint: "proxy:http://HOST:PORT, proxy:https://HOST:PORT or proxy:socks5h://HOST:PORT"}
	}
	if err != nil {
		return nil, bad("no URL")
	}
	switch {
	case u.Hostname() == "" || u.Port() == "":
		return nil, bad("a host and a port are needed")
	case u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "":
		return nil, bad("only a host and a port are taken")
	}
	switch u.Scheme {
	case "http", "https":
		p := &httpProxy{address: u.Host}
		if u.Scheme == "https" {
			p.tls = &tls.Config{ServerName: u.Hostname(), RootCAs: roots, NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}
		}
		if u.User != nil {
			password, _ := u.User.Password()
			p.login = base64.StdEncoding.EncodeToString([]byte(u.User.Username() + ":" + password))
		}
		return byProxy{p.dial}, nil
	case "socks5h":
		var auth *proxy.Auth
		if u.User != nil {
			password, _ := u.User.Password()
			auth = &proxy.Auth{User: u.User.Username(), Password: password}
		}
		d, err := proxy.SOCKS5("tcp", u.Host, auth, &net.Dialer{})
		if err != nil {
			return nil, bad(err.Error())
		}
		return byProxy{func(ctx context.Context, address string) (net.Conn, error) {
			return d.(proxy.ContextDialer).DialContext(ctx, "tcp", address)
		}}, nil
	}
	return nil, bad("the scheme is " + strconv.Quote(u.Scheme))
}

// byProxy is a way on which the proxy resolves.
type byProxy struct {
	dial func(ctx context.Context, address string) (net.Conn, error)
}

func (p byProxy) DialName(ctx context.Context, host string, port uint16) (net.Conn, error) {
	return p.dial(ctx, net.JoinHostPort(host, strconv.Itoa(int(port))))
}

func (p byProxy) Dial(ctx context.Context, _ string, to netip.AddrPort) (net.Conn, error) {
	return p.dial(ctx, to.String())
}

// LookupNetIP is not asked: names are dialled as such.
func (byProxy) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return nil, errors.New("the proxy resolves names itself")
}

// httpProxy is one with CONNECT (RFC 9110, 9.3.6).
type httpProxy struct {
	address, login string
	tls            *tls.Config // nil is without
	dialer         net.Dialer
}

// maxHead bounds a proxy's answer.
const maxHead = 16 << 10

func (p *httpProxy) dial(ctx context.Context, address string) (net.Conn, error) {
	c, err := p.dialer.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, err
	}
	if p.tls != nil {
		t := tls.Client(c, p.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			_ = c.Close()
			return nil, fmt.Errorf("TLS to the proxy: %w", err)
		}
		c = t
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	rest, err := p.connect(c, address)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	if len(rest) > 0 {
		return &behind{c, bytes.NewReader(rest)}, nil
	}
	return c, nil
}

// connect asks for a tunnel, and returns what came behind the answer.
func (p *httpProxy) connect(c net.Conn, address string) (rest []byte, err error) {
	ask := "CONNECT " + address + " HTTP/1.1\r\nHost: " + address + "\r\n"
	if p.login != "" {
		ask += "Proxy-Authorization: Basic " + p.login + "\r\n"
	}
	if _, err := c.Write([]byte(ask + "\r\n")); err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(c, maxHead)
	for first, size := true, 0; ; first = false {
		line, err := r.ReadSlice('\n')
		if size += len(line); err != nil || size > maxHead {
			return nil, errors.New("the proxy gave no answer that is HTTP")
		}
		text := strings.TrimRight(string(line), "\r\n")
		if text == "" {
			break
		}
		if !first {
			continue
		}
		version, status, _ := strings.Cut(text, " ")
		if !strings.HasPrefix(version, "HTTP/1.") {
			return nil, errors.New("the proxy gave no answer that is HTTP")
		}
		if !strings.HasPrefix(status, "2") {
			return nil, fmt.Errorf("the proxy refuses %s: %s", address, jobs.Printable(status[:min(len(status), 200)]))
		}
	}
	rest, _ = r.Peek(r.Buffered())
	return bytes.Clone(rest), nil
}

// behind is a connection of which something was read already.
type behind struct {
	net.Conn
	first *bytes.Reader
}

func (b *behind) Read(p []byte) (int, error) {
	if b.first.Len() > 0 {
		return b.first.Read(p)
	}
	return b.Conn.Read(p)
}

// CloseWrite is that of the connection.
func (b *behind) CloseWrite() error {
	if c, ok := b.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}
