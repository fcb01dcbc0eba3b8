package modal

import (
	"context"
	"strings"
	"testing"
	"time"

	"berth/backends/external/protocol"
	"berth/test/fakes/modaltest"

	"google.golang.org/grpc/codes"
)

// hasty makes waits of which Modal does not say how long they are short ones.
func hasty(t *testing.T) {
	t.Helper()
	leastWait = time.Millisecond
	t.Cleanup(func() { leastWait = createGap })
}

const tooMany = "Sandbox creation rate limit (5/s) exceeded"

// Every call that is refused for the rate is made again until it is not, whether or
// not Modal says how long to wait.
func TestEveryCallThatIsRefusedComesAgain(t *testing.T) {
	hasty(t)
	for name, refusal := range map[string]error{
		"a wait is said": modaltest.Throttled(time.Millisecond),
		"none is":        modaltest.Code(codes.ResourceExhausted, tooMany),
	} {
		t.Run(name, func(t *testing.T) {
			srv := serve(t)
			methods := []string{
				"AuthTokenGet", "SandboxGetFromNameV2", "SandboxTagsGetV2", "SandboxGetCommandRouterAccess", "AppGetOrCreate", "EnvironmentGetOrCreate",
				"ImageGetOrCreate", "ImageJoinStreaming", "ImageGetByTag", "SandboxCreateV2", "SandboxListV2", "SandboxTerminateV2", "SandboxWaitV2", "ImagePublish", "ImageDelete",
				"SandboxGetExitSnapshotV2", "ImageListTags", "TaskExecStart", "TaskExecStdioRead", "TaskExecWait", "TaskExecPoll", "TaskExecStdinWriteStream", "TaskSnapshotFilesystem",
			}
			for _, m := range methods {
				times := 5
				if m == "ImageJoinStreaming" { // the second time the image is there
					times = 1
				}
				srv.Inject(modaltest.Fault{Method: m, Times: times, Err: refusal})
			}
			s := &said{}
			r := request(t, "berth-refused")
			again := func(state string) {
				t.Helper()
				a, err := Provider{}.Open(limited(t), r, s.say)
				if err != nil || a.State != state {
					t.Fatalf("%+v %v", a, err)
				}
				r.Ref = a.Ref
				if out, code := sh(t, r, a, "cat; exit 3", "in"); out != "in" || code != 3 {
					t.Errorf("%q %d", out, code)
				}
			}
			again(protocol.StateMade)
			again(protocol.StateFound)
			if err := (Provider{}).Stop(limited(t), r, s.say); err != nil {
				t.Fatal(err)
			}
			again(protocol.StateRestored)
			if _, err := (Provider{}).List(limited(t), r, s.say); err != nil {
				t.Error(err)
			}
			if _, err := (Provider{}).Snapshots(limited(t), r, s.say); err != nil {
				t.Error(err)
			}
			if err := (Provider{}).Destroy(limited(t), r, s.say); err != nil || len(srv.Running()) != 0 {
				t.Errorf("%v, running %d", err, len(srv.Running()))
			}
			for _, f := range srv.Pending() {
				t.Errorf("%s was refused %d times too few", f.Method, f.Times)
			}
			if !strings.Contains(s.String(), "waiting 1s for Modal's rate limit: Sandbox creation rate limit") {
				t.Errorf("said %q", s)
			}
		})
	}
}

// It is waited as long as there is time, and no longer: then the error says what it
// was, and nothing is left.
func TestRefusedToTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		limit string
	}{
		// Every wait is of ten minutes at least, and the request has three.
		"there is no time":     {modaltest.Code(codes.ResourceExhausted, tooMany), ""},
		"it takes too long":    {modaltest.Throttled(time.Hour), ""},
		"the user allows none": {modaltest.Throttled(time.Second), "0"},
		"the user allows less": {modaltest.Code(codes.ResourceExhausted, "too many requests"), "1"},
	} {
		t.Run(name, func(t *testing.T) {
			srv := serve(t)
			if name == "there is no time" {
				leastWait = 10 * time.Minute
				t.Cleanup(func() { leastWait = createGap })
			}
			t.Setenv("MODAL_MAX_THROTTLE_WAIT", c.limit)
			srv.Inject(modaltest.Fault{Method: "SandboxCreateV2", Times: -1, Err: c.err})
			ctx := limited(t)
			_, err := Provider{}.Open(ctx, request(t, "berth-refused"), t.Logf)
			if kindOf(err) != protocol.Rate || ctx.Err() != nil || len(srv.Running()) != 0 {
				t.Errorf("%v; %v; %d run", err, ctx.Err(), len(srv.Running()))
			}
		})
	}
}

// Whoever is told to end while it waits ends.
func TestInterruptedWait(t *testing.T) {
	srv := serve(t)
	srv.Inject(modaltest.Fault{Method: "SandboxCreateV2", Times: -1, Err: modaltest.Throttled(time.Minute)})
	ctx, cancel := context.WithCancel(limited(t))
	defer cancel()
	_, err := Provider{}.Open(ctx, request(t, "berth-interrupted"), func(format string, _ ...any) {
		if strings.HasPrefix(format, "waiting") {
			cancel()
		}
	})
	if err == nil || ctx.Err() == nil || len(srv.Running()) != 0 {
		t.Errorf("%v, %d run", err, len(srv.Running()))
	}
}

// A quota is none of that: it is told at once.
func TestQuotaIsNotWaitedFor(t *testing.T) {
	srv := serve(t)
	srv.Inject(modaltest.Fault{Method: "SandboxCreateV2", Err: modaltest.Code(codes.ResourceExhausted, "workspace has reached its limit of 100 containers")})
	s := &said{}
	if _, err := (Provider{}).Open(limited(t), request(t, "berth-quota"), s.say); kindOf(err) != protocol.Quota || strings.Contains(s.String(), "rate") {
		t.Errorf("%v; said %q", err, s)
	}
}

func TestDelays(t *testing.T) {
	for _, c := range []struct {
		tries          int
		told, from, to time.Duration
	}{
		{0, 0, createGap, 3 * createGap},
		{3, 0, createGap, 17 * createGap},
		{60, 0, createGap, maxBackoff + createGap},
		{60, 8 * time.Second, 8 * time.Second, 10*time.Second + createGap},
		{0, time.Millisecond, createGap, 2*createGap + time.Millisecond},
	} {
		var spread bool
		first := (&patience{tries: c.tries}).delay(c.told)
		for range 200 {
			d := (&patience{tries: c.tries}).delay(c.told)
			if d < c.from || d > c.to {
				t.Errorf("%+v: %v", c, d)
			}
			spread = spread || d != first
		}
		if !spread {
			t.Errorf("%+v: all are %v", c, first)
		}
	}
}
