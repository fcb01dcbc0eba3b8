package daytona_test

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"berth/backends/daytona"
	"berth/backends/external/protocol"
	"berth/test/fakes/daytonatest"
)

// named is a request about a snapshot.
func named(r *protocol.Request, name string) *protocol.Request {
	q := *r
	q.Snapshot = name
	return &q
}

func TestSnapshots(t *testing.T) {
	fake := service(t, daytonatest.Options{})
	p, say := daytona.Provider{}, (&said{}).say
	r := request(t, "e1")
	if _, err := p.Snapshot(t.Context(), named(r, "berth-snap-o-none"), say); kindOf(err) != protocol.Gone {
		t.Errorf("of nothing: %v", err)
	}
	s, _ := talk(t, r, open(t, r))
	do(t, s, nil, "echo first >f")
	for _, name := range []string{"berth-snap-o-one", "berth-snap-o-two", "berth-snap-o-three", "x-berth-snap-o-other"} {
		if made, err := p.Snapshot(t.Context(), named(r, name), say); err != nil || made.Name != name || made.ID == "" || made.Created.IsZero() {
			t.Fatalf("%+v %v", made, err)
		}
	}
	if _, err := p.Snapshot(t.Context(), named(r, "berth-snap-o-one"), say); kindOf(err) != protocol.Conflict {
		t.Errorf("of the same name: %v", err)
	}
	list, err := p.Snapshots(t.Context(), named(r, "berth-snap-o-"), say)
	var found []string
	for _, s := range list {
		found = append(found, s.Name)
	}
	if slices.Sort(found); err != nil || strings.Join(found, " ") != "berth-snap-o-one berth-snap-o-three berth-snap-o-two" {
		t.Errorf("%q %v", found, err)
	}
	// It is made again, of one that no one has used for long.
	s, _ = talk(t, r, open(t, r))
	do(t, s, nil, "echo second >f")
	fake.PutKept("berth-snap-o-one", "inactive")
	before := fake.Boxes()[0].ID
	back, err := p.Restore(t.Context(), named(r, "berth-snap-o-one"), say)
	if b := fake.Boxes(); err != nil || len(b) != 1 || b[0].ID == before || !strings.HasPrefix(back.Ref, b[0].ID) {
		t.Fatalf("%+v %v %+v", back, err, b)
	}
	r.Ref = back.Ref
	o := open(t, r)
	s, _ = talk(t, r, o)
	if out, _, _ := do(t, s, nil, "cat f"); out != "first\n" || o.State != protocol.StateFound || o.Ref != back.Ref {
		t.Errorf("%q %+v", out, o)
	}
	// A new one begins with it; its limits are those of the snapshot.
	n := request(t, "e2")
	n.Spec.From, n.Spec.Soft = "berth-snap-o-two", []string{"cpus", "memory"}
	o = open(t, n)
	s, _ = talk(t, n, o)
	if out, _, _ := do(t, s, nil, "cat f"); out != "first\n" || strings.Join(o.Dropped, " ") != "cpus memory" {
		t.Errorf("%q %+v", out, o)
	}
	n = request(t, "e3")
	n.Spec.From = "berth-snap-o-two"
	if _, err := p.Open(t.Context(), n, say); kindOf(err) != protocol.Unsupported {
		t.Errorf("with limits of its own: %v", err)
	}
	n.Spec.From, n.Spec.Soft = "berth-snap-o-missing", []string{"cpus", "memory"}
	if _, err := p.Open(t.Context(), n, say); kindOf(err) != protocol.NotFound {
		t.Errorf("from what is missing: %v", err)
	}
	// What is missing or broken changes nothing, and neither does someone else.
	fake.PutKept("berth-snap-o-three", "error")
	other := named(n, "berth-snap-o-one")
	other.Name, other.Tags = "berth-e2", map[string]string{protocol.TagOwner: "somebody-else"}
	for want, q := range map[protocol.Kind]*protocol.Request{protocol.NotFound: named(r, "berth-snap-o-missing"), protocol.Internal: named(r, "berth-snap-o-three"), protocol.Conflict: other} {
		if _, err := p.Restore(t.Context(), q, say); kindOf(err) != want {
			t.Errorf("%s: %v", q.Snapshot, err)
		}
	}
	if _, err := p.Snapshot(t.Context(), named(other, "berth-snap-o-stolen"), say); kindOf(err) != protocol.Conflict {
		t.Errorf("%v", err)
	}
	if b := fake.Boxes(); len(b) != 2 {
		t.Errorf("%+v", b)
	}
	for _, name := range []string{"one", "two", "three", "one"} {
		if err := p.Forget(t.Context(), named(r, "berth-snap-o-"+name), say); err != nil {
			t.Error(err)
		}
	}
	if left := fake.Kept(); strings.Join(left, " ") != "x-berth-snap-o-other" {
		t.Errorf("left: %q", left)
	}
	h := named(r, "berth-snap-o-hermes")
	h.Options = map[string]string{"hermes_task": "default"}
	if _, err := p.Snapshot(t.Context(), h, say); kindOf(err) != protocol.Unsupported {
		t.Errorf("of Hermes': %v", err)
	}
}

// A snapshot's name proves whose it is as a tag would, where it has the owner's digits.
func TestProofOfSnapshots(t *testing.T) {
	const owner = "0123456789ABCDEF0123456789abcdef"
	service(t, daytonatest.Options{})
	r := request(t, "e1")
	r.Guest, r.Tags[protocol.TagOwner] = smallGuest(t), owner
	open(t, r)
	p, say := daytona.Provider{}, (&said{}).say
	for name, proved := range map[string]bool{"berth-snap-0123456789abcdef-": true, "berth-snap-fedcba9876543210-": false, "berth-snap-": false} {
		if _, err := p.Snapshot(t.Context(), named(r, name+"x"), say); err != nil {
			t.Fatal(err)
		}
		q := &protocol.Request{Berth: 1, Snapshot: name, Tags: map[string]string{protocol.TagVersion: "1", protocol.TagOwner: owner}}
		list, err := p.Snapshots(t.Context(), q, say)
		if err != nil || len(list) == 0 {
			t.Fatalf("%+v %v", list, err)
		}
		if tags := list[0].Tags; (len(tags) == 2 && tags[protocol.TagOwner] == owner) != proved {
			t.Errorf("%s: %v", name, tags)
		}
	}
}

// A snapshot is begun once: one whose answer was lost is looked for by its name.
func TestFaultsOfSnapshots(t *testing.T) {
	take := regexp.MustCompile(`/snapshot$`)
	p, say := daytona.Provider{}, (&said{}).say
	for name, c := range map[string]struct {
		fault daytonatest.Fault
		kind  protocol.Kind
		left  int
	}{
		"an answer that is lost":  {daytonatest.Fault{Method: http.MethodPost, Path: take, Done: true, Drop: true}, "", 1},
		"a request that is lost":  {daytonatest.Fault{Method: http.MethodPost, Path: take, Drop: true}, protocol.Unclear, 0},
		"an error of the service": {daytonatest.Fault{Method: http.MethodPost, Path: take, Status: 500, Body: `{"message":"oops"}`}, protocol.Unclear, 0},
		"no more room":            {daytonatest.Fault{Method: http.MethodPost, Path: take, Status: 403, Body: `{"message":"Snapshot quota exceeded"}`}, protocol.Quota, 0},
		"a key without the right": {daytonatest.Fault{Method: http.MethodPost, Path: take, Status: 403, Body: `{"message":"Forbidden"}`}, protocol.Auth, 0},
		"a look that fails once":  {daytonatest.Fault{Method: http.MethodGet, Path: regexp.MustCompile(`/snapshots/`), Status: 502}, "", 1},
		"a snapshot of tomorrow":  {daytonatest.Fault{Method: http.MethodGet, Path: regexp.MustCompile(`/snapshots/`), Status: 200, Body: `{"snapshot":{}}`}, protocol.Changed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			fake := service(t, daytonatest.Options{})
			r := request(t, "e1")
			r.Guest = smallGuest(t)
			open(t, r)
			fake.Fail(c.fault)
			fake.Requests()
			made, err := p.Snapshot(t.Context(), named(r, "berth-snap-o-one"), say)
			if n := count(fake.Requests(), http.MethodPost, take); n > 1 {
				t.Errorf("it was begun %d times", n)
			}
			if kindOf(err) != c.kind || err == nil && c.kind != "" || err == nil && made.Name != "berth-snap-o-one" || len(fake.Kept()) != c.left {
				t.Errorf("%+v %v, left: %q", made, err, fake.Kept())
			}
		})
	}
}
