package daytona_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"berth/backends/daytona"
	"berth/backends/external/protocol"
	"berth/test/fakes/daytonatest"
)

// Files stay over a stop, and are gone after a destroy; both may be asked for again.
func TestStopAndDestroy(t *testing.T) {
	fake := service(t, daytonatest.Options{})
	r := request(t, "e1")
	s, _ := talk(t, r, open(t, r))
	do(t, s, nil, "echo kept >f")
	p := daytona.Provider{}
	for range 2 {
		if err := p.Stop(t.Context(), r, (&said{}).say); err != nil {
			t.Fatal(err)
		}
	}
	if b := fake.Boxes()[0]; b.State != "stopped" {
		t.Errorf("%+v", b)
	}
	o := open(t, r)
	s, _ = talk(t, r, o)
	if out, _, _ := do(t, s, nil, "cat f"); out != "kept\n" || o.State != protocol.StateRestored {
		t.Errorf("%q %+v", out, o)
	}
	for range 2 {
		if err := p.Destroy(t.Context(), r, (&said{}).say); err != nil {
			t.Fatal(err)
		}
	}
	if len(fake.Boxes()) != 0 {
		t.Errorf("%+v", fake.Boxes())
	}
	if err := p.Stop(t.Context(), r, (&said{}).say); err != nil {
		t.Errorf("stop of what is not there: %v", err)
	}
}

// What is to be archived at once is, by a stop of berth's, and comes back with its files;
// what is Hermes' is not.
func TestArchive(t *testing.T) {
	fake := service(t, daytonatest.Options{})
	p := daytona.Provider{}
	r := request(t, "e1")
	r.Options["auto_archive_after_seconds"] = "0"
	s, _ := talk(t, r, open(t, r))
	do(t, s, nil, "echo kept >f")
	for range 2 {
		if err := p.Stop(t.Context(), r, (&said{}).say); err != nil {
			t.Fatal(err)
		}
		if b := fake.Boxes()[0]; b.State != "archiving" && b.State != "archived" || b.AutoArchive != 1 {
			t.Errorf("%+v", b)
		}
	}
	o := open(t, r)
	s, _ = talk(t, r, o)
	if out, _, _ := do(t, s, nil, "cat f"); out != "kept\n" || o.State != protocol.StateRestored {
		t.Errorf("%q %+v", out, o)
	}
	// One that cannot be archived is stopped all the same, and it is said.
	fake.Fail(daytonatest.Fault{Method: "POST", Path: regexp.MustCompile("/archive$"), Status: 422, Body: `{"message":"not for this class"}`})
	var says said
	if err := p.Stop(t.Context(), r, says.say); err != nil || fake.Boxes()[0].State != "stopped" || !strings.Contains(says.String(), "not for this class") {
		t.Errorf("%v %+v %q", err, fake.Boxes(), says.String())
	}
	theirs := request(t, "x")
	theirs.Guest, theirs.Name, theirs.Tags = smallGuest(t), "hermes-default", map[string]string{"hermes_task_id": "default"}
	open(t, theirs)
	r.Options["hermes_task"], r.Guest = "default", theirs.Guest
	if err := p.Stop(t.Context(), r, (&said{}).say); err != nil || fake.Boxes()[1].State != "stopped" {
		t.Errorf("%v %+v", err, fake.Boxes())
	}
}

// What does not keep files is deleted by its stop, whoever stops it.
func TestPassing(t *testing.T) {
	fake := service(t, daytonatest.Options{})
	for name, r := range map[string]*protocol.Request{"not persistent": request(t, "e1"), "auto_destroy": request(t, "e2")} {
		if r.Guest = smallGuest(t); name == "auto_destroy" {
			r.Options["auto_destroy"] = "true"
		} else {
			r.Spec.Persistent = false
		}
		open(t, r)
		if b := fake.Boxes()[0]; b.AutoDelete != 0 || b.TTL != 60 {
			t.Errorf("%s: %+v", name, b)
		}
		if err := (daytona.Provider{}).Stop(t.Context(), r, (&said{}).say); err != nil || len(fake.Boxes()) != 0 {
			t.Errorf("%s: %v %+v", name, err, fake.Boxes())
		}
	}
}

// What is not ours by every tag is not touched, by whatever way.
func TestForeign(t *testing.T) {
	fake := service(t, daytonatest.Options{})
	other := request(t, "e1")
	other.Guest = smallGuest(t)
	other.Tags["berth-owner"] = "somebody-else"
	open(t, other)
	r := request(t, "e1")
	r.Guest = other.Guest
	p := daytona.Provider{}
	for name, do := range map[string]func() error{
		"open":    func() error { _, err := p.Open(t.Context(), r, (&said{}).say); return err },
		"stop":    func() error { return p.Stop(t.Context(), r, (&said{}).say) },
		"destroy": func() error { return p.Destroy(t.Context(), r, (&said{}).say) },
	} {
		for _, ref := range []string{"", other.Ref} {
			r.Ref = ref
			if err := do(); kindOf(err) != protocol.Conflict || !strings.Contains(err.Error(), "berth-e1") {
				t.Errorf("%s, ref %q: %v", name, ref, err)
			}
		}
	}
	if b := fake.Boxes(); len(b) != 1 || b[0].State != "started" {
		t.Errorf("%+v", b)
	}
	// It is found by its id when its name is not the request's.
	r.Name = "berth-other-name"
	if err := p.Destroy(t.Context(), r, (&said{}).say); err != nil || len(fake.Boxes()) != 1 {
		t.Errorf("%v", err)
	}
}

// A sandbox of Hermes' is used and stopped, and stays.
func TestHermes(t *testing.T) {
	fake := service(t, daytonatest.Options{})
	r := request(t, "e1")
	r.Guest = smallGuest(t)
	r.Options["hermes_task"] = "default"
	p := daytona.Provider{}
	if _, err := p.Open(t.Context(), r, (&said{}).say); kindOf(err) != protocol.NotFound || len(fake.Boxes()) != 0 {
		t.Fatalf("%v", err)
	}
	theirs := request(t, "x")
	theirs.Guest, theirs.Name, theirs.Tags = r.Guest, "hermes-default", map[string]string{"hermes_task_id": "default"}
	open(t, theirs)
	before := fake.Boxes()[0]
	if o := open(t, r); o.State != protocol.StateFound || !strings.HasPrefix(o.Ref, before.ID) {
		t.Errorf("%+v", o)
	}
	if err := p.Destroy(t.Context(), r, (&said{}).say); err != nil {
		t.Fatal(err)
	}
	after := fake.Boxes()
	if len(after) != 1 || after[0].State != "stopped" || fmt.Sprint(after[0].Labels) != fmt.Sprint(before.Labels) || after[0].TTL != before.TTL {
		t.Errorf("%+v", after)
	}
}

// All of ours are found, over pages, and no one else's; one that was just made may
// be missing, and nothing is made twice for it.
func TestList(t *testing.T) {
	fake := service(t, daytonatest.Options{Lag: 1})
	small := smallGuest(t)
	for i := range 205 {
		r := request(t, fmt.Sprintf("e%d", i))
		r.Guest, r.Spec.Image, r.Spec.CPUs, r.Spec.MemoryMiB = small, "", 0, 0
		if i%100 == 3 {
			r.Tags[protocol.TagOwner] = "o2"
		}
		fake.Make(r.Name, r.Tags)
	}
	p := daytona.Provider{}
	q := &protocol.Request{Berth: 1, Tags: map[string]string{protocol.TagVersion: "1", protocol.TagOwner: "o1"}}
	if found, err := p.List(t.Context(), q, (&said{}).say); err != nil || len(found) != 0 {
		t.Fatalf("%d, %v", len(found), err)
	}
	fake.Put(fake.Boxes()[0].ID, "stopped", "", false)
	found, err := p.List(t.Context(), q, (&said{}).say)
	if err != nil || len(found) != 202 {
		t.Fatalf("%d, %v", len(found), err)
	}
	if f := found[0]; f.Running || f.Name != "berth-e0" || f.Tags[protocol.TagEnv] != "e0" || f.Created.IsZero() || !found[1].Running {
		t.Errorf("%+v %+v", f, found[1])
	}
	if _, err := p.List(t.Context(), &protocol.Request{Berth: 1}, (&said{}).say); err == nil {
		t.Error("all sandboxes of the organization, for no tags")
	}
}

// A sandbox whose end comes near lives on while it is used, and not for ever.
func TestProlonged(t *testing.T) {
	fake := service(t, daytonatest.Options{})
	r := request(t, "e1")
	r.Guest, r.Spec.Persistent = smallGuest(t), false
	open(t, r)
	id := fake.Boxes()[0].ID
	if o := open(t, r); fake.Boxes()[0].TTL != 60 || time.Until(o.Ends) > time.Hour {
		t.Errorf("%+v", fake.Boxes())
	}
	fake.Age(id, 50*time.Minute)
	o := open(t, r)
	if left := time.Until(o.Ends); fake.Boxes()[0].TTL != 111 || left < 59*time.Minute || left > 61*time.Minute {
		t.Errorf("%v %+v", time.Until(o.Ends), fake.Boxes())
	}
}

// Check tells what the key can do and what is used.
func TestCheck(t *testing.T) {
	fake := service(t, daytonatest.Options{})
	t.Setenv("DAYTONA_ORGANIZATION_ID", "org")
	t.Setenv("DAYTONA_TARGET", "us")
	p := daytona.Provider{}
	c, err := p.Check(t.Context(), &protocol.Request{Berth: 1}, (&said{}).say)
	if err != nil || len(c.Quotas) != 4 || c.Quotas[0].Limit != 10 || c.Region != "us" || !c.Persistent || !c.Image || !strings.Contains(c.Service, fake.URL) {
		t.Errorf("%+v, %v", c, err)
	}
	t.Setenv("DAYTONA_API_KEY", "dtn_wrong")
	if _, err := p.Check(t.Context(), &protocol.Request{Berth: 1}, (&said{}).say); kindOf(err) != protocol.Auth || strings.Contains(err.Error(), "dtn_wrong") {
		t.Errorf("%v", err)
	}
	fake.Close()
	if _, err := p.Check(t.Context(), &protocol.Request{Berth: 1}, (&said{}).say); kindOf(err) != protocol.Unreachable {
		t.Errorf("%v", err)
	}
}

// Ports of the sandbox are shown.
func TestPreview(t *testing.T) {
	service(t, daytonatest.Options{})
	r := request(t, "e1")
	r.Guest, r.Options["preview_ports"] = smallGuest(t), "3000, 8080"
	if o := open(t, r); len(o.Notes) != 2 || !strings.Contains(o.Notes[1], "port 8080 is at https://8080-") {
		t.Errorf("%q", o.Notes)
	}
}
