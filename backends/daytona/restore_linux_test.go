package daytona_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"berth/backends/daytona"
	"berth/backends/external/protocol"
	"berth/test/fakes/daytonatest"
)

var atLabels = regexp.MustCompile(`/labels$`)

// before has an environment whose file says "now", and a snapshot of it in which that
// says "then".
func before(t *testing.T, fake *daytonatest.Server) *protocol.Request {
	t.Helper()
	r := request(t, "e1")
	r.Guest = smallGuest(t)
	open(t, r)
	put(t, fake, "then")
	if _, err := (daytona.Provider{}).Snapshot(t.Context(), named(r, "berth-snap-o-one"), (&said{}).say); err != nil {
		t.Fatal(err)
	}
	put(t, fake, "now")
	return r
}

func put(t *testing.T, fake *daytonatest.Server, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(fake.Boxes()[0].Home, "f"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// files opens the environment, and tells what its file says.
func files(t *testing.T, fake *daytonatest.Server, r *protocol.Request) string {
	t.Helper()
	o := open(t, r)
	for _, b := range fake.Boxes() {
		if strings.HasPrefix(o.Ref, b.ID+"@") {
			text, err := os.ReadFile(filepath.Join(b.Home, "f"))
			if err != nil {
				return err.Error()
			}
			return string(text)
		}
	}
	return "no sandbox " + o.Ref
}

// A restore that fails changes nothing, wherever it fails; given again it goes on, and
// leaves one sandbox, which a destroy finds by whatever berth remembers.
func TestRestoreFails(t *testing.T) {
	p := daytona.Provider{}
	for name, c := range map[string]struct {
		fault daytonatest.Fault
		kind  protocol.Kind // "" is that it is restored all the same
		says  string
		boxes int
	}{
		"no room for another":               {daytonatest.Fault{Method: http.MethodPost, Path: atCreate, Status: 403, Body: `{"message":"quota exceeded"}`}, protocol.Quota, "the environment is as it was", 1},
		"the service is away":               {daytonatest.Fault{Method: http.MethodPost, Path: atCreate, Status: 500, Times: 9}, protocol.Unreachable, "the environment is as it was", 1},
		"it cannot be labelled":             {daytonatest.Fault{Method: http.MethodPut, Path: atLabels, Status: 403, Body: `{"message":"Forbidden"}`}, protocol.Auth, "the environment is as it was", 1},
		"the answer to the create is lost":  {daytonatest.Fault{Method: http.MethodPost, Path: atCreate, Done: true, Drop: true}, "", "", 1},
		"the answer to the labels is lost":  {daytonatest.Fault{Method: http.MethodPut, Path: atLabels, Done: true, Drop: true}, "", "", 1},
		"the answer to the removal is lost": {daytonatest.Fault{Method: http.MethodDelete, Path: atGet, Done: true, Drop: true}, "", "", 1},
		"the one from before stays":         {daytonatest.Fault{Method: http.MethodDelete, Path: atGet, Status: 500}, "", "", 2},
	} {
		t.Run(name, func(t *testing.T) {
			fake := service(t, daytonatest.Options{})
			r := before(t, fake)
			fake.Fail(c.fault)
			back, err := p.Restore(t.Context(), named(r, "berth-snap-o-one"), (&said{}).say)
			if kindOf(err) != c.kind || (err == nil) != (c.kind == "") || err != nil && !strings.Contains(err.Error(), c.says) || len(fake.Boxes()) != c.boxes {
				t.Fatalf("%v %+v", err, fake.Boxes())
			}
			if err != nil {
				if got := files(t, fake, r); got != "now" {
					t.Errorf("after the failure: %s", got)
				}
				if back, err = p.Restore(t.Context(), named(r, "berth-snap-o-one"), (&said{}).say); err != nil {
					t.Fatalf("again: %v", err)
				}
			}
			stale := *r
			r.Ref = back.Ref
			if left := c.boxes == 2; left != strings.Contains(strings.Join(back.Notes, "\n"), "is left") {
				t.Errorf("%q", back.Notes)
			} else if got := files(t, fake, &stale); !left && got != "then" {
				t.Errorf("by what berth knew before it: %s", got)
			}
			if got := files(t, fake, r); got != "then" {
				t.Errorf("restored: %s", got)
			}
			if err := p.Destroy(t.Context(), r, (&said{}).say); err != nil || len(fake.Boxes()) != 0 {
				t.Errorf("%v %+v", err, fake.Boxes())
			}
		})
	}
}

// A restore that is interrupted at any of its requests leaves an environment with all
// the files from before, or all those of the snapshot; what else it leaves is found by
// its tags, or by the next restore, which goes through, time and again.
func TestRestoreInterrupted(t *testing.T) {
	p := daytona.Provider{}
	for name, at := range map[string]daytonatest.Fault{
		"before the create":  {Method: http.MethodPost, Path: atCreate, Drop: true, Times: 99},
		"in the create":      {Method: http.MethodPost, Path: atCreate, Done: true, Drop: true, Times: 99},
		"before the labels":  {Method: http.MethodPut, Path: atLabels, Drop: true, Times: 99},
		"after the labels":   {Method: http.MethodPut, Path: atLabels, Done: true, Drop: true, Times: 99},
		"before the removal": {Method: http.MethodDelete, Path: atGet, Drop: true, Times: 99},
		"after the removal":  {Method: http.MethodDelete, Path: atGet, Done: true, Drop: true, Times: 99},
	} {
		t.Run(name, func(t *testing.T) {
			fake := service(t, daytonatest.Options{})
			r := before(t, fake)
			ctx, stop := context.WithCancel(t.Context())
			at.Met = stop
			fake.Fail(at)
			fake.Fail(daytonatest.Fault{Method: http.MethodDelete, Path: atGet, Drop: true, Times: 99}) // killed: nothing is taken back
			fake.Requests()
			if _, err := p.Restore(ctx, named(r, "berth-snap-o-one"), (&said{}).say); err == nil {
				t.Fatal("it went on")
			}
			fake.Heal()
			// Files of both, of one of them whole; never those of a new sandbox.
			got := files(t, fake, r)
			if want := map[bool]string{false: "now", true: "then"}[name == "after the removal"]; got != want {
				t.Errorf("its file says %q", got)
			}
			all, err := p.List(t.Context(), &protocol.Request{Berth: 1, Tags: map[string]string{protocol.TagOwner: "o1"}}, (&said{}).say)
			if err != nil || len(all) != len(fake.Boxes()) {
				t.Errorf("gc sees %+v of %+v, %v", all, fake.Boxes(), err)
			}
			for range 3 {
				back, err := p.Restore(t.Context(), named(r, "berth-snap-o-one"), (&said{}).say)
				if err != nil || len(fake.Boxes()) != 1 {
					t.Fatalf("again: %v %+v", err, fake.Boxes())
				}
				r.Ref = back.Ref
			}
			if got := files(t, fake, r); got != "then" {
				t.Errorf("restored: %s", got)
			}
		})
	}
}

// What stands under the other name and is someone else's is not touched.
func TestRestoreBesideForeign(t *testing.T) {
	fake := service(t, daytonatest.Options{})
	r := before(t, fake)
	fake.Make(r.Name+"-2", map[string]string{"mine": "1"})
	if _, err := (daytona.Provider{}).Restore(t.Context(), named(r, "berth-snap-o-one"), (&said{}).say); kindOf(err) != protocol.Conflict || len(fake.Boxes()) != 2 {
		t.Errorf("%v %+v", err, fake.Boxes())
	}
	if got := files(t, fake, r); got != "now" {
		t.Errorf("its file says %q", got)
	}
}
