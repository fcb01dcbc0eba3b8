package record

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"berth/internal/network/judge"
	"berth/internal/network/policy"
	"berth/jobs"
	"berth/jobs/store"
)

var noon = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

func at(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }

func flow(s int, name string, port uint16, up, down int64) judge.Entry {
	return judge.Entry{Time: at(s), Name: name, Addr: "192.0.2.7", Port: port, Decision: judge.Allowed, Rule: name, Origin: "task", Up: up, Down: down, Seconds: 1}
}

func refusal(s int, name string, port uint16) judge.Entry {
	return judge.Entry{Time: at(s), Name: name, Port: port, Decision: judge.Denied, Origin: "task", Hint: "no rule allows it; the rule " + name + " would", Word: name}
}

func open(t *testing.T, path string) *Log {
	t.Helper()
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func read(t *testing.T, path string) *File {
	t.Helper()
	f, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func closed(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// What is recorded is read again, and sums up to the same.
func TestRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "network.jsonl")
	l := open(t, path)
	l.Door(jobs.DoorTransparent)
	l.Note("the files of @pip are served by a CDN")
	l.Record(judge.Entry{Time: at(0), Name: "a.example", Decision: judge.Allowed, Rule: "a.example"}) // a question
	l.Record(flow(1, "a.example", 443, 10, 2000))
	l.Record(flow(2, "a.example", 443, 5, 500))
	opaque := flow(3, "db.example", 5432, 1, 1)
	opaque.Opaque = true
	l.Record(opaque)
	lost := flow(4, "down.example", 443, 0, 0)
	lost.Reason = "connect: connection refused"
	l.Record(lost)
	led := refusal(5, "b.example", 443)
	led.After = "a.example"
	l.Record(led)
	l.Record(refusal(6, "c.example", 0))
	l.Record(judge.Entry{Time: at(7), Name: "d.example", Port: 443, Decision: judge.Denied, Reason: "limit: flows at once (1000)"})
	want := l.Summary()
	closed(t, l)
	closed(t, l)
	l.Record(flow(8, "late.example", 443, 1, 1)) // after the end
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", fi, err)
	}
	if got := read(t, path).Use(); !reflect.DeepEqual(got, want) {
		t.Errorf("\n%+v\n%+v", got, want)
	}
	if want.Flows != 4 || want.Up != 16 || want.Down != 2501 || want.Opaque != 1 || want.Door != "transparent" || len(want.Notes) != 1 || want.Unrecorded != 0 {
		t.Errorf("%+v", want)
	}
	if a := want.Allowed; len(a) != 3 || a[0].Host() != "a.example:443" || a[0].Count != 2 || a[0].Down != 2500 || !a[0].Last.Equal(at(3)) || a[2].Name != "down.example" || a[2].Failed != 1 {
		t.Errorf("%+v", a)
	}
	if r := want.Refused; len(r) != 2 || r[0].Host() != "c.example" || r[1].After != "a.example" || r[1].Word != "b.example" {
		t.Errorf("%+v", r)
	}
	if m := want.Limits; len(m) != 1 || m[0].What != "flows at once (1000)" || m[0].Count != 1 {
		t.Errorf("%+v", m)
	}
}

// A torn last line, lines that are none and a missing file are read, and an earlier file is
// gone on with.
func TestTorn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "network.jsonl")
	if f := read(t, path); f.Use() != nil || len(f.Lines) != 0 {
		t.Error(f)
	}
	l := open(t, path)
	l.Record(flow(1, "a.example", 443, 1, 1))
	closed(t, l)
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString("no JSON\n[]\n" + `{"note":"` + strings.Repeat("x", maxLine) + "\"}\n" + `{"time":"2026-11-26T12:00:02Z","decision":"allow","name":"half`)
	_ = f.Close()
	if u := read(t, path).Use(); u.Flows != 1 {
		t.Errorf("%+v", u)
	}
	l = open(t, path)
	l.Record(flow(3, "b.example", 443, 1, 1))
	closed(t, l)
	if lines := read(t, path).Lines; len(lines) != 2 || lines[1].Name != "b.example" || !lines[1].Entry.Time.Equal(at(3)) {
		t.Errorf("%+v", lines)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", path); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil {
		t.Error("a link was opened")
	}
}

// After so many lines there are only sums, of so many names, and a later keeper begins another file.
func TestBounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "network.jsonl")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	old := newLoaded()
	old.have = MaxLines - 10
	l := start(f, old)
	for i := range 3000 {
		l.Record(refusal(i, fmt.Sprintf("n%d.example", i), 443))
	}
	for i := range 3000 {
		l.Record(flow(i, fmt.Sprintf("a%d.example", i), 443, 1, 1))
	}
	u := l.Summary()
	if len(l.sums.names) != maxKeys || len(u.Refused) != maxShown || u.MoreRefused != 3000-maxShown || u.MoreAllowed != 3000 || u.Flows != 3000 || u.Unrecorded != 5990 {
		t.Errorf("%d names, %d %d %d %d %d", len(l.sums.names), len(u.Refused), u.MoreRefused, u.MoreAllowed, u.Flows, u.Unrecorded)
	}
	closed(t, l)
	b, err := os.ReadFile(path)
	if err != nil || bytes.Count(b, []byte("\n")) != 11 {
		t.Errorf("%d lines, %v", bytes.Count(b, []byte("\n")), err)
	}
	if got := read(t, path).Use(); !reflect.DeepEqual(got, u) {
		t.Errorf("\n%+v\n%+v", got, u)
	}
	if err := os.WriteFile(path, bytes.Repeat([]byte(`{"time":"2026-11-26T12:00:02Z","decision":"allow","name":"a.example","port":443}`+"\n"), MaxLines), 0o600); err != nil {
		t.Fatal(err)
	}
	closed(t, open(t, path))
	if fi, err := os.Stat(path); err != nil || fi.Size() != 0 {
		t.Error(fi, err)
	}
	if f := read(t, path+".1"); len(f.Lines) != MaxLines {
		t.Error(len(f.Lines))
	}
}

// slow is a file system that stands still, or is full.
type slow struct {
	bytes.Buffer
	stands chan struct{}
	err    error
}

func (d *slow) Write(b []byte) (int, error) {
	if d.stands != nil {
		<-d.stands
	}
	if d.err != nil {
		return 0, d.err
	}
	return d.Buffer.Write(b)
}

func (d *slow) Close() error { return nil }

// A disk that stands still holds up no flow: what does not fit is counted. The end waits for a while.
func TestSlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slow{stands: make(chan struct{})}
		l := start(d, newLoaded())
		l.Record(flow(0, "a.example", 443, 1, 1))
		synctest.Wait()
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range buffered {
					l.Record(flow(0, "a.example", 443, 1, 1))
				}
			})
		}
		all.Wait()
		if u := l.Summary(); u.Flows != 4*buffered+1 || u.Unrecorded < 3*buffered-1 {
			t.Errorf("%d flows, %d without a line", u.Flows, u.Unrecorded)
		}
		if err := l.Close(); !errors.Is(err, errSlow) {
			t.Error(err)
		}
		close(d.stands)
		<-l.written
	})
}

// A full disk is said, and its lines are counted.
func TestFullDisk(t *testing.T) {
	l := start(&slow{err: errors.New("no space left on device")}, newLoaded())
	for range 10 {
		l.Record(flow(0, "a.example", 443, 1, 1))
	}
	closed(t, l)
	if u := l.Summary(); u.Unrecorded != 10 || len(u.Notes) != 1 || !strings.Contains(u.Notes[0], "no space left") {
		t.Errorf("%+v", u)
	}
}

// Nothing that was read drives a terminal, or is endless.
func TestHostileFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "network.jsonl")
	evil := `\u001b[2Jx\nrow\u202e` + strings.Repeat("y", 5000)
	names := strings.TrimSuffix(strings.Repeat(`{"name":"`+evil+`","word":"`+evil+`"},`, 300), ",")
	if err := os.WriteFile(path, []byte(
		`{"time":"2026-11-26T12:00:02Z","decision":"deny","name":"`+evil+`","port":443,"hint":"`+evil+`","up":-5,"seconds":-1}`+"\n"+
			`{"note":"`+evil+`"}`+"\n"+`{"door":"`+evil+`"}`+"\n"+`{"allow":{"id":"x","words":["`+evil+`"],"trouble":"`+evil+`"}}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		f := read(t, path)
		lines, u := f.Lines, f.Use()
		if len(lines) < 4 {
			t.Fatal(lines)
		}
		for _, s := range []string{fmt.Sprintf("%+v %+v", lines[0].Entry, lines), fmt.Sprintf("%+v %+v", lines[3].Allow, u)} {
			if strings.ContainsAny(s, "\x1b\n\u202e") || strings.Contains(s, strings.Repeat("y", 600)) {
				t.Errorf("%.300q", s)
			}
		}
		if len(u.Refused) > maxShown {
			t.Errorf("%d names", len(u.Refused))
		}
	}
	check()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(`{"sum":{"refused":[` + names + `],"notes":["` + evil + `"],"limits":[{"what":"` + evil + `"}]}}` + "\n")
	_ = f.Close()
	check()
}

// Words that the user adds are taken up once, in the order of the acts, and are
// acknowledged; those that are no rules are refused with the reason.
func TestWatch(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "network.jsonl")
	l := open(t, path)
	var got []string
	look := l.Watch(dir, func(rules []policy.Rule) error {
		for _, r := range rules {
			got = append(got, r.String()+" "+r.From)
		}
		return nil
	})
	look()
	id := func(n int) string { return fmt.Sprintf("01890000-0000-7000-8000-%012d", n) }
	add := func(n int, words ...string) {
		t.Helper()
		if err := store.AddAllow(dir, jobs.NetworkAddition{Version: 1, ID: id(n), Time: at(n), By: "ada", Words: words}); err != nil {
			t.Fatal(err)
		}
	}
	add(2, "c.example:22")
	add(1, "b.example", "10.0.0.7:5432")
	add(3, "fine.example", "https://x")
	look()
	look()
	if want := []string{"b.example berth network allow", "10.0.0.7:5432 berth network allow", "c.example:22 berth network allow"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	add(4, "d.example")
	refuses := l.Watch(dir, func([]policy.Rule) error { return errors.New("the network is off") })
	refuses()
	u := l.Summary()
	closed(t, l)
	if !slices.Equal(u.Added, []string{"b.example", "10.0.0.7:5432", "c.example:22"}) || len(u.Notes) != 2 {
		t.Errorf("%+v", u)
	}
	for n, want := range map[int]string{1: "", 3: "URL", 4: "is off"} {
		if a := read(t, path).Acknowledged(id(n)); a == nil || !strings.Contains(a.Trouble, want) || (want == "") != (a.Trouble == "") {
			t.Errorf("%d: %+v", n, a)
		}
	}
	if a := read(t, path).Acknowledged(id(5)); a != nil {
		t.Error(a)
	}
}

// The list of a run: sorted, ports only where they say something, bundles only where all of
// their words were used, and wildcards never.
func TestLearn(t *testing.T) {
	entry := func(name, addr string, port uint16, decision, word string) Line {
		return Line{Entry: &judge.Entry{Name: name, Addr: addr, Port: port, Decision: decision, Word: word}}
	}
	lines := []Line{
		entry("pypi.org", "192.0.2.1", 443, judge.Allowed, ""), entry("files.pythonhosted.org", "192.0.2.2", 443, judge.Allowed, ""),
		entry("github.com", "192.0.2.3", 443, judge.Allowed, ""), entry("github.com", "192.0.2.3", 22, judge.Allowed, ""),
		entry("asked.example", "", 0, judge.Allowed, ""), {Note: "x"},
		entry("db.example", "192.0.2.4", 5432, judge.Allowed, ""), entry("db.example", "192.0.2.4", 6379, judge.Allowed, ""), entry("db.example", "192.0.2.4", 5432, judge.Allowed, ""),
		entry("", "2001:db8::7", 8080, judge.Allowed, ""),
		entry("inner.example", "10.0.0.7", 443, judge.Denied, "10.0.0.7:443"), entry("\x1b[2J", "", 443, judge.Allowed, ""),
	}
	l := Learn(lines, &jobs.NetworkUse{Unrecorded: 3, Allowed: []jobs.NetworkName{{Name: "late.example", Port: 443}}})
	if want := []string{"@pip", "[2001:db8::7]:8080", "db.example:5432,6379", "github.com", "github.com:22", "late.example"}; !slices.Equal(l.Allow, want) {
		t.Errorf("%q", l.Allow)
	}
	if !slices.Equal(l.Refused, []string{"10.0.0.7:443"}) || !strings.Contains(strings.Join(l.Unseen, "\n"), "3 more decisions") {
		t.Errorf("%+v", l)
	}
	p, err := policy.Compile(policy.Words{Mode: policy.Allow, Allow: l.Allow})
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		e := line.Entry
		if e == nil || e.Port == 0 || strings.Contains(e.Name, "\x1b") {
			continue
		}
		q := policy.Request{Name: e.Name, Port: e.Port}
		if e.Name == "" {
			q.Addr = addrOf(t, e.Addr)
		}
		if d := p.Decide(q); d.Allow != (e.Decision == judge.Allowed) {
			t.Errorf("%+v: %+v", e, d)
		}
	}
	if got := (Learned{Allow: []string{"@pip", "b.example:22"}}).TOML(); got != "[network]\nmode = \"allow\"\nallow = [\"@pip\", \"b.example:22\"]\n" {
		t.Error(got)
	}
	if got := (Learned{Allow: []string{"a", "b", "c", "d"}}).TOML(); !strings.HasSuffix(got, "allow = [\n  \"a\",\n  \"b\",\n  \"c\",\n  \"d\",\n]\n") {
		t.Error(got)
	}
}

func addrOf(t *testing.T, s string) netip.Addr {
	t.Helper()
	a, err := netip.ParseAddr(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// It is what a judge records.
func TestJudge(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "network.jsonl"))
	p, err := policy.Compile(policy.Words{Mode: policy.Allow, Allow: []string{"a.example"}, Origin: "task"}, policy.Words{Mode: policy.Allow, Allow: []string{"*.example"}, Origin: "site"})
	if err != nil {
		t.Fatal(err)
	}
	j := judge.New(judge.Options{Policy: p, Record: l.Record, Resolver: &net.Resolver{}})
	for _, name := range []string{"a.example", "b.example", "c.test"} {
		j.Lookup(t.Context(), "", name)
	}
	closed(t, l)
	r := l.Summary().Refused
	slices.SortFunc(r, func(a, b jobs.NetworkName) int { return strings.Compare(a.Name, b.Name) })
	if len(r) != 2 || r[0].Word != "b.example" || r[0].Origin != "task" || r[1].Word != "" || r[1].Origin != "site" {
		t.Errorf("%+v", r)
	}
}
