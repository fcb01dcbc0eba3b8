package daytona_test

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"berth/backends/daytona"
	"berth/backends/external/protocol"
	"berth/test/fakes/daytonatest"
)

var (
	atCreate  = regexp.MustCompile(`^/api/sandbox$`)
	atExecute = regexp.MustCompile(`/process/execute$`)
	atUpload  = regexp.MustCompile(`/files/upload-v2`)
	atGet     = regexp.MustCompile(`^/api/sandbox/[^/?]+$`)
	atPTY     = regexp.MustCompile(`/process/pty$`)
)

// count tells how often something was asked for.
func count(asked []daytonatest.Request, method string, path *regexp.Regexp) (n int) {
	for _, q := range asked {
		if q.Method == method && path.MatchString(q.Path) {
			n++
		}
	}
	return n
}

// What may go wrong on the way to an open sandbox: it is opened all the same, once,
// or fails with a kind, and nothing is sent again that may have run.
func TestFaults(t *testing.T) {
	for name, c := range map[string]struct {
		faults  []daytonatest.Fault
		before  func(t *testing.T, fake *daytonatest.Server, r *protocol.Request)
		kind    protocol.Kind // "" is that it opens
		says    string        // progress
		creates int           // 0 is any number
		boxes   int           // after it
		holds   bool          // the fault lasts until that was said
	}{
		"the answer to the create is lost":         {faults: []daytonatest.Fault{{Method: "POST", Path: atCreate, Done: true, Drop: true}}, creates: 1, boxes: 1},
		"the create is done, and a proxy gives up": {faults: []daytonatest.Fault{{Method: "POST", Path: atCreate, Done: true, Status: 504, Body: "<html>504</html>", Header: map[string]string{"Content-Type": "text/html"}}}, creates: 1, boxes: 1},
		"the answer to the create is cut":          {faults: []daytonatest.Fault{{Method: "POST", Path: atCreate, Done: true, Status: 200, Body: `{"id":"sb-`}}, creates: 1, boxes: 1},
		"the create is not done":                   {faults: []daytonatest.Fault{{Method: "POST", Path: atCreate, Status: 503}}, creates: 2, boxes: 1},
		"too many creates":                         {faults: []daytonatest.Fault{{Method: "POST", Path: atCreate, Status: 429, Header: map[string]string{"Retry-After-sandbox-create": "1"}}}, says: "too many requests; asking again in 1", creates: 2, boxes: 1},
		"too many creates for long":                {faults: []daytonatest.Fault{{Method: "POST", Path: atCreate, Status: 429, Header: map[string]string{"Retry-After-sandbox-create": "3600"}}}, kind: protocol.Rate, creates: 1},
		"whether it was made cannot be found out":  {faults: []daytonatest.Fault{{Method: "POST", Path: atCreate, Done: true, Drop: true}, {Method: "GET", Path: atGet, Skip: 1, Status: 500, Times: 9}}, kind: protocol.Unclear, creates: 1, boxes: 1},
		"the organization has no room":             {faults: []daytonatest.Fault{{Method: "POST", Path: atCreate, Status: 400, Body: `{"statusCode":400,"message":"Total CPU limit exceeded. Maximum allowed: 10"}`}}, kind: protocol.Quota, creates: 1},
		"the key may not":                          {faults: []daytonatest.Fault{{Method: "POST", Path: atCreate, Status: 403, Body: `{"message":"Forbidden resource"}`}}, kind: protocol.Auth, creates: 1},
		"a wrong value":                            {faults: []daytonatest.Fault{{Method: "POST", Path: atCreate, Status: 400, Body: `{"message":["name should not be empty","cpu must be an integer"]}`}}, kind: protocol.Input, creates: 1},
		"a look fails for a moment":                {faults: []daytonatest.Fault{{Method: "GET", Path: atGet, Status: 502}}, says: "asking again in", boxes: 1},
		"a look is refused for its rate":           {faults: []daytonatest.Fault{{Method: "GET", Path: atGet, Status: 429, Header: map[string]string{"Retry-After": "1", "Retry-After-authenticated": "2"}}}, says: "too many requests; asking again in 2", boxes: 1},
		"another form":                             {faults: []daytonatest.Fault{{Method: "GET", Path: atGet, Status: 200, Body: "<html>"}}, kind: protocol.Changed},
		"moved":                                    {faults: []daytonatest.Fault{{Method: "GET", Path: atGet, Status: 302, Header: map[string]string{"Location": "https://elsewhere.example.com/"}}}, kind: protocol.Changed},
		"a script may have run":                    {faults: []daytonatest.Fault{{Method: "POST", Path: atExecute, Status: 502}}, kind: protocol.Unreachable, boxes: 1},
		"a script took too long":                   {faults: []daytonatest.Fault{{Method: "POST", Path: atExecute, Status: 408, Body: `{"statusCode":408,"message":"command execution timeout","code":"PROCESS_EXECUTION_TIMEOUT"}`}}, kind: protocol.Unclear, boxes: 1},
		"a script was refused for its rate":        {faults: []daytonatest.Fault{{Method: "POST", Path: atExecute, Status: 429, Header: map[string]string{"Retry-After-authenticated": "1"}}}, boxes: 1},
		"an upload is cut":                         {faults: []daytonatest.Fault{{Method: "POST", Path: atUpload, Drop: true}}, boxes: 1},
		"an upload that did not come":              {faults: []daytonatest.Fault{{Method: "POST", Path: atUpload, Status: 200, Body: `{}`}}, kind: protocol.Unreachable, boxes: 1},
		"an upload that takes long":                {faults: []daytonatest.Fault{{Method: "POST", Path: atUpload}}, holds: true, says: "still putting the guest program", boxes: 1},
		"the service asks to be left alone":        {faults: []daytonatest.Fault{{Method: "GET", Path: atGet, Status: 503, Header: map[string]string{"Retry-After": "1"}}}, says: "Daytona asks to be left alone; asking again in 1", boxes: 1},
		"more than one sandbox may have":           {faults: []daytonatest.Fault{{Method: "POST", Path: atCreate, Status: 400, Body: `{"message":"CPU request 9 exceeds maximum allowed per sandbox (4)"}`}}, kind: protocol.Input, creates: 1},
		"a create that the service does not know":  {faults: []daytonatest.Fault{{Method: "POST", Path: atCreate, Status: 404, Body: `{"message":"Cannot POST /api/sandbox"}`}}, kind: protocol.Changed, creates: 1},
		"a look that the service does not know":    {faults: []daytonatest.Fault{{Method: "GET", Path: atGet, Status: 404, Body: `{"message":"Cannot GET /api/sandbox/x"}`}}, kind: protocol.Changed},
		"an answer about no sandbox":               {faults: []daytonatest.Fault{{Method: "GET", Path: atGet, Status: 200, Body: `{"sandbox":{"id":"x"}}`}}, kind: protocol.Changed},
		"no shell":                                 {faults: []daytonatest.Fault{{Method: "POST", Path: atExecute, Status: 200, Body: `{"exitCode":-1,"result":"exec: sh: not found"}`}}, kind: protocol.Unreachable, boxes: 1},
		"an image that is not there":               {before: func(_ *testing.T, _ *daytonatest.Server, r *protocol.Request) { r.Spec.Image = "no-such-image:1" }, kind: protocol.NotFound},
		"a template that is not there": {before: func(_ *testing.T, _ *daytonatest.Server, r *protocol.Request) {
			r.Options["workspace_template"], r.Spec.Soft = "missing", []string{"cpus", "memory"}
		}, kind: protocol.NotFound},
		"the service does not take rules of a network": {before: func(_ *testing.T, _ *daytonatest.Server, r *protocol.Request) {
			r.Spec.Network.Mode = protocol.NetworkNone
		}, kind: protocol.Unsupported},
		"somebody else made it meanwhile": {
			before: func(t *testing.T, fake *daytonatest.Server, r *protocol.Request) {
				open(t, r)
				r.Ref = ""
				fake.Requests()
				fake.Fail(daytonatest.Fault{Method: "GET", Path: atGet, Status: 404}) // it was not there yet
			}, creates: 1, boxes: 1,
		},
		"somebody else made another meanwhile": {
			before: func(t *testing.T, fake *daytonatest.Server, r *protocol.Request) {
				other := *request(t, "e1")
				other.Tags = map[string]string{"mine": "1"}
				open(t, &other)
				fake.Requests()
				fake.Fail(daytonatest.Fault{Method: "GET", Path: atGet, Status: 404})
			}, kind: protocol.Conflict, creates: 1, boxes: 1,
		},
		"it stops just then": {
			before: func(t *testing.T, fake *daytonatest.Server, r *protocol.Request) {
				open(t, r)
				fake.Requests()
				fake.Fail(daytonatest.Fault{Method: "POST", Path: atExecute, Status: 400, Body: `{"message":"bad request: failed to resolve container IP after 3 attempts. Is the Sandbox started?"}`})
			}, boxes: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake := service(t, daytonatest.Options{NoNetworkRules: strings.Contains(name, "rules of a network")})
			r := request(t, "e1")
			r.Guest = smallGuest(t)
			if c.before != nil {
				c.before(t, fake, r)
			}
			var says said
			for _, f := range c.faults {
				if c.holds {
					f.Met = func() {
						for until := time.Now().Add(2 * time.Minute); !strings.Contains(says.String(), c.says) && time.Now().Before(until); {
							time.Sleep(10 * time.Millisecond)
						}
					}
				}
				fake.Fail(f)
			}
			o, err := daytona.Provider{}.Open(t.Context(), r, says.say)
			if kindOf(err) != c.kind || (err == nil) != (c.kind == "") {
				t.Fatalf("%v (%v)", err, kindOf(err))
			}
			if err == nil && o.Guest == "" {
				t.Errorf("%+v", o)
			}
			if !strings.Contains(says.String(), c.says) {
				t.Errorf("it says %q", says.String())
			}
			asked := fake.Requests()
			if n := count(asked, "POST", atCreate); c.creates > 0 && n != c.creates {
				t.Errorf("%d creates: %v", n, asked)
			}
			if n := count(asked, "POST", atExecute); strings.Contains(name, "may have run") && n != 1 {
				t.Errorf("sent %d times", n)
			}
			if n := len(fake.Boxes()); n != c.boxes {
				t.Errorf("%d sandboxes", n)
			}
		})
	}
}

// A command is sent again only when it surely has not run: here, that a terminal is
// opened.
func TestTerminalNotTwice(t *testing.T) {
	fake := service(t, daytonatest.Options{})
	r := request(t, "e1")
	o := open(t, r)
	fake.Requests()
	fake.Fail(daytonatest.Fault{Method: "POST", Path: atPTY, Status: 502})
	if _, _, err := talkTo(t.Context(), r, o); kindOf(err) != protocol.Unreachable {
		t.Errorf("%v", err)
	}
	if n := count(fake.Requests(), "POST", atPTY); n != 1 {
		t.Errorf("sent %d times", n)
	}
}

// An interrupted create leaves nothing that costs, though its answer never came.
func TestInterrupted(t *testing.T) {
	fake := service(t, daytonatest.Options{})
	r := request(t, "e1")
	r.Guest = smallGuest(t)
	ctx, stop := context.WithCancel(t.Context())
	fake.Fail(daytonatest.Fault{Method: "POST", Path: atCreate, Done: true, Drop: true, Met: stop})
	if _, err := (daytona.Provider{}).Open(ctx, r, (&said{}).say); err == nil {
		t.Fatal("it went on")
	}
	if left := fake.Boxes(); len(left) > 0 {
		t.Errorf("left: %+v", left)
	}
}

// A state that a sandbox may be found in, and what becomes of it.
func TestStates(t *testing.T) {
	for name, c := range map[string]struct {
		state, why string
		repairable bool
		next       []string
		passing    bool // not persistent
		want       string
		kind       protocol.Kind
		made       int // sandboxes that were ever made
	}{
		"stopped":              {state: "stopped", want: protocol.StateRestored, made: 1},
		"archived":             {state: "archived", want: protocol.StateRestored, made: 1},
		"on its way":           {state: "starting", next: []string{"starting", "started"}, want: protocol.StateFound, made: 1},
		"stopping":             {state: "stopping", next: []string{"stopping", "stopped"}, want: protocol.StateRestored, made: 1},
		"archiving":            {state: "archiving", next: []string{"archived"}, want: protocol.StateRestored, made: 1},
		"an error that passes": {state: "error", why: "runner lost", repairable: true, want: protocol.StateRestored, made: 1},
		"an error, with files": {state: "error", why: "disk on fire", kind: protocol.Gone, made: 1},
		"an error, no files":   {state: "error", why: "disk on fire", passing: true, want: protocol.StateRebuilt, made: 2},
		"never built":          {state: "build_failed", why: "no space", want: protocol.StateRebuilt, made: 2},
		"destroyed":            {state: "destroyed", want: protocol.StateRebuilt, made: 2},
		"destroyed, no files":  {state: "destroyed", passing: true, want: protocol.StateMade, made: 2},
		"a state of tomorrow":  {state: "unknown", next: []string{"unknown", "started"}, want: protocol.StateFound, made: 1},
	} {
		t.Run(name, func(t *testing.T) {
			fake := service(t, daytonatest.Options{})
			r := request(t, "e1")
			r.Guest = smallGuest(t)
			r.Spec.Persistent = !c.passing
			open(t, r)
			id := fake.Boxes()[0].ID
			fake.Requests()
			if c.state == "destroyed" {
				fake.Remove(id)
			} else {
				fake.Put(id, c.state, c.why, c.repairable, c.next...)
			}
			o, err := daytona.Provider{}.Open(t.Context(), r, (&said{}).say)
			if kindOf(err) != c.kind {
				t.Fatalf("%v", err)
			}
			if err == nil && (o.State != c.want || (o.Why != "") != (c.want == protocol.StateRebuilt)) {
				t.Errorf("%+v", o)
			}
			if err != nil && !strings.Contains(err.Error(), c.why) {
				t.Errorf("it does not say why: %v", err)
			}
			last := fake.Boxes()[0].ID
			if made := map[string]int{"sb-0001": 1, "sb-0002": 2}[last]; made != c.made || len(fake.Boxes()) != 1 {
				t.Errorf("%+v", fake.Boxes())
			}
		})
	}
}

// Something else does something with it at the same moment.
func TestStateChangeInProgress(t *testing.T) {
	fake := service(t, daytonatest.Options{})
	r := request(t, "e1")
	r.Guest = smallGuest(t)
	open(t, r)
	id := fake.Boxes()[0].ID
	fake.Put(id, "stopped", "", false)
	fake.Fail(daytonatest.Fault{Method: "POST", Path: regexp.MustCompile("/start$"), Status: 409, Body: `{"message":"Sandbox state change in progress"}`})
	if o := open(t, r); o.State != protocol.StateRestored {
		t.Errorf("%+v", o)
	}
	fake.Fail(daytonatest.Fault{Method: "DELETE", Path: atGet, Status: 409, Body: `{"message":"Sandbox state change in progress"}`})
	if err := (daytona.Provider{}).Destroy(t.Context(), r, (&said{}).say); err != nil || len(fake.Boxes()) != 0 {
		t.Errorf("%v %+v", err, fake.Boxes())
	}
}

// What each kind of request does when a proxy gives up on it, or its connection is cut:
// whether it may have been done is known of none of them.
func TestSentAgain(t *testing.T) {
	p, say := daytona.Provider{}, (&said{}).say
	for name, c := range map[string]struct {
		method, path string
		do           func(t *testing.T, r *protocol.Request) error
		again        bool
	}{
		"look":     {"GET", `^/api/sandbox/[^/]+$`, func(t *testing.T, r *protocol.Request) error { _, err := p.Open(t.Context(), r, say); return err }, true},
		"list":     {"GET", `^/api/sandbox(\?|$)`, func(t *testing.T, r *protocol.Request) error { _, err := p.List(t.Context(), r, say); return err }, true},
		"check":    {"GET", `/api-keys/current$`, func(t *testing.T, r *protocol.Request) error { _, err := p.Check(t.Context(), r, say); return err }, true},
		"stop":     {"POST", `/stop$`, func(t *testing.T, r *protocol.Request) error { return p.Stop(t.Context(), r, say) }, true},
		"delete":   {"DELETE", `^/api/sandbox/[^/]+$`, func(t *testing.T, r *protocol.Request) error { return p.Destroy(t.Context(), r, say) }, true},
		"a script": {"POST", `/process/execute$`, func(t *testing.T, r *protocol.Request) error { _, err := p.Open(t.Context(), r, say); return err }, false},
		"a snapshot": {"POST", `/snapshot$`, func(t *testing.T, r *protocol.Request) error {
			_, err := p.Snapshot(t.Context(), named(r, "berth-snap-o-x"), say)
			return err
		}, false},
		"a terminal": {"POST", `/process/pty$`, func(t *testing.T, r *protocol.Request) error {
			q := *r
			q.Argv = []string{"/guest", "guest"}
			_, err := p.Stream(t.Context(), &q, nil)
			return err
		}, false},
	} {
		for fault, f := range map[string]daytonatest.Fault{"502": {Status: 502}, "cut": {Drop: true}} {
			t.Run(name+", "+fault, func(t *testing.T) {
				fake := service(t, daytonatest.Options{})
				r := request(t, "e1")
				r.Guest = smallGuest(t)
				open(t, r)
				fake.Requests()
				f.Method, f.Path = c.method, regexp.MustCompile(c.path)
				fake.Fail(f)
				err := c.do(t, r)
				sent := 0
				for _, q := range fake.Requests() {
					if q.Method == f.Method && f.Path.MatchString(q.Path) && (q.Status == 502 || q.Status == -1 || q.Status < 300) {
						sent++
					}
				}
				if c.again && (err != nil || sent < 2) || !c.again && (err == nil || sent != 1) {
					t.Errorf("sent %d times, %v", sent, err)
				}
			})
		}
	}
}
