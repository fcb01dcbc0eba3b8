package judge

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"berth/internal/network/policy"
)

func TestLookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := w.judge("*.example", "git.example:22")
		for _, c := range []struct {
			name  string
			ports []uint16
			want  string
		}{
			{"A.example.", []uint16{80, 443}, ""},
			{"git.example", []uint16{22, 80, 443}, ""},
			{"a.example", []uint16{80, 443}, ""},
			{"other.net", nil, "no rule allows it; the rule other.net would"},
			{"0x7f.1", nil, "not a host name"},
			{"a\x00.example", nil, "not a host name"},
		} {
			a := j.Lookup(t.Context(), "task", c.name)
			if a.Allowed != (c.ports != nil) || !slices.Equal(a.Ports, c.ports) || !strings.Contains(a.Hint, c.want) || a.Limited {
				t.Errorf("%q: %+v", c.name, a)
			}
		}
		// Once for each name that is allowed, and each time for others.
		if len(w.entries) != 5 || len(w.asked) > 0 || w.entries[0].Name != "a.example" || w.entries[0].Port != 0 {
			t.Errorf("%+v, asked %v", w.entries, w.asked)
		}
	})
}

// New names are slow, and end; names that are known, or refused, cost nothing.
func TestLookupLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.limits = Limits{Names: 120}
		j := w.judge("*.example")
		start := time.Now()
		for i := range 100 {
			if a := j.Lookup(t.Context(), "task", fmt.Sprintf("%d.example", i)); !a.Allowed {
				t.Fatalf("%d: %+v", i, a)
			}
		}
		if took := time.Since(start); took < 900*time.Millisecond || took > 1100*time.Millisecond {
			t.Errorf("100 names took %s", took)
		}
		start = time.Now()
		for range 1000 {
			j.Lookup(t.Context(), "task", "7.example")
			j.Lookup(t.Context(), "task", "other.net")
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("names that are known took %s", took)
		}
		for i := range 30 {
			a := j.Lookup(t.Context(), "task", fmt.Sprintf("more%d.example", i))
			if a.Allowed != (i < 20) || a.Limited != (i >= 20) || a.Limited && a.Hint != "limit: names of this attempt (120)" {
				t.Errorf("%d: %+v", i, a)
			}
		}
		in, wait := w.flow(j, "yet.example", 22)
		say(in, "")
		if e := wait(); e.Decision != Denied {
			t.Errorf("%+v", e)
		}
	})
	// Who asks for too many at once is told so, after 2 s.
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := w.judge("*.example")
		answers := make(chan Answer, 400)
		for i := range 400 {
			go func() { answers <- j.Lookup(t.Context(), "task", fmt.Sprintf("%d.example", i)) }()
		}
		limited := 0
		for range 400 {
			if a := <-answers; a.Limited {
				limited++
			}
		}
		if limited < 240 || limited > 260 {
			t.Errorf("%d were limited", limited)
		}
	})
}

// A rule is added while flows run: for the task, and for phases that have a network.
func TestAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		j := w.judge("a.example:22")
		off, _ := policy.Compile(policy.Words{Mode: policy.None, Origin: "done"})
		own, _ := policy.Compile(policy.Words{Mode: policy.Allow, Origin: "verify"})
		j.policies.Store(&policies{j.policies.Load().task, map[string]*policy.Policy{"done": off, "verify": own}})
		rules, err := policy.Parse("b.example:22")
		if err != nil {
			t.Fatal(err)
		}
		rules[0].From = "berth network allow"
		w.serve["93.184.216.35:22"] = answering(new(bytes.Buffer), "")
		for _, phase := range []string{"task", "verify", "done"} {
			for _, added := range []bool{false, true} {
				in, wait := w.begin(j, Request{Phase: phase, Host: "b.example", Port: 22})
				say(in, "")
				e := wait()
				if want := added && phase != "done"; (e.Decision == Allowed) != want || want && e.Origin != "berth network allow" || e.Phase != phase {
					t.Errorf("%s: %+v", phase, e)
				}
				if !added {
					old := j.policies.Load()
					if err := j.Add(rules...); err != nil {
						t.Error(err)
					}
					defer j.policies.Store(old)
				}
			}
			j.policies.Store(&policies{w.judge("a.example:22").policies.Load().task, map[string]*policy.Policy{"done": off, "verify": own}})
		}
	})
	off, _ := policy.Compile(policy.Words{Mode: policy.None})
	if err := New(Options{Policy: off}).Add(); err == nil {
		t.Error("a rule was added to a network that is off")
	}
}

// A refusal soon after an allowed server's answer names it.
func TestRedirected(t *testing.T) {
	for after, want := range map[time.Duration]bool{0: true, time.Second: true, 3 * time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.serve["93.184.216.34:80"] = answering(new(bytes.Buffer), "HTTP/1.1 302 Found\r\nLocation: http://b.example/\r\nContent-Length: 0\r\n\r\n")
			j := w.judge("a.example")
			in, wait := w.begin(j, Request{Phase: "task", Host: "a.example", Port: 80})
			say(in, "GET / HTTP/1.1\r\nHost: a.example\r\n\r\n")
			wait()
			time.Sleep(after)
			a := j.Lookup(t.Context(), "task", "b.example")
			led := strings.HasPrefix(a.Hint, "a.example, which is allowed, led to b.example, which is not: ")
			if e := w.entries[1]; led != want || (e.After == "a.example") != want || e.Hint != a.Hint {
				t.Errorf("%s: %+v, %+v", after, a, e)
			}
			if a := j.Lookup(t.Context(), "done", "b.example"); strings.Contains(a.Hint, "led to") {
				t.Errorf("another phase: %+v", a)
			}
			in, wait = w.begin(j, Request{Phase: "task", Host: "b.example", Port: 80})
			say(in, "")
			if e := wait(); (e.After == "a.example") != want {
				t.Errorf("%s: %+v", after, e)
			}
		})
	}
}
