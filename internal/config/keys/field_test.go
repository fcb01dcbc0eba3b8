package keys

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"berth/internal/config/strict"
	"berth/jobs"
)

// filled gives a field of a place a value that says something.
func filled(t *testing.T, f *Field, p *jobs.Place) {
	t.Helper()
	switch v := f.In(p).(type) {
	case *string:
		*v = "x"
	case *int:
		*v = 3
	case *bool:
		*v = true
	case *jobs.Bytes:
		*v = jobs.GiB
	case *time.Duration:
		*v = time.Hour
	case *jobs.USD:
		*v = 5
	case *[]string:
		*v = []string{"A=1"}
	case *[]jobs.Mount:
		*v = []jobs.Mount{{Source: "/a", Destination: "/b"}}
	case *map[string]string:
		*v = map[string]string{"a": "b"}
	case **jobs.SSHSpec:
		*v = &jobs.SSHSpec{Host: "h"}
	default:
		t.Fatalf("%s is a %T", f.Name, v)
	}
}

// apart are the parts of a place that no row names: what is settled, not said, and
// what is read and put as a whole.
var apart = []string{"Level", "Scheduler", "Profile", "Login", "Target", "Credentials", "Prices", "Rooms"}

// TestFields: each part of a place has a row, names are given once, and each row is
// seen by what goes through the table.
func TestFields(t *testing.T) {
	var names, flags, envs []string
	rows := map[string]bool{}
	for i := range Fields {
		f := &Fields[i]
		names = append(names, f.Name)
		if f.Help != "" {
			flags = append(flags, f.Flag)
		}
		if f.Env != "" {
			envs = append(envs, f.Flag)
		}
		if f.Flag == "" && f.Help+f.Env != "" || f.Table() == "" || f.Meaning != "" && !f.Task {
			t.Errorf("%s: help without a flag, no table, or a key of the configuration alone", f.Name)
		}
		var p jobs.Place
		if f.Said(p) {
			t.Errorf("%s is said by nothing", f.Name)
		}
		filled(t, f, &p)
		if !f.Said(p) {
			t.Errorf("%s: not said by %+v", f.Name, p)
		}
		for _, part := range reflect.VisibleFields(reflect.TypeFor[jobs.Place]()) {
			if !reflect.ValueOf(p).FieldByIndex(part.Index).IsZero() {
				rows[part.Name] = true
			}
		}
		var below, above jobs.Place
		Under(&below, p, "")
		Over(&above, p)
		if same := f.Said(below) && f.Said(above); same == f.Apart {
			t.Errorf("%s: under %+v, over %+v", f.Name, below, above)
		}
	}
	for _, list := range [][]string{names, flags, envs} {
		slices.Sort(list)
		if len(slices.Compact(slices.Clone(list))) != len(list) {
			t.Errorf("twice: %s", strings.Join(list, " "))
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[jobs.Place]()) {
		if rows[f.Name] == slices.Contains(apart, f.Name) {
			t.Errorf("%s: a row, or not", f.Name)
		}
	}
}

// TestUnder: what is said stays, lists of options are added, variables are put over
// each other, and a place that shares a part with another one leaves it alone.
func TestUnder(t *testing.T) {
	shared := &jobs.DockerSpec{User: "1:1"}
	p := jobs.Place{Network: jobs.Network{Mode: "none"}, Env: []string{"A=2", "B"}, Docker: shared, Slurm: jobs.SlurmOptions{Extra: []string{"--nice"}}}
	low := jobs.Place{
		Network: jobs.Network{Mode: "host"}, GPU: "amd", Env: []string{"A=1", "C=3"}, Docker: &jobs.DockerSpec{User: "2:2", Pids: 7},
		Slurm: jobs.SlurmOptions{Extra: []string{"--exclusive"}, Partition: "batch"}, Image: "/x.sif", SSH: &jobs.SSHSpec{Host: "h"},
	}
	Under(&p, low, "")
	want := jobs.Place{
		Network: jobs.Network{Mode: "none"}, GPU: "amd", Env: []string{"C=3", "A=2", "B"}, Docker: &jobs.DockerSpec{User: "1:1", Pids: 7},
		Slurm: jobs.SlurmOptions{Extra: []string{"--exclusive", "--nice"}, Partition: "batch"},
	}
	if diff := cmp.Diff(want, p); diff != "" || shared.Pids != 0 {
		t.Errorf("%s, and shared is %+v", diff, shared)
	}
	q := jobs.Place{}
	if Under(&q, low, "slurm"); q.GPU != "" || q.Slurm.Partition != "batch" {
		t.Errorf("of one table: %+v", q)
	}
}

// What a stronger layer allows takes the place of what a weaker one does; what is denied
// adds up, and goes with the one that opens the network. Bounds add up in any case.
func TestNetworkOver(t *testing.T) {
	bound := jobs.NetworkBound{Origin: "project P", Mode: "none"}
	low := jobs.Network{Allow: []string{"a"}, Deny: []string{"x"}, Opaque: []string{"a:1"}, Bounds: []jobs.NetworkBound{bound}}
	for _, c := range []struct{ high, want jobs.Network }{
		{jobs.Network{}, jobs.Network{Mode: "allow", Allow: low.Allow, Deny: low.Deny, Opaque: low.Opaque, Bounds: low.Bounds}},
		{jobs.Network{Allow: []string{"b"}, Deny: []string{"y"}},
			jobs.Network{Mode: "allow", Allow: []string{"b"}, Deny: []string{"x", "y"}, Opaque: low.Opaque, Bounds: low.Bounds}},
		{jobs.Network{Mode: "open", Deny: []string{"y"}}, jobs.Network{Mode: "open", Allow: low.Allow, Deny: []string{"y"}, Opaque: low.Opaque, Bounds: low.Bounds}},
	} {
		above, below := jobs.Place{Network: low}, jobs.Place{Network: c.high}
		Over(&above, jobs.Place{Network: c.high})
		Under(&below, jobs.Place{Network: low}, "")
		for _, p := range []jobs.Place{above, below} {
			if diff := cmp.Diff(c.want, p.Network); diff != "" {
				t.Errorf("%+v\n%s", c.high, diff)
			}
		}
	}
}

// TestVia: ways out, and what is none.
func TestVia(t *testing.T) {
	for via, good := range map[string]bool{
		"node": true, "login": true, "proxy:http://p.example:3128": true, "proxy:socks5h://[2001:db8::1]:1080": true, "proxy:http://10.0.0.1:80/": true,
		"": false, "proxy": false, "proxy:": false, "proxy:http://p.example": false, "proxy:https://p.example:1": true, "proxy:https://p.example": false, "proxy:socks5://p.example:1": false,
		"proxy:http://u:secret@p.example:1": false, "proxy:http://p.example:1/x": false, "http://p.example:1": false, "proxy:http://:1": false,
	} {
		if why := Via(via); (why == "") != good || strings.Contains(why, "secret") {
			t.Errorf("%q: %q", via, why)
		}
	}
}

// TestHostname: what may name a host.
func TestHostname(t *testing.T) {
	for name, good := range map[string]bool{
		"a": true, "Node-7.lake.example": true, strings.Repeat("a", 63): true,
		strings.Repeat("a", 64): false, "a_b": false, "a b": false, "-a": false, "a-": false, ".a": false, "a/b": false, "ä": false,
	} {
		if why := hostname(name); (why == "") != good {
			t.Errorf("%q: %q", name, why)
		}
	}
}

// A host is one word, and not a list as binds are.
func TestKinds(t *testing.T) {
	for name, want := range map[string]strict.Kind{"terminal.host": strict.String, "terminal.bind": strict.List, "network.allow": strict.List, "resources.memory": strict.String} {
		if got := Find(name).Kind(); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}
