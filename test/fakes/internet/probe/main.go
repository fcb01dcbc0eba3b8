//go:build linux

// Command probe tries, as a command of a task, each way out of its network that is known, and prints a
// line for each: its name, a tab, held or open, a tab, and what was seen. It expects the internet of
// package internet, and that a policy allows allowed.test, cdn.allowed.test and rebind.test. With
// -proxy it tries those through a proxy, instead. It runs in any image.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// world is where the probe is told to look.
var world struct {
	base     netip.Prefix // of the sites
	node     netip.Addr   // of the supervisor's machine
	node6    netip.Addr
	port     int    // of a service on the loopback of that machine
	abstract string // a socket's name there
	socket   string // the path of one of this user's there
	many     int    // of what is done often
}

// A probe is one way out. It is open when something came back that must not, and
// what it returns says what was seen.
type probe struct {
	name string
	try  func() (open bool, seen string)
}

func main() {
	base := flag.String("base", "11.22.33.0/24", "the network of the internet")
	node := flag.String("node", "11.22.34.2", "the address of the supervisor's machine")
	node6 := flag.String("node6", "", "its address of IPv6")
	proxy := flag.String("proxy", "", "the HOST:PORT of a proxy to try")
	only := flag.String("only", "", "the names of probes, with commas between them")
	skip := flag.String("skip", "", "the names of those to leave out")
	flag.IntVar(&world.port, "port", 0, "the port of a service on that machine's loopback")
	flag.StringVar(&world.abstract, "abstract", "", "the name of an abstract socket there")
	flag.StringVar(&world.socket, "socket", "", "the path of a socket there")
	flag.IntVar(&world.many, "many", 500, "how much a flood is; 0 is none")
	url := flag.String("get", "", "print what is at a URL, instead")
	name := flag.String("resolve", "", "print the addresses of a name, instead")
	flag.Parse()
	if *url != "" || *name != "" {
		os.Exit(plainly(*url, *name))
	}
	world.base = netip.MustParsePrefix(*base)
	world.node, _ = netip.ParseAddr(*node)
	world.node6, _ = netip.ParseAddr(*node6)
	parts := [][]probe{slices.Concat(names, sites, addresses), processes, floods}
	if *proxy != "" {
		parts = [][]probe{proxied(*proxy)}
	}
	if world.many == 0 {
		parts = parts[:min(len(parts), 2)]
	}
	for n, part := range parts {
		part = slices.DeleteFunc(part, func(p probe) bool {
			return *only != "" && !slices.Contains(strings.Split(*only, ","), p.name) || slices.Contains(strings.Split(*skip, ","), p.name)
		})
		play(part, n == 0 && *proxy == "")
	}
}

// play tries probes, those that only wait for answers at once, and prints them in their order.
func play(part []probe, together bool) {
	lines := make([]chan string, len(part))
	for n, p := range part {
		lines[n] = make(chan string, 1)
		try := func() {
			open, seen := p.try()
			word := "held"
			if open {
				word = "open"
			}
			lines[n] <- fmt.Sprintf("%s\t%s\t%q\n", p.name, word, seen)
		}
		if together {
			go try()
		} else {
			try()
			_, _ = os.Stdout.WriteString(<-lines[n])
		}
	}
	for n := range part {
		if together {
			_, _ = os.Stdout.WriteString(<-lines[n])
		}
	}
}

// plainly is a program that does nothing odd.
func plainly(url, name string) int {
	out, err := "", error(nil)
	if url != "" {
		var r *http.Response
		if r, err = http.Get(url); err == nil {
			var b []byte
			b, err = io.ReadAll(r.Body)
			_ = r.Body.Close()
			if out = string(b); err == nil && r.StatusCode != http.StatusOK {
				err = errors.New(r.Status)
			}
		}
	} else {
		var all []string
		all, err = resolved(name)
		out = strings.Join(all, " ")
	}
	_, _ = fmt.Fprintln(os.Stdout, out)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// host is an address of the internet.
func host(n byte) netip.Addr {
	b := world.base.Addr().As4()
	b[3] = n
	return netip.AddrFrom4(b)
}
