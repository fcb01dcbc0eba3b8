package daytona_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime/metrics"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/backends/daytona"
	"berth/backends/external/protocol"
	"berth/internal/link/session"
	"berth/jobs"
	"berth/test/fakes/daytonatest"
)

// do runs a command and returns what it wrote.
func do(t *testing.T, s *session.Session, stdin io.Reader, command string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	p, err := s.Start(session.StartRequest{Command: jobs.Command{Shell: command}, Session: "default", Stdin: stdin}, &out, &errs)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), r.Exit.Code
}

// A sandbox is made with all that it must have, and a session in it is a session:
// streams apart, every byte, input with an end, exit codes, state. Requests are
// few, and a warm command has none.
func TestOpenAndUse(t *testing.T) {
	fake := service(t, daytonatest.Options{})
	r := request(t, "e1")
	o := open(t, r)
	if o.State != protocol.StateMade || o.Cost == nil || o.Cost.PerHour <= 0 || time.Until(o.Ends) < 30*time.Minute {
		t.Errorf("%+v", o)
	}
	b := fake.Boxes()[0]
	if b.Name != r.Name || b.Labels[protocol.TagEnv] != "e1" || b.Image != "debian:12" || b.CPU != 1 || b.Memory != 2 || b.AutoStop != 10 || b.AutoDelete != 43200 || b.AutoArchive != 10080 || b.TTL != 60+43200 {
		t.Errorf("%+v", b)
	}
	s, end := talk(t, r, o)
	polls := 0
	asked := fake.Requests()
	for _, q := range asked {
		if q.Method == "GET" && q.Path == "/api/sandbox/"+b.ID {
			polls++
		}
	}
	if n := len(asked) - polls; n > 8 {
		t.Errorf("%d requests to open a cold one: %v", n, asked)
	}

	var all []byte
	for i := range 256 {
		all = append(all, byte(i))
	}
	out, errs, code := do(t, s, bytes.NewReader(all), "cat; printf 'e\\0' >&2; cd /usr; X=1; (exit 7)")
	if out != string(all) || errs != "e\x00" || code != 7 {
		t.Errorf("%q %q %d", out, errs, code)
	}
	out, _, _ = do(t, s, nil, "pwd; echo $X; test -t 0 || echo no terminal; (: </dev/tty) 2>/dev/null || echo none at all; wc -c; echo \"[$ZDOTDIR]\"")
	if out != "/usr\n1\nno terminal\nnone at all\n0\n[]\n" {
		t.Errorf("%q", out)
	}
	if asked := fake.Requests(); len(asked) > 0 {
		t.Errorf("warm commands cost requests: %v", asked)
	}

	// The guest's end is the stream's.
	if err := s.Quit(t.Context()); err != nil {
		t.Error(err)
	}
	if code, err := end(); code != 0 || err != nil {
		t.Errorf("the stream ended with %d, %v", code, err)
	}
	fake.Requests()

	// Again: it is found, the guest is there, and it is fewer requests.
	o = open(t, r)
	if o.State != protocol.StateFound || len(fake.Boxes()) != 1 {
		t.Errorf("%+v", o)
	}
	s, _ = talk(t, r, o)
	if asked := fake.Requests(); len(asked) > 5 {
		t.Errorf("%d requests to open a running one: %v", len(asked), asked)
	}
	_ = s.Close()

	// It was deleted, and is made again: what is remembered of it costs requests, too.
	fake.Remove(b.ID)
	fake.Requests()
	o = open(t, r)
	s, _ = talk(t, r, o)
	n, again := 0, fake.Boxes()[0].ID
	for _, q := range fake.Requests() {
		if q.Method != "GET" || q.Path != "/api/sandbox/"+again {
			n++
		}
	}
	if n > 8 || o.State != protocol.StateRebuilt {
		t.Errorf("%d requests to make a lost one anew: %+v", n, o)
	}
	_ = s.Close()
}

// The end of a stream's input is the end of the guest.
func TestInputEnds(t *testing.T) {
	service(t, daytonatest.Options{})
	r := request(t, "e1")
	s, end := talk(t, r, open(t, r))
	_ = s.Close()
	if code, err := end(); code == 0 && err == nil {
		t.Errorf("the guest did not notice: %d, %v", code, err)
	}
}

// What a daemon of before 2026 does not have is done otherwise.
func TestOldDaemon(t *testing.T) {
	fake := service(t, daytonatest.Options{Old: true})
	r := request(t, "e1")
	s, _ := talk(t, r, open(t, r))
	if out, _, _ := do(t, s, nil, "echo ok"); out != "ok\n" {
		t.Errorf("%q", out)
	}
	found := false
	for _, q := range fake.Requests() {
		found = found || strings.HasSuffix(q.Path, "/bulk-upload") && q.Status == 200
	}
	if !found {
		t.Error("it was not uploaded the old way")
	}
	_ = s.Close()
}

// A connection that is cut ends the stream with an error. The next stream ends what
// the lost one had running, and begins again.
func TestConnectionCut(t *testing.T) {
	fake := service(t, daytonatest.Options{})
	r := request(t, "e1")
	o := open(t, r)
	s, end := talk(t, r, o)
	home := fake.Boxes()[0].Home
	do(t, s, nil, "(while :; do date +%s%N >"+home+"/beat; sleep 0.05; done) >/dev/null 2>&1 & echo $! >"+home+"/pid")
	beat := func() string { b, _ := os.ReadFile(filepath.Join(home, "beat")); return string(b) }
	for until := time.Now().Add(2 * time.Minute); beat() == "" && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
	id := fake.Boxes()[0].ID
	fake.Fail(daytonatest.Fault{Method: "DELETE", Path: regexp.MustCompile("/pty/"), Times: 2, Drop: true}) // nor does the client reach it
	fake.Cut(id)
	if code, err := end(); err == nil || kindOf(err) != protocol.Unreachable {
		t.Fatalf("%d, %v", code, err)
	}
	select {
	case <-s.Gone():
	case <-time.After(2 * time.Minute):
		t.Fatal("the session goes on without a stream")
	}
	s, _ = talk(t, r, open(t, r))
	last := beat()
	time.Sleep(200 * time.Millisecond)
	if beat() != last {
		t.Error("what the lost guest had started still runs")
	}
	if out, _, _ := do(t, s, nil, "echo again"); out != "again\n" {
		t.Errorf("%q", out)
	}
	_ = s.Close()
}

// A sandbox in which the guest cannot run says what its shell said.
func TestGuestCannotRun(t *testing.T) {
	service(t, daytonatest.Options{})
	r := request(t, "e1")
	o := open(t, r)
	if err := os.WriteFile(o.Guest, []byte("#!/no/such/program\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	_, _, err := talkTo(t.Context(), r, o)
	if kindOf(err) != protocol.Unreachable || !strings.Contains(err.Error(), "not found") {
		t.Errorf("%v", err)
	}
	// It is put there again, because it is not what it is called after.
	o = open(t, r)
	s, _ := talk(t, r, o)
	if out, _, _ := do(t, s, nil, "echo ok"); out != "ok\n" {
		t.Errorf("%q", out)
	}
	_ = s.Close()
}

// A stream of a sandbox that has stopped or gone says so.
func TestStreamOfNothing(t *testing.T) {
	fake := service(t, daytonatest.Options{})
	r := request(t, "e1")
	o := open(t, r)
	fake.Put(fake.Boxes()[0].ID, "stopped", "", false)
	if _, _, err := talkTo(t.Context(), r, o); kindOf(err) != protocol.Gone {
		t.Errorf("stopped: %v", err)
	}
	r.Ref = "sb-none"
	if _, _, err := talkTo(t.Context(), r, o); kindOf(err) != protocol.Gone {
		t.Errorf("gone: %v", err)
	}
	q := *r
	q.Argv = []string{"/bin/sh", "-c", "ls"}
	if _, err := (daytona.Provider{}).Stream(t.Context(), &q, nil); kindOf(err) != protocol.Unsupported && kindOf(err) != protocol.Gone {
		t.Errorf("another command: %v", err)
	}
}

// Files of any size go through in bounded memory, both ways.
func TestMuch(t *testing.T) {
	service(t, daytonatest.Options{})
	r := request(t, "e1")
	s, _ := talk(t, r, open(t, r))
	size := int64(48 << 20)
	if v := os.Getenv("BERTH_DAYTONA_MUCH"); v != "" { // MiB
		if _, err := fmt.Sscan(v, &size); err != nil {
			t.Fatal(err)
		}
		size <<= 20
	}
	most := heap(t)
	up, down := sha256.New(), sha256.New()
	var out hashing
	out.h = down
	began := time.Now()
	p, err := s.Start(session.StartRequest{Command: jobs.Command{Argv: []string{"cat"}}, Stdin: io.TeeReader(io.LimitReader(rand.NewChaCha8([32]byte{}), size), up)}, &out, nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := p.Wait(); err != nil || res.Exit.Code != 0 {
		t.Fatalf("%+v, %v", res, err)
	}
	t.Logf("%d MiB up and down in %v", size>>20, time.Since(began))
	if out.n != size || !bytes.Equal(up.Sum(nil), down.Sum(nil)) {
		t.Errorf("%d bytes of %d, or others", out.n, size)
	}
	m := most()
	t.Logf("%d MiB of memory", m>>20)
	if m > 32<<20 {
		t.Errorf("%d MiB of memory", m>>20)
	}
	_ = s.Close()
}

type hashing struct {
	h io.Writer
	n int64
}

func (h *hashing) Write(p []byte) (int, error) { h.n += int64(len(p)); return h.h.Write(p) }

// heap watches how much is in use at each collection: what is between them depends
// on how much of the machine the collector gets.
func heap(t *testing.T) (most func() uint64) {
	stop, done := make(chan struct{}), make(chan uint64, 1)
	go func() {
		var top uint64
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		for {
			metrics.Read(live)
			top = max(top, live[0].Value.Uint64())
			select {
			case <-stop:
				done <- top
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	var once sync.Once
	end := func() { once.Do(func() { close(stop) }) }
	t.Cleanup(end)
	return func() uint64 { end(); return <-done }
}

// Fifty at once stay within the least rates of the service, and each has its own.
func TestFiftyAtOnce(t *testing.T) {
	fake := service(t, daytonatest.Options{Creates: 300, Requests: 10000})
	small := smallGuest(t)
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			r := request(t, fmt.Sprintf("e%d", i))
			r.Guest = small
			o, err := daytona.Provider{}.Open(t.Context(), r, (&said{}).say)
			if err != nil || o.State != protocol.StateMade {
				t.Errorf("%d: %+v, %v", i, o, err)
			}
		})
	}
	all.Wait()
	names := map[string]bool{}
	for _, b := range fake.Boxes() {
		names[b.Name] = true
	}
	if len(names) != 50 {
		t.Errorf("%d sandboxes", len(names))
	}
	for _, q := range fake.Requests() {
		if q.Status == 429 {
			t.Fatalf("too many requests: %v", q)
		}
	}
}

// Fifty at once where there is room for a few: each is made in the end, once, whether
// the service says for how long it wants to be left alone or not, and says what it
// waits for.
func TestFiftyWhereFewMay(t *testing.T) {
	for name, mute := range map[string]bool{"it says for how long": false, "it does not say": true} {
		t.Run(name, func(t *testing.T) {
			fake := service(t, daytonatest.Options{Creates: 20, Requests: 250, Window: time.Second, Mute: mute, Together: 50})
			small := smallGuest(t)
			var says said
			var all sync.WaitGroup
			for i := range 50 {
				all.Go(func() {
					r := request(t, fmt.Sprintf("e%d", i))
					r.Guest = small
					o, err := daytona.Provider{}.Open(t.Context(), r, says.say)
					if err != nil || o.State != protocol.StateMade {
						t.Errorf("%d: %+v, %v", i, o, err)
					}
				})
			}
			all.Wait()
			names := map[string]bool{}
			for _, b := range fake.Boxes() {
				names[b.Name] = true
			}
			if len(names) != 50 || len(fake.Boxes()) != 50 {
				t.Errorf("%d sandboxes, %d names", len(fake.Boxes()), len(names))
			}
			if !strings.Contains(says.String(), "Daytona has had too many requests; asking again in") {
				t.Errorf("it says %q", says.String())
			}
		})
	}
}

// A stream that is refused for its rate is opened all the same: neither the terminal
// nor its connection has begun.
func TestStreamRefusedForItsRate(t *testing.T) {
	fake := service(t, daytonatest.Options{})
	r := request(t, "e1")
	o := open(t, r)
	fake.Fail(daytonatest.Fault{Method: "POST", Path: atPTY, Status: 429})
	fake.Fail(daytonatest.Fault{Method: "GET", Path: regexp.MustCompile("/connect$"), Status: 429, Times: 2})
	s, _ := talk(t, r, o)
	if out, _, _ := do(t, s, nil, "echo ok"); out != "ok\n" {
		t.Errorf("%q", out)
	}
	_ = s.Close()
}
