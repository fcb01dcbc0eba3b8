package modal

import (
	"slices"
	"strings"
	"testing"

	"berth/backends/external/protocol"
	"berth/test/fakes/modaltest"

	"google.golang.org/grpc/codes"
)

// take has a snapshot of the files of r made.
func take(t *testing.T, r *protocol.Request, name string) (*protocol.Snapshot, error) {
	t.Helper()
	q := *r
	q.Snapshot = name
	return Provider{}.Snapshot(limited(t), &q, t.Logf)
}

func names(t *testing.T, r *protocol.Request, prefix string) string {
	t.Helper()
	q := *r
	q.Snapshot = prefix
	list, err := Provider{}.Snapshots(limited(t), &q, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range list {
		if s.ID == "" || s.Created.IsZero() {
			t.Errorf("%+v", s)
		}
		out = append(out, s.Name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestSnapshots(t *testing.T) {
	srv := serve(t)
	r := request(t, "berth-kept")
	if _, err := take(t, r, "berth-snap-o-none"); kindOf(err) != protocol.Gone {
		t.Errorf("of nothing: %v", err)
	}
	a := open(t, r)
	sh(t, r, a, `echo first >file`, "")
	for _, name := range []string{"berth-snap-o-one", "berth-snap-o-two", "berth-snap-o-three", "berth-snap-p-other"} {
		if s, err := take(t, r, name); err != nil || s.Name != name || s.ID != srv.Published(name+":latest") {
			t.Fatalf("%+v %v", s, err)
		}
	}
	if _, err := take(t, r, "berth-snap-o-one"); kindOf(err) != protocol.Conflict {
		t.Errorf("of the same name: %v", err)
	}
	if got := names(t, r, "berth-snap-o-"); got != "berth-snap-o-one berth-snap-o-three berth-snap-o-two" {
		t.Errorf("listed %s", got)
	}
	// The sandbox is made again, and a stop and its end keep what was restored.
	sh(t, r, a, `echo second >file`, "")
	q := *r
	q.Snapshot = "berth-snap-o-one"
	back, err := Provider{}.Restore(limited(t), &q, t.Logf)
	if err != nil || back.Ref == a.Ref || len(srv.Running()) != 1 {
		t.Fatalf("%+v %v", back, err)
	}
	if a = open(t, r); a.Ref != back.Ref || a.State != protocol.StateFound {
		t.Errorf("%+v after %+v", a, back)
	}
	for range 2 {
		if out, _ := sh(t, r, a, `cat file`, ""); out != "first\n" {
			t.Errorf("%q", out)
		}
		if err := (Provider{}).Stop(limited(t), r, t.Logf); err != nil {
			t.Fatal(err)
		}
		a = open(t, r)
	}
	// Another environment begins with it, one that keeps nothing, too.
	for _, persistent := range []bool{true, false} {
		n := request(t, "berth-from")
		n.Spec.From, n.Spec.Persistent = "berth-snap-o-two", persistent
		a := open(t, n)
		if out, _ := sh(t, n, a, `cat file; echo own >file`, ""); out != "first\n" {
			t.Errorf("%q %+v", out, a)
		}
		if persistent {
			if err := (Provider{}).Stop(limited(t), n, t.Logf); err != nil {
				t.Fatal(err)
			}
			if out, _ := sh(t, n, open(t, n), `cat file`, ""); out != "own\n" {
				t.Errorf("its own files after a stop: %q", out)
			}
		}
		if err := (Provider{}).Destroy(limited(t), n, t.Logf); err != nil {
			t.Fatal(err)
		}
	}
	n := request(t, "berth-nothing")
	n.Spec.From = "berth-snap-o-missing"
	if _, err := (Provider{}).Open(limited(t), n, t.Logf); kindOf(err) != protocol.NotFound {
		t.Errorf("from what is missing: %v", err)
	}
	// What is missing changes nothing, and neither does someone else.
	q.Snapshot = "berth-snap-o-missing"
	running := srv.Running()[0].ID
	if _, err := (Provider{}).Restore(limited(t), &q, t.Logf); kindOf(err) != protocol.NotFound || srv.Running()[0].ID != running {
		t.Errorf("%v", err)
	}
	q.Snapshot, q.Tags = "berth-snap-o-one", map[string]string{protocol.TagOwner: "somebody else"}
	if _, err := (Provider{}).Restore(limited(t), &q, t.Logf); kindOf(err) != protocol.Conflict || srv.Running()[0].ID != running {
		t.Errorf("%v", err)
	}
	if _, err := take(t, &q, "berth-snap-o-stolen"); kindOf(err) != protocol.Conflict {
		t.Errorf("%v", err)
	}
	// They outlive their environment; then they are forgotten, twice without harm.
	if err := (Provider{}).Destroy(limited(t), r, t.Logf); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two", "three", "one"} {
		q.Snapshot = "berth-snap-o-" + name
		if err := (Provider{}).Forget(limited(t), &q, t.Logf); err != nil {
			t.Error(err)
		}
	}
	if got := names(t, r, "berth-snap-"); got != "berth-snap-p-other" || len(srv.Images()) != 2 { // and the one that was asked for
		t.Errorf("left: %s, %v", got, srv.Images())
	}
}

// A snapshot whose name cannot be given is not left behind, and one whose name's
// answer is lost is found.
func TestFaultsOfSnapshots(t *testing.T) {
	for _, method := range []string{"TaskSnapshotFilesystem", "ImagePublish", "ImageGetByTag", "ImageListTags", "ImageDelete", "SandboxTerminateV2", "SandboxCreateV2"} {
		for _, after := range []bool{false, true} {
			srv := serve(t)
			r := request(t, "berth-faults")
			sh(t, r, open(t, r), `echo kept >file`, "")
			srv.Inject(modaltest.Fault{Method: method, Err: modaltest.Code(codes.Unavailable, "try again"), After: after})
			if _, err := take(t, r, "berth-snap-o-one"); err != nil {
				t.Errorf("%s: %v", method, err)
			}
			q := *r
			q.Snapshot = "berth-snap-o-one"
			if _, err := (Provider{}).Restore(limited(t), &q, t.Logf); err != nil {
				t.Errorf("%s: %v", method, err)
			}
			if got := names(t, r, "berth-snap-"); got != "berth-snap-o-one" {
				t.Errorf("%s: %s", method, got)
			}
			if out, _ := sh(t, r, open(t, r), `cat file`, ""); out != "kept\n" {
				t.Errorf("%s: %q", method, out)
			}
			if err := (Provider{}).Forget(limited(t), &q, t.Logf); err != nil {
				t.Errorf("%s: %v", method, err)
			}
			if err := (Provider{}).Destroy(limited(t), r, t.Logf); err != nil {
				t.Errorf("%s: %v", method, err)
			}
			if len(srv.Pending()) != 0 || len(srv.Images()) != 1 || len(srv.Running()) != 0 {
				t.Errorf("%s, after %v: pending %+v, left: %v", method, after, srv.Pending(), srv.Images())
			}
		}
	}
	srv := serve(t)
	r := request(t, "berth-refused")
	open(t, r)
	srv.Inject(modaltest.Fault{Method: "ImagePublish", Err: modaltest.Code(codes.ResourceExhausted, "too many names")})
	if _, err := take(t, r, "berth-snap-o-one"); kindOf(err) != protocol.Quota || len(srv.Images()) != 1 {
		t.Errorf("%v, left: %v", err, srv.Images())
	}
}
