package external

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"berth/backends/external/protocol"
	"berth/internal/sys/run"
	"berth/jobs"
)

// program is the command line of a shell program that answers as body says; $1
// is the verb, $2 the request.
func program(t *testing.T, body string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berth-backend-fake")
	if err := os.WriteFile(path, []byte(body+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"/bin/sh", path}
}

// patient are times for programs that do what they do and end, however slow the
// machine is.
func patient() times {
	long := times{silent: 5 * time.Minute, leave: 5 * time.Minute, verbs: map[string]time.Duration{}}
	for _, v := range protocol.Verbs() {
		long.verbs[v] = 5 * time.Minute
	}
	return long
}

// hasty are times for programs that are to be given up on.
func hasty() times {
	short := patient()
	short.silent, short.leave = 3*time.Second, 500*time.Millisecond
	return short
}

// call is a patient caller of a program that answers as body says.
func call(t *testing.T, body string) *caller {
	t.Helper()
	return &caller{name: "fake", program: program(t, body), env: Environ("fake", os.Environ()), on: run.Local{}, times: patient()}
}

// wantError checks an error's kind, words and hint; each must have a hint.
func wantError(t *testing.T, err error, kind jobs.Kind, said string) {
	t.Helper()
	if err == nil || jobs.KindOf(err) != kind || !strings.Contains(err.Error(), said) || jobs.HintOf(err) == "" {
		t.Errorf("kind %d: %v (hint %q)\nwant kind %d and %q", jobs.KindOf(err), err, jobs.HintOf(err), kind, said)
	}
}

func TestAsk(t *testing.T) {
	c := call(t, `printf '%s\n' '{"progress":"one\u001b[31m"}'; echo; echo '{"progress":"two"}'; echo hello people >&2
[ -s "$2" ] && [ "$(stat -L -c %a "$2")" = 600 ] && read line </dev/stdin; echo "{\"ok\":{\"version\":\"$1 $line\"}}"`)
	var said []string
	var k protocol.Checked
	if err := c.ask(t.Context(), protocol.Request{Verb: protocol.VerbCheck}, func(s string) { said = append(said, s) }, &k); err != nil {
		t.Fatal(err)
	}
	if k.Version != "check " || strings.Join(said, "|") != "one [31m|two" {
		t.Errorf("%+v %q", k, said)
	}
}

// A request has no name that could stay behind when someone is killed, and can
// be read by those whom the program starts.
func TestRequestLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	c := call(t, `[ "$(grep -c '"verb":"stop"' "$2")" = 1 ] && [ "$(stat -L -c %a "$2")" = 600 ] && [ -z "$(ls -A `+dir+`)" ] && read line <"$2" && echo '{"ok":{}}'`)
	var none struct{}
	if err := c.ask(t.Context(), protocol.Request{Verb: protocol.VerbStop}, nil, &none); err != nil {
		t.Error(err)
	}
	t.Setenv("TMPDIR", filepath.Join(dir, "none"))
	wantError(t, c.ask(t.Context(), protocol.Request{Verb: protocol.VerbStop}, nil, &none), jobs.KindInfra, "write a request for the backend fake")
}

func TestAnswersThatAreNone(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		kind jobs.Kind
		said string
	}{
		"no answer":         {`echo one >&2; echo two >&2; exit 3`, jobs.KindInfra, "asked to check, it ended (exit code 3) without an answer: one two"},
		"nothing at all":    {`exit 0`, jobs.KindInfra, "without an answer"},
		"killed":            {`kill -9 $$`, jobs.KindInfra, "without an answer"},
		"not JSON":          {`echo Welcome to the cloud`, jobs.KindInfra, "none of the protocol's: \"Welcome to the cloud\""},
		"no line of it":     {`echo '{"fine":true}'`, jobs.KindInfra, "none of the protocol's"},
		"two in one":        {`echo '{"ok":{},"error":{"kind":"auth","message":"x"}}'`, jobs.KindInfra, "none of the protocol's"},
		"ok is no object":   {`echo '{"ok":true}'`, jobs.KindInfra, "none of the protocol's"},
		"ok twice":          {`echo '{"ok":{}}'; echo '{"ok":{}}'`, jobs.KindInfra, "it went on after its answer"},
		"cut off":           {`printf '{"ok":{"versi'`, jobs.KindInfra, "none of the protocol's"},
		"of another type":   {`echo '{"ok":{"version":{}}}'`, jobs.KindInfra, "cannot be understood"},
		"a huge line":       {`head -c 1100000 /dev/zero | tr '\0' x; sleep 60`, jobs.KindInfra, "a line of more than 1048576 bytes"},
		"a flood of words":  {`yes '{"progress":"x"}'`, jobs.KindInfra, "it wrote more than 10000 lines of progress"},
		"a huge word":       {`printf '{"progress":"'; yes x | tr -d '\n' | head -c 3000000`, jobs.KindInfra, "a line of more than 1048576 bytes"},
		"errors in a flood": {`yes eeee | head -c 50000000 >&2; exit 4`, jobs.KindInfra, "asked to check, it ended (exit code 4) without an answer: eeee"},
		"its output closed": {`exec >&-; sleep 60`, jobs.KindInfra, "has said nothing for 3s"},
		"another version":   {`echo '{"error":{"kind":"unsupported","message":"this program knows version 2"}}'`, jobs.KindConfig, "knows version 2"},
		"a deep answer":     {`printf '{"ok":'; yes '[' | head -n 20000 | tr -d '\n'; echo '}'`, jobs.KindInfra, "none of the protocol's"},
		"a flood":           {`yes`, jobs.KindInfra, "none of the protocol's: \"y\""},
		"silence":           {`sleep 60`, jobs.KindInfra, "has said nothing for 3s"},
		"silence on and on": {`trap '' TERM; sleep 60 & wait; sleep 60`, jobs.KindInfra, "has said nothing for 3s"},
		"auth":              {`echo '{"error":{"kind":"auth","message":"no key"}}'; exit 1`, jobs.KindAuth, "the backend fake: no key"},
		"an own hint":       {`printf '%s\n' '{"error":{"kind":"quota","message":"full","hint":"pay\nmore"}}'`, jobs.KindAgain, "the backend fake: full"},
		"rate":              {`echo '{"error":{"kind":"rate","message":"slow"}}'`, jobs.KindAgain, "slow"},
		"gone":              {`echo '{"error":{"kind":"gone","message":"over"}}'`, jobs.KindAgain, "over"},
		"not found":         {`echo '{"error":{"kind":"not_found","message":"no image"}}'`, jobs.KindNotFound, "no image"},
		"conflict":          {`echo '{"error":{"kind":"conflict","message":"taken"}}'`, jobs.KindConfig, "taken"},
		"changed":           {`echo '{"error":{"kind":"changed","message":"other"}}'`, jobs.KindConfig, "other"},
		"unsupported":       {`echo '{"error":{"kind":"unsupported","message":"no disk"}}'`, jobs.KindConfig, "no disk"},
		"input":             {`echo '{"error":{"kind":"input","message":"bad"}}'`, jobs.KindUsage, "bad"},
		"unclear":           {`echo '{"error":{"kind":"unclear","message":"who knows"}}'`, jobs.KindUnclear, "who knows"},
		"unreachable":       {`echo '{"error":{"kind":"unreachable","message":"off"}}'`, jobs.KindInfra, "off"},
		"a kind of its own": {`echo '{"error":{"kind":"tuesday","message":"odd"}}'`, jobs.KindInfra, "odd"},
		"no message":        {`echo '{"error":{"kind":"auth","message":" "}}'`, jobs.KindAuth, "the backend fake failed (auth)"},
		"an error, then ok": {`echo '{"error":{"kind":"auth","message":"x"}}'; echo '{"ok":{}}'`, jobs.KindInfra, "it went on after its answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var k protocol.Checked
			asks := call(t, c.body)
			if strings.Contains(c.body, "sleep 60") { // it does not end by itself
				asks.times = hasty()
			}
			err := asks.ask(t.Context(), protocol.Request{Verb: protocol.VerbCheck}, nil, &k)
			wantError(t, err, c.kind, c.said)
		})
	}
}

// One that has answered and stays is ended, and its answer counts.
func TestAnswerOfOneThatStays(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	c := call(t, `echo $$ >`+pid+`; echo '{"ok":{"version":"7"}}'; trap '' TERM; while :; do sleep 1; done`)
	c.times = hasty()
	var k protocol.Checked
	if err := c.ask(t.Context(), protocol.Request{Verb: protocol.VerbCheck}, nil, &k); err != nil || k.Version != "7" {
		t.Fatal(k, err)
	}
	b, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(b))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("process %s is there still: %v", b, err)
	}
}

// A program is told to end before it is killed: it may have begun to make
// something.
func TestInterrupted(t *testing.T) {
	dir := t.TempDir()
	c := call(t, `trap 'echo undone >`+dir+`/undone; exit 1' TERM; echo '{"progress":"begun"}'; while :; do sleep 0.1; done`)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	var o protocol.Opened
	err := c.ask(ctx, protocol.Request{Verb: protocol.VerbOpen}, func(string) { cancel(why) }, &o)
	if !errors.Is(err, why) {
		t.Error(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "undone")); err != nil || string(b) != "undone\n" {
		t.Errorf("it could undo nothing: %q %v", b, err)
	}
}

// Progress is a sign of life: a slow program is none that hangs. One that falls
// silent after it is.
func TestProgressKeepsAlive(t *testing.T) {
	for gap, goesOn := range map[time.Duration]bool{protocol.SilentTime - time.Second: true, protocol.SilentTime + time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			c := &caller{name: "fake", program: []string{"fake"}, on: played{gap}, times: defaultTimes()}
			var none struct{}
			err := c.ask(t.Context(), protocol.Request{Verb: protocol.VerbOpen}, nil, &none)
			if goesOn && err != nil || !goesOn && (err == nil || !strings.Contains(err.Error(), "has said nothing for 2m0s")) {
				t.Errorf("a word every %v: %v", gap, err)
			}
		})
	}
}

// played is a program that says something after every gap, a few times, and then
// answers.
type played struct{ gap time.Duration }

func (p played) Start(ctx context.Context, cmd jobs.Cmd) (jobs.Process, error) {
	r := &running{ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		for _, line := range append(slices.Repeat([]string{`{"progress":"x"}`}, 5), `{"ok":{}}`) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(p.gap):
			}
			_, _ = io.WriteString(cmd.Stdout, line+"\n")
		}
	}()
	return r, nil
}

type running struct{ ended chan struct{} }

func (r *running) Signal(syscall.Signal) error { return nil }

func (r *running) Wait() (jobs.Exit, error) {
	<-r.ended
	return jobs.Exit{Started: true}, nil
}

func TestProgramThatCannotBeStarted(t *testing.T) {
	c := call(t, "")
	c.program = []string{"/nonexistent/berth-backend-fake"}
	var none struct{}
	wantError(t, c.ask(t.Context(), protocol.Request{Verb: protocol.VerbCheck}, nil, &none), jobs.KindConfig, "start the program of the backend fake")
}

func TestEnviron(t *testing.T) {
	got := strings.Join(Environ("my-cloud", []string{"PATH=/bin", "HOME=/h", "MY_CLOUD_KEY=s", "MY_CLOUDY=x", "AWS_SECRET=y", "https_proxy=p", "MODAL_TOKEN_ID=t", "SSH_AUTH_SOCK=z"}), " ")
	if want := "PATH=/bin HOME=/h https_proxy=p MY_CLOUD_KEY=s"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]fs.FileMode{"berth-backend-one": 0o755, "berth-backend-two": 0o644, "berth-backend-docker": 0o755, "berth-backend-UP": 0o755, "other": 0o755} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":relative:/nonexistent")
	if got := strings.Join(Names(), " "); got != "one" {
		t.Errorf("found %q", got)
	}
	if p, err := Find("one", nil); err != nil || p[0] != filepath.Join(dir, "berth-backend-one") {
		t.Error(p, err)
	}
	if p, err := Find("two", []string{"builtin"}); err != nil || p[0] != "builtin" {
		t.Error(p, err)
	}
	t.Setenv("PATH", dir)
	for _, c := range []struct {
		path string
		mode fs.FileMode
		good bool
	}{
		{dir, 0o777, false}, {dir, 0o777 | fs.ModeSticky, true}, {dir, 0o775, true},
		{filepath.Join(dir, "berth-backend-one"), 0o757, false}, {filepath.Join(dir, "berth-backend-one"), 0o775, true},
	} {
		if err := os.Chmod(c.path, c.mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Find("one", nil); c.good != (err == nil) {
			t.Errorf("%s %v: %v", c.path, c.mode, err)
		} else if err != nil {
			wantError(t, err, jobs.KindConfig, "everybody can write to "+c.path)
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// A link leads to where the program is, which is what counts.
	far := filepath.Join(t.TempDir(), "far")
	if err := os.Mkdir(far, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(far, "program"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(far, "program"), filepath.Join(dir, "berth-backend-far")); err != nil {
		t.Fatal(err)
	}
	if _, err := Find("far", nil); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(far, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := Find("far", nil)
	wantError(t, err, jobs.KindConfig, "everybody can write to "+far)
	_, err = Find("dokcer", nil)
	wantError(t, err, jobs.KindUsage, "unknown backend dokcer")
	_, err = Find("modal", nil)
	wantError(t, err, jobs.KindConfig, "the backend modal needs the program berth-backend-modal")
}
