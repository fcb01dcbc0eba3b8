package policy

import (
	"net/netip"
	"strings"
	"testing"
)

// TestRefuses: a rule that allows more than a policy does is refused with the reason, and
// what is within one of its rules is not.
func TestRefuses(t *testing.T) {
	p, err := Compile(Words{Mode: Allow, Allow: []string{"*.example.org", "a.test:443,8080", "10.0.0.0/8:22", "0.0.0.0/0:9000", "127.0.0.1:5432", "@pip"}, Deny: []string{"bad.example.org", "b.example.org:80"}},
		Words{Mode: Open, Deny: []string{"8.8.4.0/24"}})
	if err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]string{
		"x.example.org": "", "*.x.example.org": "", "*.example.org": "", "a.test:443": "", "a.test:8080,443": "", "10.1.0.0/16:22": "", "10.0.0.7:22": "", "8.8.0.0/16:9000": "",
		"127.0.0.1:5432": "", "pypi.org": "", "b.example.org:443": "", "@pip": "", "b.example.org": "", "8.0.0.0/7:9000": "",
		"example.org":           "no rule allows all of example.org",
		"*.org":                 "no rule allows all of *.org",
		"notexample.org":        "no rule allows",
		"a.test":                "no rule allows all of a.test",
		"b.test":                "no rule allows all of b.test",
		"a.test:22":             "no rule allows all of a.test:22",
		"*.a.test:443":          "no rule allows all of *.a.test:443",
		"0.0.0.0/0:22":          "no rule allows",
		"10.0.0.0/7:22":         "no rule allows",
		"10.0.0.7:23":           "no rule allows all of 10.0.0.7:23",
		"169.254.169.254:9000":  "no rule allows", // within a network that opens no such class
		"127.0.0.2:9000":        "no rule allows",
		"10.0.0.0/24:9000":      "no rule allows",
		"[2001:db8::1]:22":      "no rule allows",
		"bad.example.org":       "it is denied by bad.example.org",
		"*.bad.example.org":     "",
		"b.example.org:80":      "it is denied by b.example.org:80",
		"8.8.4.7:9000":          "it is denied by 8.8.4.0/24",
		"x.example.org:443,444": "no rule allows all of x.example.org:444",
	} {
		rules, err := Parse(word)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, r := range rules {
			if why := p.Refuses(r); why != "" {
				got = why
				break
			}
		}
		if (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
	name, _ := Parse("a.example")
	for mode, want := range map[string]string{Open: "", None: "the network is off there", Learn: "", "other": "the network is off there"} {
		if got := (&Policy{Mode: mode}).Refuses(name[0]); got != want {
			t.Errorf("%s: %q", mode, got)
		}
	}
	if (&Policy{Mode: Allow, Bounds: []Policy{{Mode: None}}}).Refuses(name[0]) == "" {
		t.Error("a bound was not asked")
	}
}

// Whatever a rule is that a policy does not refuse, alone it allows nothing that the
// policy denies but by a deny.
func FuzzRefuses(f *testing.F) {
	f.Add("*.example.org a.test:443", "x.example.org", "x.example.org", "8.8.8.8", uint16(443))
	f.Add("10.0.0.0/8:22", "10.1.0.0/16:22", "", "10.1.2.3", uint16(22))
	f.Add("0.0.0.0/0:22", "169.254.169.254:22", "", "169.254.169.254", uint16(22))
	f.Add("0.0.0.0/1:22 [::]/0:22", "[64:ff9b::]/96:22", "", "64:ff9b::7f00:1", uint16(22))
	f.Add("a.test 10.0.0.1:80,443", "a.test", "a.test", "10.0.0.1", uint16(80))
	f.Fuzz(func(t *testing.T, outer, word, name, addr string, port uint16) {
		p, err := Compile(Words{Mode: Allow, Allow: strings.Fields(outer)})
		if err != nil {
			return
		}
		rules, err := Parse(word)
		if err != nil {
			return
		}
		q := Request{Name: name, Port: port}
		q.Addr, _ = netip.ParseAddr(addr)
		for _, r := range rules {
			if p.Refuses(r) != "" {
				continue
			}
			inner := Policy{Mode: Allow, Allow: []Rule{r}}
			if inner.Decide(q).Allow && !p.Decide(q).Allow {
				t.Errorf("%q is within %q, and allows %+v, which that denies: %+v", word, outer, q, p.Decide(q))
			}
		}
	})
}
