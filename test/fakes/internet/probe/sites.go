//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// patience is how long an answer may take that must not come.
const patience = 3 * time.Second

const (
	request = "GET / HTTP/1.1\r\nHost: %s\r\n\r\n"
	front   = "cdn.allowed.test" // is allowed, and a site of the same server as hidden
	hidden  = "hidden.cdn.test"
)

var sites = []probe{
	{"another name in TLS", func() (bool, string) { return fronted(hidden, hidden) }},
	{"another name in TLS, the right one in HTTP", func() (bool, string) { return fronted(hidden, front) }},
	{"no name in TLS", func() (bool, string) { return fronted("", hidden) }},
	{"an address for the name in TLS", func() (bool, string) { return fronted(host(12).String(), hidden) }},
	{"another name in TLS on port 80", func() (bool, string) { return shaken(front+":80", hidden, hidden) }},
	{"no TLS on 443", func() (bool, string) {
		return said(front+":443", fmt.Sprintf(request, front), "HTTP/1.1 400 Bad Request", "hello")
	}},
	{"another host", func() (bool, string) { return smuggled(fmt.Sprintf(request, hidden)) }},
	{"no host", func() (bool, string) { return said(front+":80", "GET / HTTP/1.0\r\n\r\n", "hello") }},
	{"another host in a second request", func() (bool, string) { return smuggled(fmt.Sprintf(request+request, front, hidden)) }},
	{"another host in a request behind a body", func() (bool, string) {
		return smuggled(fmt.Sprintf("POST /upload HTTP/1.1\r\nHost: %s\r\nContent-Length: 3\r\n\r\nabc"+request, front, hidden))
	}},
	{"another host in the target", func() (bool, string) {
		return smuggled(fmt.Sprintf("GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n", hidden, front))
	}},
	{"two hosts", func() (bool, string) {
		return smuggled(fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\nHost: %s\r\n\r\n", front, hidden))
	}},
	{"two hosts, the other way round", func() (bool, string) {
		return smuggled(fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\nHost: %s\r\n\r\n", hidden, front))
	}},
	{"a folded host", func() (bool, string) {
		return smuggled(fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\nX: a\r\n Host: %s\r\n\r\n", front, hidden))
	}},
	{"a length and chunks", func() (bool, string) {
		second := fmt.Sprintf(request, hidden)
		return smuggled(fmt.Sprintf("POST /upload HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%s", front,
			len(second)+5, second))
	}},
	{"chunks, oddly written", func() (bool, string) {
		second := fmt.Sprintf(request, hidden)
		return smuggled(fmt.Sprintf("POST /upload HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n%s", front,
			len(second)+5, second))
	}},
	{"an upgrade that was refused", func() (bool, string) {
		return smuggled(fmt.Sprintf("GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"+request, front, hidden))
	}},
	{"a tunnel through the server", func() (bool, string) {
		return said(front+":80", "CONNECT "+hidden+":443 HTTP/1.1\r\nHost: "+hidden+":443\r\n\r\n", "HTTP/1.1 200")
	}},
	{"a redirect", func() (bool, string) {
		return got("http://allowed.test/redirect?to=http://other.test/", "hello from other.test")
	}},
	{"a redirect to an address", func() (bool, string) {
		return got("http://allowed.test/redirect?to=http://"+host(11).String()+"/", "hello from")
	}},
	{"a redirect to the metadata service", func() (bool, string) {
		return got("http://allowed.test/redirect?to=http://169.254.169.254/", "secret")
	}},
	{"a name whose answer changes", func() (open bool, seen string) {
		well := 0
		for range 12 {
			if ok, s := got("http://rebind.test/", "hello from rebind.test"); ok {
				well++
			} else if open = open || strings.Contains(s, "service of the node"); open {
				seen = s
			}
			_, s := got(fmt.Sprintf("http://rebind.test:%d/", max(world.port, 1)), "service of the node")
			open = open || strings.Contains(s, "service of the node")
		}
		return open, fmt.Sprintf("%s%d times what is allowed", seen, well)
	}},
	{"allowed names of refused addresses", func() (open bool, seen string) {
		for _, n := range []string{"private", "loop", "loop6", "meta", "mapped", "nat64", "sixtofour", "ula", "zero", "node"} {
			for _, port := range []int{80, max(world.port, 1)} {
				o, s := said(fmt.Sprintf("%s.test:%d", n, port), fmt.Sprintf(request, n+".test"), "HTTP/1.1 200", "service of the node", "hello", "secret")
				if open = open || o; o {
					seen += n + ": " + s + " "
				}
			}
		}
		return open, seen
	}},
	{"one of several addresses", func() (bool, string) { // the one that is allowed is taken
		ok, s := got("http://mixed.test/", "hello from mixed.test")
		return !ok, s
	}},
}

// fronted asks the front with a name in TLS and another one in HTTP.
func fronted(server, site string) (bool, string) { return shaken(front+":443", server, site) }

func shaken(to, server, site string) (bool, string) {
	c, err := dial(to)
	if err != nil {
		return false, short(err)
	}
	defer func() { _ = c.Close() }()
	return secret(c, server, site)
}

// secret speaks TLS on a connection. Who answers is seen in what it says.
func secret(c net.Conn, server, site string) (bool, string) {
	t := tls.Client(c, &tls.Config{ServerName: server, InsecureSkipVerify: true})
	if err := t.Handshake(); err != nil {
		return false, short(err)
	}
	if _, err := fmt.Fprintf(t, request, site); err != nil {
		return true, "a handshake"
	}
	b := make([]byte, 1024)
	n, _ := t.Read(b)
	return true, "a handshake, " + line(b[:n])
}

// smuggled sends requests to the front; the site behind it must not answer.
func smuggled(text string) (bool, string) { return said(front+":80", text, "hello from "+hidden) }

// said sends a text, and reports whether one of the words came back.
func said(to, text string, words ...string) (bool, string) {
	c, err := dial(to)
	if err != nil {
		return false, short(err)
	}
	defer func() { _ = c.Close() }()
	return answered(c, text, words...)
}

func answered(c net.Conn, text string, words ...string) (bool, string) {
	if _, err := io.WriteString(c, text); err != nil {
		return false, short(err)
	}
	var all []byte
	b := make([]byte, 4096)
	for {
		n, err := c.Read(b)
		all = append(all, b[:n]...)
		for _, w := range words {
			if strings.Contains(string(all), w) {
				return true, line(all)
			}
		}
		if err != nil {
			return false, line(all) + " " + short(err)
		}
	}
}

func dial(to string) (net.Conn, error) {
	d := net.Dialer{Timeout: patience, Resolver: &net.Resolver{PreferGo: true}}
	c, err := d.DialContext(context.Background(), "tcp", to)
	if err == nil {
		_ = c.SetDeadline(time.Now().Add(patience))
	}
	return c, err
}

// got follows redirects, as clients do.
func got(url, word string) (bool, string) {
	c := http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network,
		to string) (net.Conn, error) {
		return (&net.Dialer{Resolver: &net.Resolver{PreferGo: true}}).DialContext(ctx, network, to)
	}}}
	r, err := c.Get(url)
	if err != nil {
		return false, short(err)
	}
	defer func() { _ = r.Body.Close() }()
	b, _ := io.ReadAll(io.LimitReader(r.Body, 4096))
	return strings.Contains(string(b), word), r.Status + " " + line(b)
}

func line(b []byte) string { return string(b[:min(len(b), 120)]) }
