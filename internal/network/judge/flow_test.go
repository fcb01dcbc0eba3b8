package judge

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"berth/internal/network/policy"
)

// A connection with the right name in its ClientHello is carried, whole or in pieces.
func TestTLS(t *testing.T) {
	for name, at := range map[string]struct {
		host string
		port uint16
		rule string
	}{
		"443":           {"a.example", 443, "*.example"},
		"upper case":    {"A.EXAMPLE.", 443, "a.example"},
		"port 80":       {"a.example", 80, "a.example"},
		"another port":  {"a.example", 8443, "a.example:8443"},
		"opaque":        {"a.example", 443, "a.example"},
		"a literal one": {"93.184.216.34", 443, "93.184.216.34:443"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.serve["93.184.216.34:"+strconv.Itoa(int(at.port))] = tlsEcho
			rules := []string{at.rule}
			if name == "opaque" {
				rules = append(rules, "opaque", at.rule)
			}
			c, wait := w.flow(w.judge(rules...), at.host, at.port)
			_, pool := certificate()
			s := tls.Client(c, &tls.Config{ServerName: "a.example", RootCAs: pool})
			go func() {
				_, _ = s.Write([]byte("ping"))
				_ = s.CloseWrite()
			}()
			if b, err := io.ReadAll(s); string(b) != "ping" || err != nil {
				t.Errorf("%s: %q %v", name, b, err)
			}
			e := wait()
			if e.Decision != Allowed || e.Rule != at.rule || e.Origin != "task" || e.Addr != "93.184.216.34" || e.Up < 200 || e.Down < 200 || e.Reason != "" {
				t.Errorf("%s: %+v", name, e)
			}
			if e.Opaque != (name == "opaque" || name == "a literal one") {
				t.Errorf("%s: opaque %t", name, e.Opaque)
			}
		})
	}
}

// What is refused before a byte has left.
func TestRefused(t *testing.T) {
	plain := string(hello(t, "a.example", nil))
	for name, c := range map[string]struct {
		host   string
		port   uint16
		rules  []string
		say    string
		answer string // of what the program reads
		want   string // of reason or hint
	}{
		"no rule":              {"c.example", 443, []string{"a.example"}, "", "\x15\x03\x03\x00\x02\x02\x31", "no rule allows it; the rule c.example would"},
		"another port":         {"a.example", 25, []string{"a.example"}, "", "", "about other ports"},
		"a literal one":        {"93.184.216.34", 443, []string{"a.example"}, "", "\x15", "93.184.216.34:443"},
		"inet_aton":            {"0x7f.1", 80, []string{"0.0.0.0/0:80"}, "", "400 Bad Request", "not a host name"},
		"a terminal's":         {"\x1b]0;x\a", 80, []string{"a.example"}, "", "400 Bad Request", `"\x1b]0;x\a"`},
		"the other name":       {"b.example", 443, []string{"a.example", "b.example"}, plain, "\x15", "asks for the server a.example"},
		"no name":              {"a.example", 443, []string{"a.example"}, string(hello(t, "", nil)), "\x15", "names no server"},
		"the outer name":       {"a.example", 443, []string{"a.example"}, string(craft(extension(0xfe0d, nil), sni("front.example"))), "\x15", "front.example"},
		"a name with a NUL":    {"a.example", 443, []string{"a.example"}, string(craft(sni("a.example\x00"))), "\x15", "server name"},
		"64 KiB":               {"a.example", 443, []string{"a.example"}, string(records(bigHello(64<<10), 16<<10)), "\x15", "larger than 16 KiB"},
		"no TLS":               {"a.example", 443, []string{"a.example"}, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", "\x15", "does not begin with a TLS"},
		"the other name on 80": {"b.example", 80, []string{"a.example", "b.example"}, plain, "\x15", "asks for the server a.example"},
		"private":              {"in.example", 443, []string{"*.example"}, string(hello(t, "in.example", nil)), "\x15", "10.0.0.7, which is refused (private)"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			in, wait := w.flow(w.judge(c.rules...), c.host, c.port)
			got := say(in, c.say)
			e := wait()
			if !strings.Contains(got, c.answer) || c.answer == "" && got != "" {
				t.Errorf("%s: answered %q", name, got)
			}
			if e.Decision != Denied || !strings.Contains(e.Reason+e.Hint, c.want) || e.Up != 0 || len(w.dialled) > 0 || len(w.entries) != 1 {
				t.Errorf("%s: %+v, dialled %v", name, e, w.dialled)
			}
			b, err := json.Marshal(e)
			if err != nil || bytes.ContainsFunc(b, func(r rune) bool { return r < ' ' }) {
				t.Errorf("%s: %q %v", name, b, err)
			}
		})
	}
}

// A server name is looked for on other ports, too, once the connection is there.
func TestOtherPort(t *testing.T) {
	for name, c := range map[string]struct{ host, say, want string }{
		"the other name":  {"b.example", string(hello(t, "a.example", nil)), "asks for the server a.example"},
		"no name":         {"a.example", string(hello(t, "", nil)), "names no server"},
		"a denied one":    {"93.184.216.34", string(hello(t, "bad.example", nil)), "denied by bad.example"},
		"half of a hello": {"a.example", "\x16\x03\x01\x02", "ended within its first bytes"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var got bytes.Buffer
			w.serve["93.184.216.34:8443"] = answering(&got, "")
			w.serve["93.184.216.35:8443"] = answering(&got, "")
			j := w.judge("*.example:8443", "93.184.216.34:8443")
			p := *j.policies.Load().task
			p.Deny, _ = policy.ParseDeny("bad.example")
			j.policies.Store(&policies{task: &p})
			in, wait := w.flow(j, c.host, 8443)
			say(in, c.say)
			if e := wait(); !strings.Contains(e.Hint+e.Reason, c.want) || got.Len() > 0 || e.Up > 0 {
				t.Errorf("%s: %+v, the server has %d bytes", name, e, got.Len())
			}
		})
	}
	// A server that speaks first, and bytes that only look like a beginning.
	for name, text := range map[string]string{"ssh": "SSH-2.0-x\r\n", "a byte": "\x16", "nothing": "", "MySQL": "\x16\x40\x00\x01"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			var got bytes.Buffer
			w.serve["93.184.216.34:22"] = func(c net.Conn) {
				_, _ = io.WriteString(c, "hello ")
				answering(&got, "bye")(c)
			}
			in, wait := w.flow(w.judge("a.example:22"), "a.example", 22)
			if s := say(in, text); s != "hello bye" || got.String() != text {
				t.Errorf("%s: %q, the server has %q", name, s, &got)
			}
			if e := wait(); e.Decision != Allowed || !e.Opaque || e.Up != int64(len(text)) || e.Down != 9 || e.Reason != "" {
				t.Errorf("%s: %+v", name, e)
			}
		})
	}
}

// A program that ends its direction at once still has its answer.
func TestSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.serve["93.184.216.34:22"] = answering(new(bytes.Buffer), "late")
		in, wait := w.flow(w.judge("a.example:22"), "a.example", 22)
		_ = in.CloseWrite()
		if b, _ := io.ReadAll(in); string(b) != "late" {
			t.Errorf("%q", b)
		}
		if e := wait(); e.Reason != "" || e.Down != 4 {
			t.Errorf("%+v", e)
		}
	})
}

// A name is resolved once; a second flow judges what it says then.
func TestRebinding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		answers := []string{"93.184.216.34", "127.0.0.1"}
		w.resolve = func(string) ([]netip.Addr, error) {
			a := netip.MustParseAddr(answers[0])
			answers = answers[1:]
			return []netip.Addr{a}, nil
		}
		w.serve["93.184.216.34:22"] = answering(new(bytes.Buffer), "")
		j := w.judge("a.example:22")
		for range 2 {
			in, wait := w.flow(j, "a.example", 22)
			say(in, "")
			wait()
		}
		if len(w.dialled) != 1 || w.entries[1].Decision != Denied || !strings.Contains(w.entries[1].Hint, "loopback") || w.entries[1].Addr != "127.0.0.1" {
			t.Errorf("dialled %v, %+v", w.dialled, w.entries)
		}
	})
}

// All addresses are judged; the first that is allowed and answers is dialled.
func TestAddresses(t *testing.T) {
	for addrs, want := range map[string]string{
		"127.0.0.1 93.184.216.34":               "93.184.216.34:22",
		"::ffff:127.0.0.1 ::ffff:93.184.216.34": "93.184.216.34:22",
		"2606:4700::1 93.184.216.34":            "[2606:4700::1]:22 93.184.216.34:22",
		"93.184.216.40":                         "",
		"64:ff9b::7f00:1 169.254.169.254":       "",
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.own = []netip.Addr{netip.MustParseAddr("93.184.216.40")}
			w.names["a.example"] = addrs
			w.serve["93.184.216.34:22"] = answering(new(bytes.Buffer), "")
			in, wait := w.flow(w.judge("a.example:22"), "a.example", 22)
			say(in, "")
			if e := wait(); strings.Join(w.dialled, " ") != want || (e.Decision == Allowed) != (want != "") {
				t.Errorf("%s: dialled %v, %+v", addrs, w.dialled, e)
			}
		})
	}
}

// What cannot be resolved or reached is no refusal, and is said.
func TestUnreached(t *testing.T) {
	for host, want := range map[string]string{"gone.example": "knows no address of gone.example", "a.example": "connect: connection refused",
		"single": "knows no address of single"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			in, wait := w.flow(w.judge("*.example", "single"), host, 80)
			got := say(in, "GET / HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
			if e := wait(); e.Decision != Allowed || !strings.Contains(e.Reason, want) || !strings.Contains(got, "502 Bad Gateway") || !strings.Contains(got, want) {
				t.Errorf("%s: %+v, %q", host, e, got)
			}
		})
	}
}

// Half a ClientHello, half a request, and silence end in time.
func TestTimes(t *testing.T) {
	for name, c := range map[string]struct {
		port uint16
		say  string
		idle time.Duration
		want string
	}{
		"half a hello":   {443, string(hello(t, "a.example", nil)[:100]), 30 * time.Second, "limit: the first bytes were not complete"},
		"half a request": {80, "GET / HTTP/1.1\r\nHost: a", 30 * time.Second, "limit: the first bytes were not complete"},
		"nothing":        {22, "", 30 * time.Second, "limit: no first byte"},
		"idle":           {22, "x", 15 * time.Minute, "limit: idle"},
		"idle TLS":       {443, string(hello(t, "a.example", nil)), 15 * time.Minute, "limit: idle"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			for _, port := range []string{"22", "443", "80"} {
				w.serve["93.184.216.34:"+port] = func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
			}
			in, wait := w.flow(w.judge("a.example", "a.example:22"), "a.example", c.port)
			go func() { _, _ = io.WriteString(in, c.say) }()
			start := time.Now()
			e := wait()
			if took := time.Since(start); !strings.Contains(e.Reason, c.want) || took < c.idle || took > c.idle*2 {
				t.Errorf("%s: %s, %+v", name, took, e)
			}
		})
	}
	// A flow that has a byte now and then is not idle, and one whose program stays when
	// its server has gone ends soon.
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.serve["93.184.216.34:22"] = func(c net.Conn) {
			for range 5 {
				time.Sleep(10 * time.Minute)
				_, _ = io.WriteString(c, "x")
			}
			_ = c.(*end).CloseWrite()
			_, _ = io.Copy(io.Discard, c)
		}
		in, wait := w.flow(w.judge("a.example:22"), "a.example", 22)
		go func() { _, _ = io.WriteString(in, "x") }()
		b, _ := io.ReadAll(in)
		start := time.Now()
		if e := wait(); string(b) != "xxxxx" || e.Reason != "" || time.Since(start) != doneIdle {
			t.Errorf("%q, %s, %+v", b, time.Since(start), e)
		}
	})
}

// The attempt's end ends its flows.
func TestCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.serve["93.184.216.34:22"] = func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
		ctx, cancel := context.WithCancel(t.Context())
		in, out := pair()
		result := make(chan Entry)
		go func() { result <- w.judge("a.example:22").Flow(ctx, Request{Host: "a.example", Port: 22}, out) }()
		_, _ = io.WriteString(in, "x")
		synctest.Wait()
		cancel()
		if e := <-result; e.Reason != "the attempt has ended" || e.Up != 1 {
			t.Errorf("%+v", e)
		}
		w.running.Wait()
	})
}

// Either direction ends alone.
func TestHalfClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var got bytes.Buffer
		w.serve["93.184.216.34:22"] = answering(&got, strings.Repeat("down", 100_000))
		in, wait := w.flow(w.judge("a.example:22"), "a.example", 22)
		down := say(in, strings.Repeat("up", 100_000))
		if e := wait(); len(down) != 400_000 || got.Len() != 200_000 || e.Up != 200_000 || e.Down != 400_000 {
			t.Errorf("%d, %d, %+v", len(down), got.Len(), e)
		}
	})
}

func TestByteLimits(t *testing.T) {
	for name, l := range map[string]Limits{"up": {Up: 25_000}, "down": {Down: 25_000}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.limits = l
			w.serve["93.184.216.34:22"] = func(c net.Conn) {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			}
			j := w.judge("*.example:22")
			for i, want := range []string{"", "", "limit: bytes " + name} {
				in, wait := w.flow(j, "a.example", 22)
				say(in, strings.Repeat("x", 10_000))
				if e := wait(); !strings.HasPrefix(e.Reason, want) || want == "" && e.Reason != "" {
					t.Errorf("%s, flow %d: %+v", name, i, e)
				}
			}
		})
	}
}

// A flow that is never silent ends when its time is up.
func TestTotalTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limits = Limits{Total: time.Hour}
		w.serve["93.184.216.34:22"] = func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
		in, wait := w.flow(w.judge("a.example:22"), "a.example", 22)
		began, writes := time.Now(), make(chan struct{})
		go func() {
			defer close(writes)
			for {
				if _, err := io.WriteString(in, "x"); err != nil {
					return
				}
				time.Sleep(time.Minute)
			}
		}()
		if e := wait(); e.Reason != "limit: total time (1h0m0s)" || time.Since(began) != time.Hour || e.Up < 59 {
			t.Errorf("after %s: %+v", time.Since(began), e)
		}
		_ = in.Close()
		<-writes
	})
}

// Flows at once are bounded; those of a second wait.
func TestFlowLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limits = Limits{Flows: 3}
		w.serve["93.184.216.34:22"] = func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
		j := w.judge("a.example:22")
		var open []*end
		var waits []func() Entry
		for range 3 {
			in, wait := w.flow(j, "a.example", 22)
			_, _ = io.WriteString(in, "x")
			open, waits = append(open, in), append(waits, wait)
		}
		synctest.Wait()
		in, out := pair()
		if e := j.Flow(t.Context(), Request{Host: "a.example", Port: 22}, out); e.Reason != "limit: flows at once (3)" || e.Decision != Denied {
			t.Errorf("%+v", e)
		}
		_ = in.Close()
		for i, c := range open {
			_ = c.Close()
			waits[i]()
		}
	})
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limits = Limits{FlowRate: 10}
		w.serve["93.184.216.34:22"] = answering(new(bytes.Buffer), "")
		j := w.judge("a.example:22")
		start := time.Now()
		for range 30 {
			in, wait := w.flow(j, "a.example", 22)
			say(in, "")
			wait()
		}
		if took := time.Since(start); took < 1900*time.Millisecond || took > 2100*time.Millisecond {
			t.Errorf("30 flows took %s", took)
		}
	})
}

// The door is told before a byte is read, and a refusal is then its own to tell.
func TestAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.serve["93.184.216.34:443"] = tlsEcho
		j := w.judge("a.example")
		for host, want := range map[string]bool{"a.example": true, "b.example": false, "0x7f.1": false} {
			answers := 0
			in, wait := w.begin(j, Request{Host: host, Port: 443, Answer: func(d policy.Decision) {
				if answers++; d.Allow != want || d.Allow == (d.Hint != "") {
					t.Errorf("%s: %+v", host, d)
				}
			}})
			synctest.Wait()
			if answers != 1 {
				t.Errorf("%s: %d answers", host, answers)
			}
			if want {
				_ = in.Close()
			} else if b, _ := io.ReadAll(in); len(b) > 0 {
				t.Errorf("%s: %q", host, b)
			}
			if e := wait(); (e.Decision == Allowed) != want {
				t.Errorf("%s: %+v", host, e)
			}
		}
	})
}

// A real connection is carried as one in memory is.
func TestLoopback(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	w := newWorld(t)
	j := w.judge("a.example:22")
	j.o.Dial = func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
		if to.String() != "93.184.216.34:22" {
			t.Errorf("dialled %s", to)
		}
		return new(net.Dialer).DialContext(ctx, network, l.Addr().String())
	}
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		b, _ := io.ReadAll(c)
		_, _ = c.Write(bytes.ToUpper(b))
		_ = c.Close()
	}()
	in, wait := w.flow(j, "a.example", 22)
	if got := say(in, "text"); got != "TEXT" {
		t.Errorf("%q", got)
	}
	if e := wait(); e.Up != 4 || e.Down != 4 || e.Reason != "" {
		t.Errorf("%+v", e)
	}
}
