package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"berth/backends/external/protocol"
)

// able has what not every provider has.
type able struct {
	fake
	exec func(in io.Reader, out, errs io.Writer) protocol.Exit
	done string
}

func (a *able) Snapshot(_ context.Context, r *protocol.Request, _ Progress) (*protocol.Snapshot, error) {
	return &protocol.Snapshot{Name: r.Snapshot, ID: "im-1"}, a.err
}

func (a *able) Restore(_ context.Context, r *protocol.Request, _ Progress) (*protocol.Restored, error) {
	return &protocol.Restored{Ref: "sb-2 of " + r.Snapshot}, a.err
}

func (a *able) Snapshots(_ context.Context, r *protocol.Request, _ Progress) ([]protocol.Snapshot, error) {
	return []protocol.Snapshot{{Name: r.Snapshot + "x", ID: "im-1"}}, a.err
}

func (a *able) Forget(_ context.Context, r *protocol.Request, _ Progress) error {
	a.done += "forget " + r.Snapshot
	return a.err
}

func (a *able) Destroy(context.Context, *protocol.Request, Progress) error {
	a.done += "destroy"
	return a.err
}

func (a *able) Exec(_ context.Context, _ *protocol.Request, connected func() (io.Reader, io.Writer, io.Writer)) (protocol.Exit, error) {
	if a.exec == nil {
		return protocol.Exit{}, a.err
	}
	return a.exec(connected()), a.err
}

func TestOptionalVerbs(t *testing.T) {
	for name, c := range map[string]struct {
		p       Provider
		verb    string
		request string
		code    int
		want    string
	}{
		"check":             {&able{}, "check", `"backend":"b"`, 0, `{"progress":"looking for b"}` + "\n" + `{"ok":{"version":"7","level":"fs","snapshots":true,"exec":true}}`},
		"snapshot":          {&able{}, "snapshot", `"snapshot":"s"`, 0, `{"ok":{"snapshot":{"name":"s","id":"im-1"}}}`},
		"restore":           {&able{}, "restore", `"snapshot":"s"`, 0, `{"ok":{"ref":"sb-2 of s"}}`},
		"list":              {&able{}, "list", `"snapshot":"s-"`, 0, `{"ok":{"found":[],"snapshots":[{"name":"s-x","id":"im-1"}]}}`},
		"a list of none":    {&able{}, "list", `"name":""`, 0, `{"ok":{"found":[]}}`},
		"no name":           {&able{}, "restore", `"name":"x"`, 1, `{"error":{"kind":"internal","message":"the request names no snapshot"}}`},
		"an error":          {&able{fake: fake{err: protocol.Errorf(protocol.Quota, "full")}}, "snapshot", `"snapshot":"s"`, 1, `{"error":{"kind":"quota","message":"full"}}`},
		"no snapshots":      {&fake{}, "snapshot", `"snapshot":"s"`, 1, `{"error":{"kind":"unsupported","message":"this service has no snapshots"}}`},
		"no restore":        {&fake{}, "restore", `"snapshot":"s"`, 1, `{"error":{"kind":"unsupported","message":"this service has no snapshots"}}`},
		"nothing to forget": {&fake{}, "destroy", `"snapshot":"s"`, 1, `{"error":{"kind":"unsupported","message":"this service has no snapshots"}}`},
		"no exec":           {&fake{}, "exec", `"name":"x"`, 1, `{"error":{"kind":"unsupported","message":"this service has no commands of their own"}}`},
		"never began":       {&able{}, "exec", `"name":"x"`, 1, `{"error":{"kind":"internal","message":"the program has a defect: its command ended before it began"}}`},
		"exec, refused":     {&able{fake: fake{err: protocol.Errorf(protocol.Gone, "over")}}, "exec", `"name":"x"`, 1, `{"error":{"kind":"gone","message":"over"}}`},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, _ := serve(t, c.p, c.verb, `{"berth":1,"verb":"`+c.verb+`",`+c.request+`}`, "")
			if code != c.code || out != c.want+"\n" {
				t.Errorf("%d %s\nwant %d %s", code, out, c.code, c.want)
			}
		})
	}
}

// A snapshot is destroyed without its sandbox, and the other way round.
func TestDestroyOfOneOfTwo(t *testing.T) {
	a := &able{}
	for _, request := range []string{`{"berth":1,"verb":"destroy","name":"x","snapshot":"s"}`, `{"berth":1,"verb":"destroy","name":"x"}`} {
		if code, out, _ := serve(t, a, "destroy", request, ""); code != 0 || out != "{\"ok\":{}}\n" {
			t.Errorf("%d %s", code, out)
		}
	}
	if a.done != "forget sdestroy" {
		t.Errorf("%q", a.done)
	}
}

func TestExecIsByteExact(t *testing.T) {
	in := "\x00\xff\r\n{\"ok\":1}" + strings.Repeat("x", 3*piece)
	a := &able{exec: func(r io.Reader, out, errs io.Writer) protocol.Exit {
		_, _ = io.WriteString(errs, "wrong\n")
		b, _ := io.ReadAll(r)
		_, _ = out.Write(b)
		return protocol.Exit{Code: 7}
	}}
	code, text, _ := serve(t, a, "exec", `{"berth":1,"verb":"exec"}`, in)
	var out, errs bytes.Buffer
	var exit *protocol.Exit
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for _, line := range lines[1:] {
		var x protocol.ExecLine
		if err := json.Unmarshal([]byte(line), &x); err != nil || len(line) >= protocol.MaxLine || exit != nil {
			t.Fatalf("%d bytes, %v, after the exit: %v", len(line), err, exit != nil)
		}
		out.Write(x.Stdout)
		errs.Write(x.Stderr)
		exit = x.Exit
	}
	if code != 0 || lines[0] != `{"ok":{}}` || out.String() != in || errs.String() != "wrong\n" || exit == nil || exit.Code != 7 {
		t.Errorf("%d %s, %d of %d bytes, %q, %+v", code, lines[0], out.Len(), len(in), errs.String(), exit)
	}
	// What fails after the ok says no exit.
	a.err = errors.New("cut off")
	code, text, people := serve(t, a, "exec", `{"berth":1,"verb":"exec"}`, in)
	if code != 1 || strings.Contains(text, `"exit"`) || people != "cut off\n" {
		t.Errorf("%d %q", code, people)
	}
}
