package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/backends/external/protocol"
)

// fake answers as its test wants.
type fake struct {
	err    error
	panics bool
	stream func(in io.Reader, out io.Writer) int
}

func (f *fake) Check(_ context.Context, r *protocol.Request, say Progress) (*protocol.Checked, error) {
	if f.panics {
		panic("upside down")
	}
	say("looking\nfor %s", r.Backend)
	return &protocol.Checked{Version: "7", Level: protocol.LevelFS}, f.err
}

func (f *fake) Open(context.Context, *protocol.Request, Progress) (*protocol.Opened, error) {
	return &protocol.Opened{Ref: strings.Repeat("x", protocol.MaxLine)}, f.err
}

func (f *fake) Stream(_ context.Context, _ *protocol.Request, connected func() (io.Reader, io.Writer)) (int, error) {
	if f.stream == nil {
		return 0, f.err
	}
	in, out := connected()
	return f.stream(in, out), f.err
}

func (f *fake) List(context.Context, *protocol.Request, Progress) ([]protocol.Found, error) {
	return nil, f.err
}
func (f *fake) Stop(context.Context, *protocol.Request, Progress) error    { return f.err }
func (f *fake) Destroy(context.Context, *protocol.Request, Progress) error { return f.err }

func serve(t *testing.T, p Provider, verb, request, stdin string) (code int, out, people string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "request.json")
	if err := os.WriteFile(path, []byte(request), 0o600); err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	code = Serve(t.Context(), p, []string{verb, path}, strings.NewReader(stdin), &stdout, &stderr)
	return code, stdout.String(), stderr.String()
}

func TestAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		p       *fake
		verb    string
		request string
		code    int
		want    string
	}{
		"ok after progress": {&fake{}, "check", `{"berth":1,"verb":"check","backend":"b"}`, 0, `{"progress":"looking for b"}` + "\n" + `{"ok":{"version":"7","level":"fs"}}` + "\n"},
		"nothing found":     {&fake{}, "list", `{"berth":1,"verb":"list"}`, 0, `{"ok":{"found":[]}}` + "\n"},
		"a kind":            {&fake{err: &protocol.Error{Kind: protocol.Quota, Message: "no room", Hint: "pay"}}, "stop", `{"berth":1,"verb":"stop"}`, 1, `{"error":{"kind":"quota","message":"no room","hint":"pay"}}` + "\n"},
		"no kind":           {&fake{err: errors.New("what\nelse")}, "destroy", `{"berth":1,"verb":"destroy"}`, 1, `{"error":{"kind":"internal","message":"what else"}}` + "\n"},
		"interrupted":       {&fake{err: context.Canceled}, "destroy", `{"berth":1,"verb":"destroy"}`, 1, `{"error":{"kind":"unclear","message":"it was interrupted"}}` + "\n"},
		"a panic":           {&fake{panics: true}, "check", `{"berth":1,"verb":"check"}`, 1, `{"error":{"kind":"internal","message":"the program has a defect: upside down"}}` + "\n"},
		"too long":          {&fake{}, "open", `{"berth":1,"verb":"open"}`, 1, `{"error":{"kind":"internal","message":"the answer is too long"}}` + "\n"},
		"another version":   {&fake{}, "check", `{"berth":2,"verb":"check"}`, 1, `{"error":{"kind":"unsupported","message":"the request has version 2 of the protocol, this program knows version 1","hint":"install the program that belongs to this berth"}}` + "\n"},
		"another verb":      {&fake{}, "check", `{"berth":1,"verb":"open"}`, 1, `{"error":{"kind":"internal","message":"the request is for \"open\", and the argument is \"check\""}}` + "\n"},
		"never connected":   {&fake{}, "stream", `{"berth":1,"verb":"stream"}`, 1, `{"error":{"kind":"internal","message":"the program has a defect: its stream ended before it was connected"}}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, _ := serve(t, c.p, c.verb, c.request, "")
			if code != c.code || out != c.want {
				t.Errorf("%d %s\nwant %d %s", code, out, c.code, c.want)
			}
		})
	}
}

func TestStreamIsByteExact(t *testing.T) {
	in := "\x00\xff\r\n{\"ok\":1}"
	f := &fake{stream: func(r io.Reader, w io.Writer) int {
		_, _ = io.Copy(w, r)
		return 7
	}}
	code, out, _ := serve(t, f, "stream", `{"berth":1,"verb":"stream"}`, in)
	if code != 7 || out != "{\"ok\":{}}\n"+in {
		t.Errorf("%d %q", code, out)
	}
	// What fails after the ok has no line left.
	f.err = errors.New("cut off")
	code, out, people := serve(t, f, "stream", `{"berth":1,"verb":"stream"}`, in)
	if code != 1 || out != "{\"ok\":{}}\n"+in || people != "cut off\n" {
		t.Errorf("%d %q %q", code, out, people)
	}
}

func TestArgumentsOfAPerson(t *testing.T) {
	var out, people bytes.Buffer
	for _, args := range [][]string{nil, {"check"}, {"dance", "f"}, {"check", "f", "g"}} {
		if code := Serve(t.Context(), &fake{}, args, nil, &out, &people); code != 2 || out.Len() > 0 || !strings.Contains(people.String(), "usage: berth-backend-NAME check|open") {
			t.Errorf("%q: %d %q %q", args, code, out.String(), people.String())
		}
	}
}

func TestRequestThatIsNone(t *testing.T) {
	for _, request := range []string{"", "[]", `{"berth":1,"verb":5}`} {
		code, out, _ := serve(t, &fake{}, "check", request, "")
		var l protocol.Line
		if err := json.Unmarshal([]byte(out), &l); err != nil || code != 1 || l.Error == nil || l.Error.Kind != protocol.Internal {
			t.Errorf("%q: %d %s %v", request, code, out, err)
		}
	}
}
