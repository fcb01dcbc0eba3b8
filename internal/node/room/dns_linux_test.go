package room

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

// names is a table outside of a room: no port can listen there.
func names(t testing.TB, ask func(name string) bool) *Names {
	t.Helper()
	n, err := (&Room{}).Names(Judge{Ask: func(name string) ([]uint16, bool) { return nil, ask(name) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.accept.poll.Close() })
	return n
}

func packed(t testing.TB, name string, kind dnsmessage.Type, change ...func(*dnsmessage.Message)) []byte {
	t.Helper()
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 7, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
	}
	for _, f := range change {
		f(&m)
	}
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// say is an answer in short.
func say(t testing.TB, b []byte) string {
	t.Helper()
	if b == nil {
		return "nothing"
	}
	var m dnsmessage.Message
	if err := m.Unpack(b); err != nil {
		t.Fatal(err)
	}
	out := []string{strings.TrimPrefix(m.RCode.String(), "RCode")}
	for _, a := range m.Answers {
		switch r := a.Body.(type) {
		case *dnsmessage.AResource:
			out = append(out, netip.AddrFrom4(r.A).String())
		case *dnsmessage.PTRResource:
			out = append(out, r.PTR.String())
		}
	}
	if !m.Response || !m.RecursionAvailable {
		t.Errorf("%+v", m.Header)
	}
	return strings.Join(out, " ")
}

func TestAnswers(t *testing.T) {
	n := names(t, func(name string) bool { return strings.HasSuffix(name, "ok.example") })
	edns := func(m *dnsmessage.Message) {
		var h dnsmessage.ResourceHeader
		_ = h.SetEDNS0(1232, dnsmessage.RCodeSuccess, false)
		m.Additionals = []dnsmessage.Resource{{Header: h, Body: &dnsmessage.OPTResource{}}}
	}
	long := strings.Repeat("a.", 126) + "a."
	for _, c := range []struct {
		asked []byte
		want  string
	}{
		{packed(t, "ok.example.", dnsmessage.TypeA), "Success 198.18.0.1"},
		{packed(t, "OK.exaMple.", dnsmessage.TypeA, edns), "Success 198.18.0.1"},
		{packed(t, "b.ok.example.", dnsmessage.TypeAAAA), "Success"},
		{packed(t, "b.ok.example.", dnsmessage.TypeA), "Success 198.18.0.2"},
		{packed(t, "ok.example.", typeHTTPS), "Success"},
		{packed(t, "ok.example.", typeSVCB), "Success"},
		{packed(t, "ok.example.", dnsmessage.TypeTXT), "Refused"},
		{packed(t, "ok.example.", dnsmessage.TypeALL), "Refused"},
		{packed(t, "ok.example.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Questions[0].Class = dnsmessage.ClassCHAOS }), "Refused"},
		{packed(t, "no.example.", dnsmessage.TypeA), "NameError"},
		{packed(t, "no.example.", dnsmessage.TypeAAAA), "NameError"},
		{packed(t, "no.example.", typeHTTPS), "NameError"},
		{packed(t, ".", dnsmessage.TypeA), "NameError"},
		{packed(t, long, dnsmessage.TypeA), "NameError"},
		{packed(t, "a b.ok.example.", dnsmessage.TypeA), "NameError"},
		{packed(t, "a\x00.ok.example.", dnsmessage.TypeA), "NameError"},
		{packed(t, "1.0.18.198.in-addr.arpa.", dnsmessage.TypePTR), "Success ok.example."},
		{packed(t, "3.0.18.198.In-Addr.arpa.", dnsmessage.TypePTR), "NameError"},
		{packed(t, "0.0.18.198.in-addr.arpa.", dnsmessage.TypePTR), "NameError"},
		{packed(t, "1.0.0.127.in-addr.arpa.", dnsmessage.TypePTR), "NameError"},
		{packed(t, "b.0.ip6.arpa.", dnsmessage.TypePTR), "NameError"},
		{packed(t, "ok.example.", dnsmessage.TypePTR), "Refused"},
		{packed(t, "ok.example.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.OpCode = 5 }), "NotImplemented"},
		{packed(t, "ok.example.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Questions = append(m.Questions, m.Questions[0]) }), "FormatError"},
		{packed(t, "ok.example.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Questions = nil }), "FormatError"},
		{packed(t, "ok.example.", dnsmessage.TypeA, func(m *dnsmessage.Message) { m.Response = true }), "nothing"},
		{packed(t, "ok.example.", dnsmessage.TypeA)[:20], "FormatError"},
		{append(packed(t, "ok.example.", dnsmessage.TypeA)[:12], 0xc0, 12, 0, 1, 0, 1), "FormatError"}, // its name is itself
		{nil, "nothing"},
	} {
		if got := say(t, parseQuestion(c.asked).reply(n, n.ask)); got != c.want {
			t.Errorf("%q: %s, want %s", c.asked, got, c.want)
		}
	}
}

// TestAskOnce: programs that ask for one name at once are one question; a no holds for
// a moment and a yes for a while, and the address stays.
func TestAskOnce(t *testing.T) {
	var asked atomic.Int64
	allowed := false
	goOn := make(chan bool)
	n := names(t, func(string) bool {
		asked.Add(1)
		<-goOn
		return allowed
	})
	now := time.Now()
	n.now = func() time.Time { return now }
	synctest.Test(t, func(t *testing.T) {
		goOn = make(chan bool)
		for range 10 {
			go n.resolve("a.example")
		}
		synctest.Wait()
		close(goOn)
		synctest.Wait()
		if a := n.resolve("a.example"); asked.Load() != 1 || a.addr.IsValid() {
			t.Errorf("asked %d times: %+v", asked.Load(), a)
		}
		allowed = true // a rule was added
		now = now.Add(denialLife)
		first := n.resolve("a.example")
		n.resolve("b.example")
		now = now.Add(answerLife - 1)
		n.resolve("a.example")
		if asked.Load() != 3 {
			t.Errorf("asked %d times", asked.Load())
		}
		now = now.Add(1)
		if a := n.resolve("a.example"); asked.Load() != 4 || a != first || a.addr.String() != "198.18.0.1" {
			t.Errorf("asked %d times: %+v", asked.Load(), a)
		}
	})
}

// TestManyNames: there is a last name.
func TestManyNames(t *testing.T) {
	n := names(t, func(string) bool { return true })
	seen := map[netip.Addr]bool{}
	for i := range maxNames {
		a := n.resolve(fmt.Sprintf("n%d.example", i)).addr
		if name, ok := n.NameOf(a); seen[a] || !Fakes.Contains(a) || a == ownAddress || !ok || name != fmt.Sprintf("n%d.example", i) {
			t.Fatalf("%d: %s, %q", i, a, name)
		}
		seen[a] = true
	}
	if a := n.resolve("more.example"); a.addr.IsValid() || a.failed {
		t.Errorf("%+v", a)
	}
}

func TestParseResolvers(t *testing.T) {
	for text, want := range map[string]string{
		"# nameserver 9.9.9.9\nnameserver 10.0.0.1 x\n nameserver\t10.0.0.2\n": "[10.0.0.1 10.0.0.2]",
		"nameserver fe80::1%eth0\nnameserver ::ffff:10.0.0.3\n":                "[10.0.0.3]",
		"nameserver 10.0.0.1\nnameserver 10.0.0.1\nnameserver 0.0.0.0":         "[10.0.0.1 127.0.0.1]",
		"": "[127.0.0.1]",
		"nameserver nonsense\nnameserver 224.0.0.1\n": "[]",
	} {
		if got := fmt.Sprint(parseResolvers(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	many := parseResolvers(strings.Repeat("nameserver 10.0.0.1\n", 3) + "nameserver 10.0.0.2\nnameserver 10.0.0.3\nnameserver 10.0.0.4\nnameserver 10.0.0.5\n" +
		"nameserver 10.0.0.6\nnameserver 10.0.0.7\nnameserver 10.0.0.8\nnameserver 10.0.0.9\n")
	if len(many) != maxResolvers {
		t.Errorf("%v", many)
	}
}

func TestCommandCapabilities(t *testing.T) {
	kept := uint64(1<<unix.CAP_CHOWN | 1<<unix.CAP_NET_BIND_SERVICE | 1<<unix.CAP_MKNOD)
	for most, want := range map[uint64]uint64{0: 0, 1<<41 - 1: 1<<unix.CAP_CHOWN | 1<<unix.CAP_MKNOD, 1 << unix.CAP_CHOWN: 1 << unix.CAP_CHOWN} {
		if got := (&Room{most: most}).CommandCapabilities(kept); got != want {
			t.Errorf("%x: %x, want %x", most, got, want)
		}
	}
}

// FuzzQuestion: whatever a command sends, the answer is one to it, or none, and fits in a datagram.
func FuzzQuestion(f *testing.F) {
	n := names(f, func(name string) bool {
		if p, ok := plain(name); !ok || p != name {
			panic(fmt.Sprintf("asked for %q", name))
		}
		return strings.HasPrefix(name, "a")
	})
	a := packed(f, "a.example.", dnsmessage.TypeA)
	f.Add(a)
	f.Add(packed(f, "1.0.18.198.in-addr.arpa.", dnsmessage.TypePTR))
	f.Add(a[:15])
	f.Add(append(slices.Clone(a[:12]), 0xc0, 12, 0, 1, 0, 1))
	f.Add(append(slices.Clone(a), a...))
	f.Fuzz(func(t *testing.T, b []byte) {
		q := parseQuestion(b)
		q.settled(n)
		answer := q.reply(n, n.ask)
		if answer != nil && (len(answer) > 600 || string(answer[:2]) != string(b[:2]) || answer[2]&0x80 == 0) {
			t.Errorf("%x to %x", answer, b)
		}
	})
}
