//go:build linux

package main

import (
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// What is done often must end, and all must work as before afterwards: each of these
// is open where it does not.
var floods = []probe{
	{"a flood of questions", func() (bool, string) {
		start := time.Now()
		many(func(n int) {
			q := question(fmt.Sprintf("n%d.flood.test", n), dnsmessage.TypeA)
			if c, err := net.Dial("udp", net.JoinHostPort(servers()[0], "53")); err == nil {
				_, _ = c.Write(q)
				_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
				_, _ = c.Read(make([]byte, 512))
				_ = c.Close()
			}
		})
		return works(start)
	}},
	{"a flood of names below a wildcard", func() (bool, string) {
		start := time.Now()
		many(func(n int) {
			q := question(fmt.Sprintf("n%d.wild.allowed.test", n), dnsmessage.TypeA)
			if c, err := net.Dial("udp", net.JoinHostPort(servers()[0], "53")); err == nil {
				_, _ = c.Write(q)
				_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
				_, _ = c.Read(make([]byte, 512))
				_ = c.Close()
			}
		})
		return works(start)
	}},
	{"a flood of flows", func() (bool, string) {
		start := time.Now()
		many(func(int) { _, _ = said("allowed.test:80", fmt.Sprintf(request, "allowed.test"), "hello") })
		return works(start)
	}},
	{"a flood of flows that say nothing", func() (bool, string) { return held("allowed.test:80", "") }},
	{"a flood of half requests", func() (bool, string) { return held("allowed.test:80", "GET / HTTP/1.1\r\nHost: allo") }},
	{"a flood of half ClientHellos", func() (bool, string) { return held("allowed.test:443", "\x16\x03\x01\x02\x00\x01\x00\x01") }},
	{"a flood of flows that do not read", func() (bool, string) {
		return held("allowed.test:80", "GET /bytes?n=10000000 HTTP/1.1\r\nHost: allowed.test\r\n\r\n")
	}},
}

// many does something often, 64 at once.
func many(do func(n int)) {
	var all sync.WaitGroup
	next := make(chan int)
	for range 64 {
		all.Go(func() {
			for n := range next {
				do(n)
			}
		})
	}
	for n := range world.many {
		next <- n
	}
	close(next)
	all.Wait()
}

// held keeps flows open, looks whether another one works meanwhile, and lets them go.
func held(to, text string) (bool, string) {
	start := time.Now()
	var mu sync.Mutex
	var open []net.Conn
	many(func(int) {
		if c, err := dial(to); err == nil {
			_, _ = c.Write([]byte(text))
			mu.Lock()
			open = append(open, c)
			mu.Unlock()
		}
	})
	bad, seen := works(start)
	for _, c := range open {
		_ = c.Close()
	}
	return bad, fmt.Sprintf("%d open: %s", len(open), seen)
}

// works is false, that is not open, where a request has its answer within a time.
func works(start time.Time) (bool, string) {
	took := time.Since(start).Round(100 * time.Millisecond)
	var seen string
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(200 * time.Millisecond) {
		ok, s := got("http://allowed.test/", "hello from allowed.test")
		if ok {
			return false, fmt.Sprintf("in %s", took)
		}
		seen = s
	}
	return true, seen
}
