package external

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"berth/backends/external/protocol"
	"berth/internal/sys/run"
	"berth/jobs"
)

// verbs are how the backend asks for each verb that has one answer.
var verbs = map[string]func(t *testing.T, x *box, at jobs.SnapshotPlace) error{
	protocol.VerbCheck: func(t *testing.T, x *box, _ jobs.SnapshotPlace) error {
		_, err := x.b.Checked(t.Context())
		return err
	},
	protocol.VerbOpen: func(t *testing.T, x *box, _ jobs.SnapshotPlace) error {
		_, err := x.open(t)
		return err
	},
	protocol.VerbList: func(t *testing.T, x *box, _ jobs.SnapshotPlace) error {
		_, err := x.b.List(t.Context(), x.starter())
		return err
	},
	protocol.VerbStop: func(t *testing.T, x *box, _ jobs.SnapshotPlace) error { return x.b.End(t.Context(), x.s) },
	protocol.VerbDestroy: func(t *testing.T, x *box, _ jobs.SnapshotPlace) error {
		return x.b.Remove(t.Context(), x.s, x.starter())
	},
	protocol.VerbSnapshot: func(t *testing.T, x *box, at jobs.SnapshotPlace) error {
		_, err := x.b.Snapshot(t.Context(), x.s, "new", at)
		return err
	},
	protocol.VerbRestore: func(t *testing.T, x *box, at jobs.SnapshotPlace) error {
		return x.b.Restore(t.Context(), x.s, "whole", at)
	},
	protocol.VerbExec: func(t *testing.T, x *box, _ jobs.SnapshotPlace) error {
		_, _, err := x.b.Exec(t.Context(), x.s, jobs.Once{Argv: []string{"true"}, Hold: func() (func(), error) { return func() {}, nil }})
		return err
	},
}

// misbehaving is an environment with a snapshot, whose program does body when it
// is asked for verb, and writes the processes that are to be gone afterwards
// into the file $PIDS.
func misbehaving(t *testing.T, verb, body string) (x *box, at jobs.SnapshotPlace, pids string) {
	t.Helper()
	x, at = keeping(t, "", "", "")
	pids = filepath.Join(x.record, "pids")
	program := program(t, `case $1 in `+verb+`) echo $$ >>`+pids+`; `+strings.ReplaceAll(body, "$PIDS", pids)+`;;
check) echo '{"ok":{"version":"1","level":"fs","snapshots":true}}';; *) echo '{"ok":{}}';; esac`)
	x.b.Builtin, x.s.External.Program, x.scratch = program, program, t.TempDir()
	x.on = begins{verb: verb, pids: pids}
	x.b.On, at.On = x.on, x.on
	dir := filepath.Join(x.s.Home, "envs", x.s.Name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := (&Made{Version: 1, Ref: "sb-1"}).save(dir); err != nil {
		t.Fatal(err)
	}
	k := &kept{Version: 1, External: *x.s.External, Snapshot: jobs.Snapshot{Name: "whole", Backend: "fake", Environment: "demo", EnvID: x.s.ID, Created: time.Now()}}
	if _, err := k.begin(x.s.Home); err != nil {
		t.Fatal(err)
	}
	return x, at, pids
}

// begins starts programs as usual, and waits until that of the verb has begun: the
// time that it has is from then on, however slow the machine is.
type begins struct{ verb, pids string }

func (b begins) Start(ctx context.Context, c jobs.Cmd) (jobs.Process, error) {
	p, err := run.Local{}.Start(ctx, c)
	if err != nil || !slices.Contains(c.Argv, b.verb) {
		return p, err
	}
	for until := time.Now().Add(2 * time.Minute); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(b.pids); err == nil {
			break
		}
	}
	return p, nil
}

// A program that hangs, dies, floods or lies is a clear error, whatever it was
// asked for, and nothing of it stays.
func TestProgramsThatMisbehave(t *testing.T) {
	slow := map[string]string{protocol.VerbExec: "it did not begin the command within 700ms"}
	mute := map[string]string{protocol.VerbExec: "it ended and did not say how the command has"}
	twice := map[string]string{protocol.VerbExec: "it wrote a line that is none of an exec's"}
	for name, c := range map[string]struct {
		body  string
		hangs bool
		said  string
		of    map[string]string // of some verbs, in place of said
		kind  jobs.Kind
		spare string // verbs whose answer that is
	}{
		"never answers":         {body: `sleep 60 & echo $! >>$PIDS; wait`, hangs: true, said: "it did not answer within 700ms", of: slow},
		"does not end":          {body: `trap '' TERM; sleep 60 & echo $! >>$PIDS; while :; do sleep 1; done`, hangs: true, said: "it did not answer within 700ms", of: slow},
		"closes its output":     {body: `exec >&-; sleep 60 & echo $! >>$PIDS; wait`, hangs: true, said: "it did not answer within 700ms", of: slow},
		"an error, and stays":   {body: says(`{"error":{"kind":"auth","message":"no key"}}`) + `; sleep 60 & echo $! >>$PIDS; wait`, said: "no key", kind: jobs.KindAuth},
		"not a line, and stays": {body: `echo hello; sleep 60 & echo $! >>$PIDS; wait`, said: `it wrote a line that is none of the protocol's: "hello"`},
		"no answer":             {body: `exit 0`, said: "it ended (exit code 0) without an answer", of: mute},
		"words for people":      {body: `printf 'no \033[31mluck\007\n' >&2; exit 1`, said: "it ended (exit code 1) without an answer: no [31mluck", of: mute},
		"a long line":           {body: `head -c 1100000 /dev/zero | tr '\0' x; sleep 60 & echo $! >>$PIDS; wait`, said: "it wrote a line of more than 1048576 bytes"},
		"no UTF-8":              {body: `printf '{"ok":{"ref":"sb-\377","version":"\033","name":"x"}}\n'`, said: "it wrote a line that is not UTF-8"},
		"codes":                 {body: `printf 'a\033[2Jb\r\n'`, said: `it wrote a line that is none of the protocol's: "a\x1b[2Jb`},
		"another version":       {body: says(`{"error":{"kind":"unsupported","message":"the request has version 1, and this program knows 2"}}`), said: "this program knows 2", kind: jobs.KindConfig},
		"two answers":           {body: `echo '{"ok":{}}'; echo '{"ok":{}}'`, said: "it went on after its answer", of: twice},
		"a list":                {body: says(`{"ok":[]}`), said: "it wrote a line that is none of the protocol's"},
		"other types":           {body: says(`{"ok":{"level":7,"ref":7,"found":7,"snapshot":7}}`), said: "cannot be understood", of: mute, spare: "stop destroy"},
		"nothing said":          {body: says(`{"ok":{}}`), said: "makes no sense", of: mute, spare: "stop destroy"},
		"a flood of words":      {body: `yes "$(printf 'e\033')" | head -c 3000000 >&2; exit 4`, said: "(exit code 4) without an answer: e e", of: map[string]string{protocol.VerbExec: "it ended and did not say how the command has: e e"}},
	} {
		for verb, ask := range verbs {
			if strings.Contains(c.spare, verb) {
				continue
			}
			t.Run(name+"/"+verb, func(t *testing.T) {
				t.Parallel()
				x, at, pids := misbehaving(t, verb, c.body)
				x.b.times = patient()
				if strings.Contains(c.body, "sleep") { // it does not end by itself
					x.b.times.leave = 300 * time.Millisecond
				}
				if c.hangs {
					x.b.times.verbs[verb] = 700 * time.Millisecond
				}
				err := ask(t, x, at)
				said, kind := c.said, c.kind
				if c.of[verb] != "" {
					said = c.of[verb]
				}
				own := kind != 0 // the words are the program's
				switch {
				case own:
				case verb == protocol.VerbSnapshot || strings.Contains(said, "did not say"):
					kind = jobs.KindUnclear // it may have been done
				default:
					kind = jobs.KindInfra
				}
				wantError(t, err, kind, said)
				if err == nil {
					return
				}
				words := err.Error() + jobs.HintOf(err)
				if !own && !strings.Contains(words, "the backend fake: asked to "+verb+", ") && !strings.Contains(words, "the backend fake: its answer to "+verb+" ") {
					t.Errorf("it does not name the program and the verb: %s", words)
				}
				if strings.ContainsFunc(words, func(r rune) bool { return !unicode.IsPrint(r) }) {
					t.Errorf("it cannot be printed: %q", words)
				}
				gone(t, pids)
			})
		}
	}
}

// gone wants the processes that a file names to have ended.
func gone(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range strings.Fields(string(b)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		for until := time.Now().Add(2 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
			p, is := run.ReadProc(pid)
			if !is || p.Zombie {
				break
			}
			if time.Now().After(until) {
				t.Errorf("process %d is there still: %+v", pid, p)
				break
			}
		}
	}
}
