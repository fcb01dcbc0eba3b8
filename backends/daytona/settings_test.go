package daytona

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"berth/backends/external/protocol"

	"github.com/google/go-cmp/cmp"
)

func kind(err error) protocol.Kind {
	if e := (*protocol.Error)(nil); errors.As(explain(err), &e) {
		return e.Kind
	}
	return ""
}

func TestSettle(t *testing.T) {
	key := map[string]string{"DAYTONA_API_KEY": "dtn_1"}
	for name, c := range map[string]struct {
		options, env map[string]string
		want         settings
		kind         protocol.Kind
	}{
		"a key alone":         {nil, key, settings{url: defaultURL, key: "dtn_1", deleted: deleteAfter, archive: archiveAfter}, ""},
		"no key":              {nil, nil, settings{}, protocol.Auth},
		"the configuration":   {map[string]string{"api_url": "https://d.example.com/api/", "target": "eu", "organization_id": "o"}, map[string]string{"DAYTONA_API_KEY": "k", "DAYTONA_API_URL": "https://other.example.com", "DAYTONA_TARGET": "us"}, settings{url: "https://d.example.com/api", key: "k", org: "o", target: "eu", deleted: deleteAfter, archive: archiveAfter}, ""},
		"variables":           {nil, map[string]string{"DAYTONA_API_KEY": "k", "DAYTONA_SERVER_URL": "http://127.0.0.1:3000", "DAYTONA_TARGET": "us", "DAYTONA_ORGANIZATION_ID": "o"}, settings{url: "http://127.0.0.1:3000", key: "k", org: "o", target: "us", deleted: deleteAfter, archive: archiveAfter}, ""},
		"a token, expanded":   {map[string]string{"api_token": "a${DAYTONA_X}b"}, map[string]string{"DAYTONA_X": "-"}, settings{url: defaultURL, key: "a-b", deleted: deleteAfter, archive: archiveAfter}, ""},
		"a key, expanded":     {nil, map[string]string{"DAYTONA_API_KEY": "${DAYTONA_X}", "DAYTONA_X": "k"}, settings{url: defaultURL, key: "k", deleted: deleteAfter, archive: archiveAfter}, ""},
		"a token of nothing":  {map[string]string{"api_token": "${DAYTONA_X}"}, nil, settings{}, protocol.Auth},
		"a token, half":       {map[string]string{"api_token": "${DAYTONA_X"}, nil, settings{}, protocol.Input},
		"a JWT":               {nil, map[string]string{"DAYTONA_JWT_TOKEN": "j", "DAYTONA_ORGANIZATION_ID": "o"}, settings{url: defaultURL, key: "j", org: "o", deleted: deleteAfter, archive: archiveAfter}, ""},
		"a JWT of nobody":     {nil, map[string]string{"DAYTONA_JWT_TOKEN": "j"}, settings{}, protocol.Auth},
		"a key in pieces":     {nil, map[string]string{"DAYTONA_API_KEY": "dtn\nX: y"}, settings{}, protocol.Auth},
		"no https":            {map[string]string{"api_url": "http://d.example.com"}, key, settings{}, protocol.Input},
		"a URL with a key":    {map[string]string{"api_url": "https://u:p@d.example.com"}, key, settings{}, protocol.Input},
		"destroyed":           {map[string]string{"auto_destroy": "true"}, key, settings{url: defaultURL, key: "dtn_1", archive: archiveAfter}, ""},
		"destroyed later":     {map[string]string{"auto_destroy": "true", "auto_destroy_after_seconds": "61", "auto_archive_after_seconds": "0", "preview_ports": `["80", 443]`}, key, settings{url: defaultURL, key: "dtn_1", deleted: 2, strict: true, archive: 1, put: true, ports: []int{80, 443}}, ""},
		"destroyed in a word": {map[string]string{"auto_destroy_after_seconds": "1h0m1s"}, key, settings{url: defaultURL, key: "dtn_1", deleted: 61, strict: true, archive: archiveAfter}, ""},
		"no number":           {map[string]string{"auto_destroy_after_seconds": "soon"}, key, settings{}, protocol.Input},
		"no flag":             {map[string]string{"auto_destroy": "maybe"}, key, settings{}, protocol.Input},
		"no port":             {map[string]string{"preview_ports": "70000"}, key, settings{}, protocol.Input},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := settle(c.options, func(n string) string { return c.env[n] })
			if kind(err) != c.kind {
				t.Fatalf("%v", err)
			}
			if err == nil {
				if d := cmp.Diff(c.want, *s, cmp.AllowUnexported(settings{})); d != "" {
					t.Error(d)
				}
			}
			if err != nil && strings.Contains(err.Error(), "dtn") {
				t.Errorf("the key is shown: %v", err)
			}
		})
	}
}

func TestWanted(t *testing.T) {
	allow := func(l ...string) protocol.Network { return protocol.Network{Mode: protocol.NetworkAllow, Allow: l} }
	ten := strings.Split(strings.Repeat("a.example.com ", 11), " ")[:11]
	for name, c := range map[string]struct {
		s       settings
		p       protocol.Spec
		want    create
		dropped string
		notes   int
		kind    protocol.Kind
	}{
		"whole GiB":             {p: protocol.Spec{Image: "docker://debian:12", MemoryMiB: 1025, DiskMiB: 10240}, want: create{Build: &build{"FROM debian:12\n"}, Memory: 2, Disk: 10}},
		"too much disk":         {p: protocol.Spec{Image: "a", DiskMiB: 10241}, kind: protocol.Unsupported},
		"too much, not wanted":  {p: protocol.Spec{Image: "a", DiskMiB: 51200, Soft: []string{"disk"}}, want: create{Build: &build{"FROM a\n"}, Disk: 10}, notes: 1},
		"a template":            {s: settings{fixed: "snap"}, p: protocol.Spec{Image: "a", CPUs: 1, MemoryMiB: 5120, Soft: []string{"cpus", "memory"}}, want: create{Snapshot: "snap"}, dropped: "cpus memory"},
		"a template with more":  {s: settings{fixed: "snap"}, p: protocol.Spec{CPUs: 2}, kind: protocol.Unsupported},
		"an image of its own":   {s: settings{image: "b:1", target: "eu"}, p: protocol.Spec{Image: "a"}, want: create{Build: &build{"FROM b:1\n"}, Target: "eu"}},
		"two lines of an image": {p: protocol.Spec{Image: "a\nRUN rm"}, kind: protocol.Input},
		"a file":                {p: protocol.Spec{Image: "/images/a.sif"}, kind: protocol.Input},
		"a GPU":                 {p: protocol.Spec{GPU: "nvidia"}, kind: protocol.Unsupported},
		"keeps files":           {s: settings{deleted: 100}, p: protocol.Spec{Persistent: true}, want: create{Delete: 100, TTL: 102}},
		"keeps files for long":  {s: settings{deleted: 100, strict: true}, p: protocol.Spec{Persistent: true}, want: create{Delete: 100, TTL: 2}},
		"no network":            {p: protocol.Spec{Network: protocol.Network{Mode: "none"}}, want: create{NoNetwork: true}},
		"nothing allowed":       {p: protocol.Spec{Network: allow()}, want: create{NoNetwork: true}},
		"some allowed":          {p: protocol.Spec{Network: allow("10.1.2.3/8", "1.1.1.1", "*.Example.com")}, want: create{CIDRs: "10.0.0.0/8,1.1.1.1/32", Domains: "*.example.com"}},
		"IPv6":                  {p: protocol.Spec{Network: allow("2001:db8::/32")}, kind: protocol.Unsupported},
		"no name":               {p: protocol.Spec{Network: allow("localhost")}, kind: protocol.Input},
		"a star inside":         {p: protocol.Spec{Network: allow("a.*.com")}, kind: protocol.Input},
		"eleven":                {p: protocol.Spec{Network: allow(ten...)}, kind: protocol.Unsupported},
		"another mode":          {p: protocol.Spec{Network: protocol.Network{Mode: "host"}}, kind: protocol.Unsupported},
		"no life":               {p: protocol.Spec{LifetimeSeconds: -1}, kind: protocol.Internal},
	} {
		t.Run(name, func(t *testing.T) {
			c.p.LifetimeSeconds += 61
			if name == "no life" {
				c.p.LifetimeSeconds = 0
			}
			r := &protocol.Request{Name: "berth-x", Tags: map[string]string{"berth": "1"}, Spec: &c.p}
			c.want.Name, c.want.Labels, c.want.Stop, c.want.TTL = r.Name, r.Tags, idleAfter, max(2, c.want.TTL)
			w, dropped, notes, err := c.s.wanted(r)
			if kind(err) != c.kind {
				t.Fatalf("%v", err)
			}
			if err != nil {
				return
			}
			if d := cmp.Diff(&c.want, w); d != "" || strings.Join(dropped, " ") != c.dropped || len(notes) != c.notes {
				t.Error(d, dropped, notes)
			}
		})
	}
}

// A sandbox that reaches more than is wanted is never taken for one that does not.
func TestSameNetwork(t *testing.T) {
	for name, c := range map[string]struct {
		b    sandbox
		w    create
		want bool
	}{
		"none, none":      {sandbox{NoNetwork: true}, create{NoNetwork: true}, true},
		"open, none":      {sandbox{}, create{NoNetwork: true}, false},
		"open, some":      {sandbox{}, create{Domains: "a.example.com"}, false},
		"more, some":      {sandbox{Domains: "a.example.com,b.example.com"}, create{Domains: "a.example.com"}, false},
		"another order":   {sandbox{CIDRs: "10.0.0.0/8, 1.1.1.1/32"}, create{CIDRs: "1.1.1.1/32,10.0.0.0/8"}, true},
		"none, some":      {sandbox{NoNetwork: true}, create{CIDRs: "1.1.1.1/32"}, true},
		"some, open":      {sandbox{CIDRs: "1.1.1.1/32"}, create{}, false},
		"nothing, either": {sandbox{}, create{}, true},
	} {
		if got := sameNetwork(&c.b, &c.w); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestKeyStays: the service names the address of a sandbox's daemon, and the key
// goes to none where others can read it.
func TestKeyStays(t *testing.T) {
	for to, want := range map[string]protocol.Kind{
		"https://proxy.example.com/toolbox":     "",
		"http://proxy.localhost:4000/toolbox":   "",
		"http://127.0.0.1:4000/toolbox":         "",
		"http://proxy.example.com/toolbox":      protocol.Unsupported,
		"http://localhost.example.com/toolbox":  protocol.Unsupported,
		"https://u:p@proxy.example.com/toolbox": protocol.Unsupported,
		"ftp://proxy.example.com":               protocol.Unsupported,
		"":                                      protocol.Unsupported,
	} {
		c := newClient(&settings{url: defaultURL, key: "dtn_1"}, protocol.VerbStream, nil)
		sent := errors.New("sent")
		c.http.RetryMax = 0
		c.http.HTTPClient.Transport = roundTrip(func(r *http.Request) (*http.Response, error) { return nil, sent })
		b := &sandbox{ID: "s", Toolbox: to}
		_, err := c.run(context.Background(), b, "look", "true")
		_, cerr := c.connect(context.Background(), b)
		if want == "" && (!errors.Is(err, sent) || !errors.Is(cerr, sent)) {
			t.Errorf("%s: %v, %v", to, err, cerr)
		}
		if want != "" && (kind(err) != want || kind(cerr) != want) {
			t.Errorf("%s: %v, %v", to, err, cerr)
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
