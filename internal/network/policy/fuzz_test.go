package policy

import (
	"net/netip"
	"strings"
	"testing"
)

var seeds = []string{"pypi.org", "*.example.org", "github.com:22", "10.0.0.7:5432", "[2001:db8::7]:443", "10.1.0.0/16:443", "@pip", "0x7f.1", "a..b",
	"*", "[::ffff:1.2.3.4]:1",
	"bücher.example", "a:1:2", "[::/0]:443", "0.0.0.0/0:443", "xn--a.example.:80,443"}

// A word is a rule that is the same when it is written and read again, or an error
// that can be shown on a terminal.
func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add(s, false)
	}
	f.Fuzz(func(t *testing.T, word string, deny bool) {
		rules, err := parse(word, deny)
		if err != nil {
			if len(rules) != 0 || strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r == 0x7f }) {
				t.Fatalf("%q: %v %q", word, rules, err)
			}
			return
		}
		for _, r := range rules {
			text := strings.TrimPrefix(r.String(), r.Bundle+" ")
			again, err := parse(text, deny)
			if err != nil || len(again) != 1 || again[0].String() != text {
				t.Fatalf("%q: %q is read as %v, %v", word, text, again, err)
			}
			if (r.name == "") == (!r.net.IsValid()) {
				t.Fatalf("%q: %+v is no name and no address, or both", word, r)
			}
		}
	})
}

// Whatever is asked: a deny wins, a bound never widens, a name that is allowed is a
// rule's by its labels, and an address that is refused was named.
func FuzzDecide(f *testing.F) {
	f.Add("*.example.org", "a.example.org", "*.example.org", "a.example.org", "8.8.8.8", "", uint16(443))
	f.Add("10.0.0.0/8:22", "9.9.9.9", "0.0.0.0/0:22", "", "10.0.0.1", "b.example", uint16(22))
	f.Add("a.example", "64:ff9b::/96", "@pip", "A.example.", "64:ff9b::808:808", "a.example", uint16(80))
	f.Fuzz(func(t *testing.T, word, deny, bound, name, addr, server string, port uint16) {
		words := func(s string) []string { return strings.Fields(s) }
		p, err := Compile(Words{Mode: Allow, Allow: words(word), Opaque: words(word)})
		if err != nil {
			return
		}
		q := Request{Name: name, Port: port, ServerName: server}
		q.Addr, _ = netip.ParseAddr(addr)
		free := p.Decide(q)
		if free.Allow == (free.Hint != "") {
			t.Fatalf("%+v", free)
		}
		if free.Allow {
			check(t, p, q)
		}
		for _, b := range []Words{{Mode: Allow, Allow: words(bound)}, {Mode: Open, Deny: words(bound)}, {Mode: Open}, {Mode: None}} {
			bounded, err := Compile(Words{Mode: Allow, Allow: words(word), Opaque: words(word)}, b)
			if err != nil {
				continue
			}
			d := bounded.Decide(q)
			if d.Allow && (!free.Allow || d.Opaque && !free.Opaque || b.Mode == None) {
				t.Fatalf("bound %+v widens: %+v, %+v", b, free, d)
			}
			if b.Mode == Open && b.Deny == nil && d.Allow != free.Allow {
				t.Fatalf("the open bound changes %+v into %+v", free, d)
			}
		}
		denied, err := Compile(Words{Mode: Allow, Allow: words(word), Deny: words(deny)})
		if err != nil {
			return
		}
		d := denied.Decide(q)
		if d.Allow && !free.Allow {
			t.Fatalf("a deny widens: %+v", d)
		}
		if alone, err := Compile(Words{Mode: Allow, Allow: words(deny)}); err == nil && d.Allow && alone.Decide(q).Allow {
			t.Fatalf("%q denies what it would allow, and did not: %+v", deny, d)
		}
		for _, port := range p.Ports(name) {
			if !p.Decide(Request{Name: name, Port: port}).Allow {
				t.Fatalf("port %d of %q", port, name)
			}
		}
	})
}

// check looks at a request that was allowed, with other means than the package's.
func check(t *testing.T, p *Policy, q Request) {
	name := strings.ToLower(strings.TrimSuffix(q.Name, "."))
	match, opened := false, false
	for _, r := range p.Allow {
		have, want := strings.Split(name, "."), strings.Split(r.name, ".")
		switch {
		case q.Name == "":
			match = match || r.name == "" && r.net.Contains(q.Addr.Unmap().WithZone(""))
		case r.below:
			match = match || len(have) > len(want) && strings.Join(have[len(have)-len(want):], ".") == r.name
		case r.name != "":
			match = match || name == r.name
		}
		opened = opened || r.name == "" && r.net.Contains(q.Addr.Unmap().WithZone(""))
	}
	if !match {
		t.Fatalf("%+v is allowed by %v", q, p.Allow)
	}
	if q.Addr.IsValid() && Forbidden(q.Addr) != "" && !opened {
		t.Fatalf("%+v is of the class %s, and allowed by %v", q, Forbidden(q.Addr), p.Allow)
	}
	if a := q.Addr.Unmap(); q.Addr.IsValid() && (a.IsLoopback() || a.IsLinkLocalUnicast()) {
		for _, r := range p.Allow {
			if r.name == "" && r.net.IsSingleIP() && r.net.Addr() == a.WithZone("") {
				return
			}
		}
		t.Fatalf("%+v is allowed by %v", q, p.Allow)
	}
}
