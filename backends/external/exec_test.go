package external

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
)

// once is an environment without streams, whose program answers exec with body.
func once(t *testing.T, body string) (*box, jobs.Once, *bytes.Buffer, *bytes.Buffer) {
	t.Helper()
	x := &box{record: t.TempDir()}
	path := program(t, `cp "$2" `+x.record+`/$1; case $1 in open) echo '{"ok":{"ref":"sb-1","arch":"any","state":"made"}}';; exec) `+body+`
;; *) echo '{"ok":{}}';; esac`)
	x.b = &Backend{Word: "fake", On: run.Local{}, times: patient()}
	x.s = &jobs.EnvSpec{
		ID: "01a200da-47cb-737b-ab0a-b3b956ffd23e", Name: "demo", Persistent: true, Home: t.TempDir(),
		Place: jobs.Place{
			Backend: "fake", External: &jobs.ExternalSpec{Program: path, Owner: "o", Life: time.Hour, OneShot: true},
		},
	}
	if err := os.MkdirAll(x.s.Home+"/envs/demo", 0o700); err != nil {
		t.Fatal(err)
	}
	var out, errs bytes.Buffer
	return x, jobs.Once{Argv: []string{"true"}, Stdout: &out, Stderr: &errs, Hold: func() (func(), error) { return func() {}, nil }}, &out, &errs
}

func TestExec(t *testing.T) {
	x, o, out, errs := once(t, `echo '{"progress":"x"}'; echo '{"ok":{}}'; read line; echo "{\"stdout\":\"$(printf %s "$line" | base64)\"}"
echo '{"stderr":"AP8K"}'; echo '{"stdout":""}'; echo '{"exit":{"code":3}}'; exit 9`)
	o.Stdin = strings.NewReader("{\"a\":1}\n")
	e, _, err := x.b.Exec(t.Context(), x.s, o)
	if err != nil || e != (jobs.Exit{Started: true, Code: 3}) || out.String() != `{"a":1}` || errs.String() != "\x00\xff\n" {
		t.Errorf("%+v %v %q %q", e, err, out, errs)
	}
	if r := x.asked(t, "open"); r.Guest != nil || r.Spec == nil {
		t.Errorf("%+v", r)
	}
	if r := x.asked(t, "exec"); r.Ref != "sb-1" || len(r.Argv) != 1 || r.Tags["berth-env"] != x.s.ID {
		t.Errorf("%+v", r)
	}
	x, o, _, _ = once(t, `echo '{"ok":{}}'; echo '{"exit":{"code":0,"signal":9}}'`)
	if e, _, err := x.b.Exec(t.Context(), x.s, o); err != nil || e != (jobs.Exit{Started: true, Code: 137, Signal: 9}) {
		t.Errorf("%+v %v", e, err)
	}
}

func TestExecIsNotLiedTo(t *testing.T) {
	ok := `echo '{"ok":{}}'; `
	for name, c := range map[string]struct {
		body string
		kind jobs.Kind
		said string
	}{
		"no answer":        {`echo oops >&2; exit 3`, jobs.KindUnclear, "did not say how the command has: oops"},
		"no exit":          {ok + says(`{"stdout":"YQ=="}`), jobs.KindUnclear, "did not say how the command has"},
		"cut off":          {ok + `printf '{"exit":{"co'`, jobs.KindUnclear, "did not say how the command has"},
		"no base64":        {ok + says(`{"stdout":"***"}`), jobs.KindInfra, "none of an exec's"},
		"another word":     {ok + says(`{"stdlog":"YQ=="}`), jobs.KindInfra, "none of an exec's"},
		"two words":        {ok + says(`{"stdout":"YQ==","exit":{"code":0}}`), jobs.KindInfra, "none of an exec's"},
		"a code":           {ok + says(`{"exit":{"code":256}}`), jobs.KindInfra, "it says exit code 256"},
		"a negative code":  {ok + says(`{"exit":{"code":-1}}`), jobs.KindInfra, "it says exit code -1"},
		"after the exit":   {ok + says(`{"exit":{"code":0}}`) + "; " + says(`{"stdout":"YQ=="}`), jobs.KindInfra, "it went on after the command's exit"},
		"an exit, no ok":   {says(`{"exit":{"code":0}}`), jobs.KindInfra, "none of the protocol's"},
		"a huge line":      {ok + `head -c 1100000 /dev/zero | tr '\0' x; sleep 60`, jobs.KindInfra, "a line of more than 1048576 bytes"},
		"an error":         {says(`{"error":{"kind":"quota","message":"full"}}`), jobs.KindAgain, "full"},
		"gone, and again":  {says(`{"error":{"kind":"gone","message":"over"}}`), jobs.KindAgain, "over"},
		"an error, after":  {ok + says(`{"error":{"kind":"gone","message":"over"}}`), jobs.KindInfra, "none of an exec's"},
		"it stays":         {ok + `echo x; trap '' TERM; while :; do sleep 1; done`, jobs.KindInfra, "none of an exec's"},
		"a line of nobody": {ok + "echo hello", jobs.KindInfra, "none of an exec's"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, o, _, _ := once(t, c.body)
			if strings.Contains(c.body, "sleep") { // it does not end by itself
				x.b.times = hasty()
			}
			_, _, err := x.b.Exec(t.Context(), x.s, o)
			wantError(t, err, c.kind, c.said)
		})
	}
}

// One that was gone before the command began is opened again, and the command is
// given again; one that has begun never is.
func TestExecIsGivenAgainOnlyWhereItDidNotRun(t *testing.T) {
	times := t.TempDir() + "/times"
	x, o, _, _ := once(t, `echo x >>`+times+`; if [ $(wc -l <`+times+`) = 1 ]; then `+says(`{"error":{"kind":"gone","message":"over"}}`)+`; else echo '{"ok":{}}'; echo '{"exit":{"code":0}}'; fi`)
	if e, _, err := x.b.Exec(t.Context(), x.s, o); err != nil || !e.OK() {
		t.Errorf("%+v %v", e, err)
	}
	x, o, _, _ = once(t, `echo x >>`+times+`; echo '{"ok":{}}'; kill -9 $$`)
	if _, _, err := x.b.Exec(t.Context(), x.s, o); jobs.KindOf(err) != jobs.KindUnclear {
		t.Error(err)
	}
	if b, err := os.ReadFile(times); err != nil || len(b) != len("x\n")*3 {
		t.Errorf("it ran %q %v", b, err)
	}
}

func TestExecEnds(t *testing.T) {
	ended := t.TempDir() + "/ended"
	body := `trap 'echo x >>` + ended + `; exit 1' TERM; echo '{"progress":"ready"}'; echo '{"ok":{}}'; while :; do sleep 0.1; done`
	x, o, _, _ := once(t, body)
	o.Limit = 2 * time.Second // whether or not it has begun by then
	if _, _, err := x.b.Exec(t.Context(), x.s, o); !errors.Is(err, jobs.ErrOnceTimeout) {
		t.Error(err)
	}
	if err := os.RemoveAll(ended); err != nil {
		t.Fatal(err)
	}
	for _, why := range []error{jobs.ErrOnceTimeout, errors.New("enough")} {
		ctx, cancel := context.WithCancelCause(t.Context())
		x, o, _, _ = once(t, body)
		o.Progress = func(said string) {
			if said == "ready" {
				cancel(why)
			}
		}
		if _, _, err := x.b.Exec(ctx, x.s, o); !errors.Is(err, why) {
			t.Error(err)
		}
	}
	if b, err := os.ReadFile(ended); err != nil || string(b) != "x\nx\n" {
		t.Errorf("told to end: %q %v", b, err)
	}
}

// One that has told the end of the command and stays is ended, and that counts.
func TestExecOfOneThatStays(t *testing.T) {
	x, o, _, _ := once(t, `echo '{"ok":{}}'; echo '{"exit":{"code":4}}'; trap '' TERM; while :; do sleep 1; done`)
	x.b.times = hasty()
	if e, _, err := x.b.Exec(t.Context(), x.s, o); err != nil || e.Code != 4 {
		t.Errorf("%+v %v", e, err)
	}
}

// writes tells of each write.
type writes func()

func (w writes) Write(p []byte) (int, error) { w(); return len(p), nil }

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no more room") }

func TestExecWithoutAReader(t *testing.T) {
	x, o, _, _ := once(t, `echo '{"ok":{}}'; while echo '{"stdout":"YQ=="}'; do :; done`)
	o.Stdout = full{}
	if _, _, err := x.b.Exec(t.Context(), x.s, o); err == nil || err.Error() != "pass the output on: no more room" {
		t.Error(err)
	}
}

// A time limit and an interrupt are what they are, whatever the program says
// after its TERM; and whether the command may have run stays true.
func TestExecEndsBeforeItsBeginning(t *testing.T) {
	stopped := errors.New("enough")
	begun := `echo '{"ok":{}}'; echo '{"stdout":"eA=="}'`
	for name, c := range map[string]struct {
		begin, end string // what it does, and on its TERM
		started    bool
		note       string
		code       int
	}{
		"it says that it did not run": {"", says(`{"error":{"kind":"internal","message":"interrupted"}}`) + "; exit 1", false, "the command did not run: the backend fake: interrupted", 0},
		"it was gone":                 {"", says(`{"error":{"kind":"gone","message":"over"}}`) + "; exit 1", false, "the command did not run: the backend fake: over", 0},
		"nobody knows":                {"", says(`{"error":{"kind":"unclear","message":"who knows"}}`) + "; exit 1", false, "it may have run", 0},
		"it says nothing":             {"", "exit 1", false, "it may have run", 0},
		"it says nonsense":            {"", "echo Traceback; exit 1", false, "it may have run", 0},
		"it began":                    {begun, "exit 1", true, "", 0},
		"it began, and nonsense":      {begun, "echo Traceback; exit 1", true, "", 0},
		"it tells of the end":         {begun, says(`{"exit":{"code":0,"signal":15}}`) + "; exit 1", true, "", 143},
	} {
		for _, why := range []error{jobs.ErrOnceTimeout, stopped} {
			t.Run(name+"/"+why.Error(), func(t *testing.T) {
				t.Parallel()
				x, o, _, _ := once(t, `trap '`+strings.ReplaceAll(c.end, "'", `'"'"'`)+`' TERM; echo '{"progress":"ready"}'; `+cmp.Or(c.begin, ":")+`
while :; do sleep 0.05; done`)
				if _, err := x.b.OpenOnce(t.Context(), x.s, o); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				// It has come as far as it will before it is told to end.
				if c.begin != "" {
					o.Stdout = writes(func() { cancel(why) })
				} else {
					o.Progress = func(string) { cancel(why) }
				}
				e, notes, err := x.b.Exec(ctx, x.s, o)
				if !errors.Is(err, why) || e.Started != c.started || e.Code != c.code {
					t.Errorf("%+v %v", e, err)
				}
				if all := strings.Join(notes, "|"); !strings.Contains(all, c.note) || (c.note == "") != (all == "") {
					t.Errorf("noted: %q", all)
				}
			})
		}
	}
}
