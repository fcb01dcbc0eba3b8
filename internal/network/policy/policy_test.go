package policy

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func compile(t testing.TB, w Words, bounds ...Words) *Policy {
	t.Helper()
	p, err := Compile(w, bounds...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func allow(words ...string) Words { return Words{Mode: Allow, Allow: words, Origin: "task"} }

// to is a request for a name or an address, perhaps as resolved: NAME=ADDR.
func to(host string, port uint16) Request {
	q := Request{Port: port}
	name, addr, ok := strings.Cut(host, "=")
	if a, err := netip.ParseAddr(host); err == nil {
		q.Addr = a
		return q
	}
	q.Name = name
	if ok {
		q.Addr = netip.MustParseAddr(addr)
	}
	return q
}

// Each row of the table of words.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		word string
		host string
		port uint16
		want bool
	}{
		{"pypi.org", "pypi.org", 443, true},
		{"pypi.org", "pypi.org", 80, true},
		{"pypi.org", "pypi.org", 22, false},
		{"pypi.org", "a.pypi.org", 443, false},
		{"pypi.org", "notpypi.org", 443, false},
		{"PyPI.org.", "pypi.ORG.", 443, true},
		{"*.pythonhosted.org", "files.pythonhosted.org", 443, true},
		{"*.pythonhosted.org", "a.b.c.pythonhosted.org", 80, true},
		{"*.pythonhosted.org", "pythonhosted.org", 443, false},
		{"*.pythonhosted.org", "evilpythonhosted.org", 443, false},
		{"*.pythonhosted.org", "pythonhosted.org.evil.example", 443, false},
		{"github.com:22", "github.com", 22, true},
		{"github.com:22", "github.com", 443, false},
		{"db.example.org:5432,6432", "db.example.org", 6432, true},
		{"db.example.org:5432,6432", "db.example.org", 5433, false},
		{"10.0.0.7:5432", "10.0.0.7", 5432, true},
		{"10.0.0.7:5432", "::ffff:10.0.0.7", 5432, true},
		{"10.0.0.7:5432", "10.0.0.7", 443, false},
		{"10.0.0.7:5432", "10.0.0.8", 5432, false},
		{"10.0.0.7:5432", "db.example.org=10.0.0.7", 5432, false},
		{"8.8.8.8", "8.8.8.8", 443, true},
		{"[2001:db8::7]:443", "2001:db8::7", 443, true},
		{"[2001:db8::7]", "2001:db8::7", 80, true},
		{"10.1.0.0/16:443", "10.1.200.3", 443, true},
		{"10.1.0.0/16:443", "10.2.0.1", 443, false},
		{"[fd12::/16]:443", "fd12::1", 443, true},
		{"0.0.0.0/0:443", "93.184.216.34", 443, true},
		{"0.0.0.0/0:443", "10.0.0.1", 443, false},
		{"0.0.0.0/0:443", "127.0.0.1", 443, false},
		{"8.0.0.0/6:443", "10.0.0.1", 443, false},
		{"169.254.0.0/16:80", "169.254.169.254", 80, false},
		{"127.0.0.0/8:80", "127.0.0.1", 80, false},
		{"127.0.0.1:80", "127.0.0.1", 80, true},
		{"169.254.169.254:80", "169.254.169.254", 80, true},
		{"100.64.0.0/10:80", "100.64.1.1", 80, true},
		{"100.64.0.0/10:80", "100.100.100.200", 80, false},
		{"[::/0]:443", "::ffff:10.0.0.1", 443, false},
		{"[::/0]:443", "64:ff9b::a00:1", 443, false},
		{"10.0.0.1:443", "64:ff9b::a00:1", 443, false},
		{"[64:ff9b::a00:1]:443", "64:ff9b::a00:1", 443, true},
		{"@pip", "files.pythonhosted.org", 443, true},
		{"@pip", "pythonhosted.org", 443, false},
		{"xn--bcher-kva.example", "XN--bcher-kva.example", 443, true},
		{"_dmarc.example.org", "_dmarc.example.org", 443, true},
	} {
		if d := compile(t, allow(c.word)).Decide(to(c.host, c.port)); d.Allow != c.want || d.Origin != "task" || d.Allow == (d.Hint != "") {
			t.Errorf("%s, %s port %d: %+v", c.word, c.host, c.port, d)
		}
	}
}

// What is no word says so.
func TestParseErrors(t *testing.T) {
	for word, want := range map[string]string{
		"":                                    "empty",
		"*":                                   "every name",
		"a.*.b":                               "whole parts",
		"*a.example":                          "whole parts",
		"https://pypi.org/":                   "URL",
		"pypi.org/simple":                     "host name alone",
		"pypi.org:":                           "no port behind",
		"pypi.org:0":                          "no port",
		"pypi.org:65536":                      "no port",
		"pypi.org:080":                        "no port",
		"pypi.org:+80":                        "no port",
		"pypi.org:80,":                        "no port",
		"pypi.org:https":                      "no port",
		"2001:db8::7":                         "brackets",
		"[2001:db8::7]443":                    "[2001:db8::7]:443",
		"[2001:db8::7]:":                      "[2001:db8::7]:443",
		"[2001:db8::7":                        "[2001:db8::7]:443",
		"[pypi.org]:443":                      "brackets are for",
		"[fe80::1%eth0]:443":                  "zone",
		"[::ffff:10.0.0.7]:443":               "10.0.0.7",
		"[::ffff:10.0.0.0/104]:22":            "IPv4 network",
		"10.1.0.0/16":                         "needs a port: 10.1.0.0/16:443",
		"10.1.2.3/16:443":                     "10.1.0.0/16",
		"10.1.0.0/33:443":                     "no network",
		"0.0.0.0:80":                          "no address of a machine",
		"224.0.0.1:80":                        "no address of a machine",
		"10.0.0":                              "neither a name nor an address",
		"0x7f.1":                              "neither a name nor an address",
		"2130706433":                          "neither a name nor an address",
		"0177.0.0.1":                          "neither a name nor an address",
		"0x7f000001:80":                       "neither a name nor an address",
		"*.1":                                 "neither a name nor an address",
		"1.2.3.4.5":                           "neither a name nor an address",
		"bücher.example":                      "xn--",
		"a..b":                                "empty",
		".pypi.org":                           "empty",
		"-a.example":                          "hyphen",
		"a b.example":                         `" " is no character`,
		"a%41.example":                        `"%" is no character`,
		"a\x00.example":                       `"\x00" is no character`,
		"a\x1b[31m.example":                   `"\x1b" is no character`,
		"@nix":                                "@pip @npm",
		"@":                                   "no such bundle",
		strings.Repeat("a", 64) + ".example":  "63 bytes",
		strings.Repeat("a.", 127) + "example": "253 bytes",
		"a.example:" + ports(33):              "more than 32",
	} {
		_, err := Parse(word)
		var e *WordError
		if !errors.As(err, &e) || e.Word != word || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", word, err, want)
		} else if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' }) {
			t.Errorf("%q: the error has control characters", word)
		}
	}
}

func ports(n int) string {
	var s []string
	for i := range n {
		s = append(s, string(rune('1'+i/10))+string(rune('0'+i%10)))
	}
	return strings.Join(s, ",")
}

func TestDeny(t *testing.T) {
	p := compile(t, Words{Mode: Allow, Origin: "task", Allow: []string{"*.example.org:443,8443", "0.0.0.0/0:443", "10.1.0.0/16:443"},
		Deny: []string{"bad.example.org", "*.worse.example.org:443", "10.1.9.0/24", "9.9.9.9"}})
	for _, c := range []struct {
		host string
		port uint16
		rule string
	}{
		{"good.example.org", 443, ""},
		{"bad.example.org", 443, "bad.example.org"},
		{"bad.example.org", 8443, "bad.example.org"},
		{"a.worse.example.org", 443, "*.worse.example.org:443"},
		{"a.worse.example.org", 8443, ""},
		{"10.1.9.1", 443, "10.1.9.0/24"},
		{"10.1.8.1", 443, ""},
		{"good.example.org=9.9.9.9", 443, "9.9.9.9"},
		{"good.example.org=64:ff9b::909:909", 443, "9.9.9.9"},
		{"good.example.org=2002:909:909::1", 443, "9.9.9.9"},
	} {
		if d := p.Decide(to(c.host, c.port)); d.Allow != (c.rule == "") || !d.Allow && d.Rule != c.rule {
			t.Errorf("%s port %d: %+v", c.host, c.port, d)
		}
	}
	if d := p.Decide(Request{Addr: netip.MustParseAddr("8.8.8.8"), Port: 443, ServerName: "bad.example.org"}); d.Allow {
		t.Errorf("an address with a denied server name: %+v", d)
	}
}

// All policies have to allow it, and the refusal names the one that did not.
func TestBounds(t *testing.T) {
	task := allow("*.example.org", "db.example.org:5432", "10.0.0.7:5432", "other.net")
	task.Opaque = []string{"db.example.org:5432", "a.example.org"}
	profile := Words{Mode: Allow, Allow: []string{"*.example.org", "*.example.org:5432"}, Opaque: []string{"db.example.org:5432"}, Origin: "profile"}
	site := Words{Mode: Open, Deny: []string{"bad.example.org"}, Origin: "site"}
	p := compile(t, task, profile, site)
	for _, c := range []struct {
		host   string
		port   uint16
		origin string // of a refusal
		opaque bool
	}{
		{"a.example.org", 443, "", false},
		{"db.example.org", 5432, "", true},
		{"other.net", 443, "profile", false},
		{"third.net", 443, "profile", false},
		{"bad.example.org", 443, "site", false},
		{"c.example.org", 5432, "task", false},
		{"10.0.0.7", 5432, "profile", false},
		{"db.example.org=10.0.0.7", 5432, "profile", false},
	} {
		d := p.Decide(to(c.host, c.port))
		if d.Allow != (c.origin == "") || !d.Allow && d.Origin != c.origin || d.Allow && d.Opaque != c.opaque {
			t.Errorf("%s port %d: %+v", c.host, c.port, d)
		}
	}
	if d := compile(t, task, site).Decide(to("db.example.org=10.0.0.7", 5432)); !d.Allow || !d.Opaque || d.Rule != "10.0.0.7:5432" {
		t.Errorf("an open bound: %+v", d)
	}
	if d := compile(t, task, site, Words{Mode: None, Origin: "project"}).Decide(to("a.example.org", 443)); d.Allow || d.Origin != "project" {
		t.Errorf("a bound of none: %+v", d)
	}
	deep := compile(t, task)
	deep.Bounds = []Policy{*p}
	if d := deep.Decide(to("bad.example.org", 443)); d.Allow || d.Origin != "site" {
		t.Errorf("a bound's bound: %+v", d)
	}
}

func TestModes(t *testing.T) {
	own := netip.MustParseAddr("93.184.216.34")
	for _, c := range []struct {
		w    Words
		q    Request
		want bool
	}{
		{Words{Mode: None, Allow: []string{"a.example"}}, to("a.example", 443), false},
		{Words{Mode: Open}, to("a.example", 25), true},
		{Words{Mode: Open}, to("a.example=10.0.0.1", 25), false},
		{Words{Mode: Learn}, to("a.example", 25), true},
		{Words{Mode: Learn}, to("a.example", 26), false},
		{Words{Mode: Learn}, to("a.example=10.0.0.1", 443), false},
		{Words{Mode: Learn}, to("8.8.8.8", 443), false},
		{Words{Mode: Learn, Deny: []string{"a.example"}}, to("a.example", 443), false},
		{allow("8.8.8.8:53"), to("8.8.8.8", 53), true},
		{allow("8.8.8.8:53"), Request{Addr: netip.MustParseAddr("8.8.8.8"), Port: 53, Proto: "udp"}, false},
		{allow("a.example"), Request{Name: "a.example", Port: 443, ServerName: "A.example."}, true},
		{allow("a.example", "b.example"), Request{Name: "a.example", Port: 443, ServerName: "b.example"}, false},
		{allow("a.example", "b.example"), Request{Name: "a.example", Port: 443, ServerName: "1.2.3.4"}, false},
		{allow("a.example"), Request{Name: "a.example"}, false},
		{allow("a.example"), Request{Port: 443}, false},
		{allow("a.example"), Request{Name: "a.example", Addr: own, Port: 443, Own: []netip.Addr{own}}, false},
		{allow("a.example"), Request{Name: "a.example", Addr: netip.MustParseAddr("2002:5db8:d822::1"), Port: 443, Own: []netip.Addr{own}}, false},
		{allow("93.184.216.0/24:443"), Request{Addr: own, Port: 443, Own: []netip.Addr{own}}, false},
		{allow("10.0.0.0/8:443"), Request{Addr: netip.MustParseAddr("10.0.0.1"), Port: 443, Own: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}, false},
		{allow("a.example", "93.184.216.34"), Request{Name: "a.example", Addr: own, Port: 443, Own: []netip.Addr{own}}, true},
	} {
		if d := compile(t, c.w).Decide(c.q); d.Allow != c.want {
			t.Errorf("%+v, %+v: %+v", c.w, c.q, d)
		}
	}
	if d := (&Policy{}).Decide(to("a.example", 443)); d.Allow {
		t.Errorf("the empty policy: %+v", d)
	}
}

func TestForbidden(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1": "loopback", "127.255.255.255": "loopback", "::1": "loopback",
		"0.0.0.0": "unspecified", "0.1.2.3": "unspecified", "::": "unspecified",
		"169.254.169.254": "link-local", "fe80::1": "link-local", "fe80::1%eth0": "link-local",
		"10.0.0.1": "private", "172.16.0.1": "private", "172.31.255.255": "private", "192.168.1.1": "private", "fc00::1": "private", "fdff::1": "private",
		"100.64.0.1": "shared", "100.127.255.255": "shared",
		"198.18.0.1": "benchmarking", "198.19.255.255": "benchmarking",
		"224.0.0.1": "multicast", "239.255.255.255": "multicast", "ff02::1": "multicast",
		"255.255.255.255": "broadcast", "240.0.0.1": "reserved", "192.0.0.1": "reserved", "fec0::1": "reserved", "100::1": "reserved", "::2": "reserved",
		"192.0.2.1": "documentation", "198.51.100.1": "documentation", "203.0.113.1": "documentation", "2001:db8::1": "documentation", "3fff::1": "documentation",
		"168.63.129.16": "metadata service", "100.100.100.200": "metadata service", "fd00:ec2::254": "metadata service", "fd20:ce::254": "metadata service",
		"::ffff:127.0.0.1": "loopback", "::ffff:10.0.0.1": "private",
		"64:ff9b::7f00:1": "loopback, inside of an IPv6 address", "64:ff9b::a00:1": "private, inside of an IPv6 address", "64:ff9b:1::1": "reserved",
		"2002:7f00:1::1": "loopback, inside of an IPv6 address", "2002:a9fe:a9fe::1": "link-local, inside of an IPv6 address",
		"2001:0:7f00:1::": "loopback, inside of an IPv6 address", "2001:0:808:808::80ff:fffe": "loopback, inside of an IPv6 address",
		"::127.0.0.1": "reserved", "::ffff:0:127.0.0.1": "reserved",
		"8.8.8.8": "", "172.15.0.1": "", "172.32.0.1": "", "100.63.0.1": "", "100.128.0.1": "", "198.17.0.1": "", "198.20.0.1": "", "223.255.255.255": "",
		"2606:4700::1": "", "64:ff9b::808:808": "", "2002:808:808::1": "", "::ffff:8.8.8.8": "",
	} {
		if got := Forbidden(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %q, want %q", addr, got, want)
		}
	}
}

// What a program inside may ask for.
func TestTarget(t *testing.T) {
	long := strings.Repeat(strings.Repeat("a", 49)+".", 5)
	for host, want := range map[string]string{
		"pypi.org": "pypi.org", "PYPI.org.": "pypi.org", "localhost": "localhost", "db": "db", "a_b.example": "a_b.example",
		long + "abc": long + "abc", long + "abc.": long + "abc",
		"10.0.0.7": "10.0.0.7", "::ffff:10.0.0.7": "10.0.0.7", "[2001:DB8::7]": "2001:db8::7", "2001:db8::7": "2001:db8::7",
		"pypi.org..": "", "": "", ".": "", "pypi.org\x00.evil": "", "pypi.org ": "", " pypi.org": "", "pypi%2eorg": "", "pypi.org\r\n": "", "a@b": "", "a/b": "",
		"0x7f.1": "", "0x7f000001": "", "2130706433": "", "0177.0.0.1": "", "127.1": "", "127.0.0.01": "", "1.2.3.4.": "", "0x": "", "1.2.3.0xff": "",
		"[10.0.0.7]": "", "fe80::1%lo": "", "[fe80::1%25lo]": "", "[pypi.org]": "", "b\u00fccher.example": "", "\u212aelvin.example": "", "a\u3002b": "",
		long + "abcd": "", strings.Repeat("a", 64): "", "-a": "", "a-.b": "", "*.a": "",
	} {
		name, addr, ok := Target(host)
		got := name
		if addr.IsValid() {
			got += addr.String()
		}
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q %t, want %q", host, got, ok, want)
		}
	}
}

func TestPorts(t *testing.T) {
	p := compile(t, Words{Mode: Allow, Allow: []string{"*.example.org", "git.example.org:22,443", "bad.example.org:7"},
		Deny: []string{"bad.example.org", "git.example.org:80"}},
		Words{Mode: Allow, Allow: []string{"*.example.org:22,80,443"}})
	for name, want := range map[string][]uint16{
		"git.example.org": {22, 443}, "GIT.example.org.": {22, 443}, "a.example.org": {80, 443}, "bad.example.org": nil, "example.org": nil, "0x7f.1": nil,
		"10.0.0.7": nil,
	} {
		if got := p.Ports(name); !slices.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if got := compile(t, Words{Mode: None, Allow: []string{"a.example"}}).Ports("a.example"); got != nil {
		t.Errorf("none: %v", got)
	}
	if got := compile(t, Words{Mode: Learn}).Ports("a.example"); len(got) != len(LearnPorts()) {
		t.Errorf("learn: %v", got)
	}
}

func TestLiterals(t *testing.T) {
	p := compile(t, allow("a.example", "10.0.0.7:5432", "10.0.0.7:22", "10.1.0.0/16:443", "[2001:db8::7]:443", "127.0.0.1:80"))
	var got []string
	for _, l := range p.Literals() {
		got = append(got, l.String())
	}
	if want := []string{"10.0.0.7/32", "10.1.0.0/16", "2001:db8::7/128"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := p.LiteralPorts(netip.MustParsePrefix("10.0.0.7/32")); !slices.Equal(got, []uint16{22, 5432}) {
		t.Errorf("ports %v", got)
	}
}

// A refusal says what would allow it.
func TestHints(t *testing.T) {
	p := compile(t, allow("*.example.org", "git.example.net:22"))
	for _, c := range []struct {
		host string
		port uint16
		want string
	}{
		{"other.example", 443, "the rule other.example would"},
		{"other.example", 22, "the rule other.example:22 would"},
		{"git.example.net", 443, "git.example.net:22 is about other ports; the rule git.example.net would"},
		{"example.org", 443, "*.example.org does not stand for example.org itself"},
		{"a.example.org=10.0.0.7", 443, "a.example.org has the address 10.0.0.7, which is refused (private); the rule 10.0.0.7:443 would"},
		{"10.0.0.7", 443, "the rule 10.0.0.7:443 would"},
		{"2606:4700::1", 22, "the rule [2606:4700::1]:22 would"},
	} {
		if d := p.Decide(to(c.host, c.port)); !strings.Contains(d.Hint, c.want) {
			t.Errorf("%s: %q, want %q", c.host, d.Hint, c.want)
		}
	}
}

// The rule that a user adds is told as theirs, and changes no policy that is in use.
func TestWith(t *testing.T) {
	p := compile(t, allow("a.example"))
	rules, _ := Parse("b.example")
	rules[0].From = "berth network allow"
	more := p.With(rules...)
	if d := more.Decide(to("b.example", 443)); !d.Allow || d.Origin != "berth network allow" {
		t.Errorf("%+v", d)
	}
	if p.Decide(to("b.example", 443)).Allow || !more.Decide(to("a.example", 443)).Allow {
		t.Error("the first policy has changed")
	}
}

func TestBundles(t *testing.T) {
	for _, b := range Bundles() {
		rules, err := Parse("@" + b.Name)
		if err != nil || len(rules) != len(b.Words) || b.Date == "" {
			t.Errorf("%s: %v", b.Name, err)
		}
		for _, r := range rules {
			if _, below := r.Wildcard(); below || r.Bundle != "@"+b.Name || !strings.HasPrefix(r.String(), "@"+b.Name+" ") {
				t.Errorf("%s: %s", b.Name, r)
			}
		}
	}
}

// A word that is read again from its own form is the same rule.
func TestString(t *testing.T) {
	for _, word := range []string{"pypi.org", "*.a.example", "a.example:22,5432", "10.0.0.7:5432", "10.0.0.7", "[2001:db8::7]:443", "10.1.0.0/16:443",
		"[2001:db8::/32]:22"} {
		if rules, err := Parse(word); err != nil || rules[0].String() != word {
			t.Errorf("%s: %v %v", word, rules, err)
		}
	}
}

func TestCompile(t *testing.T) {
	var w Words
	if err := json.Unmarshal([]byte(`{"mode":"allow","allow":["a.example"],"deny":["10.0.0.0/8"],"opaque":["a.example:443"]}`), &w); err != nil {
		t.Fatal(err)
	}
	if d := compile(t, w).Decide(to("a.example", 443)); !d.Allow || !d.Opaque {
		t.Errorf("%+v", d)
	}
	for _, w := range []Words{{Mode: "allow", Deny: []string{"a b"}}, {Mode: "some"}, {Mode: "allow", Opaque: []string{"10.0.0.0/8"}}} {
		_, err := Compile(w)
		var e *WordError
		if !errors.As(err, &e) || e.List == "" {
			t.Errorf("%+v: %v", w, err)
		}
	}
	if _, err := Compile(allow(), Words{Mode: "some"}); err == nil {
		t.Error("a bound that is wrong was taken")
	}
}
