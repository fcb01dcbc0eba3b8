package engine

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"
	"berth/jobs/store"
)

// told is a writer that says when it has been written to.
type told struct {
	bytes.Buffer
	now chan string
}

func (w *told) Write(p []byte) (int, error) {
	n, err := w.Buffer.Write(p)
	w.now <- w.String()
	return n, err
}

func writes(t *testing.T, r *jobs.Record, name, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(r.Current().Dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(t, err)
	_, err = f.WriteString(text)
	must(t, errors.Join(err, f.Close()))
}

// The output comes while the job runs, and what is written last with its end.
func TestLogFollow(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(), Choice{})
	f.claim(r)
	out, errs := told{now: make(chan string, 3)}, bytes.Buffer{}
	step := 0
	f.onSleep = func() {
		switch step++; step {
		case 1:
			writes(t, r, store.FileStdout, "one\n")
			if got := <-out.now; got != "one\n" {
				t.Errorf("%q", got)
			}
			writes(t, r, store.FileStdout, "two")
			if got := <-out.now; got != "one\ntwo" {
				t.Errorf("%q", got)
			}
		case 2:
			writes(t, r, store.FileStdout, "three")
			writes(t, r, store.FileStderr, "err")
			f.exit(r, jobs.StateFailed, 3)
		}
	}
	v, err := f.Log(t.Context(), r, LogOptions{Stdout: &out, Stderr: &errs, Follow: true})
	if err != nil || v.State != jobs.StateFailed || out.String() != "one\ntwothree" || errs.String() != "err" {
		t.Errorf("%s, %v: %q %q", v.State, err, out.String(), errs.String())
	}
}

// Each attempt's output comes whole and in order, and of an attempt the caller is told
// between them, even if it has ended before anybody looked.
func TestLogAttempts(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(again, gib), Choice{})
	var out bytes.Buffer
	run := func(text string, e jobs.ExitRecord) {
		now := f.load(r)
		writes(t, now, store.FileStdout, text)
		f.end(now, e)
		f.see(r)
	}
	var after []string
	step := 0
	f.onSleep = func() {
		if step++; step == 1 {
			run("first,", oom)
			run("second,", oom)
			run("third", jobs.ExitRecord{State: jobs.StateCompleted})
		}
	}
	v, err := f.Log(t.Context(), r, LogOptions{Stdout: &out, Follow: true, See: func(v View) { after = append(after, string(v.State)+" "+out.String()) }})
	if err != nil || v.State != jobs.StateCompleted || out.String() != "first,second,third" {
		t.Errorf("%s, %v: %q", v.State, err, out.String())
	}
	if got := strings.Join(after, "; "); got != "pending ; completed first,second," {
		t.Errorf("told: %s", got)
	}
	// From the record of a later attempt, that one's; without Follow, what is there.
	for rec, want := range map[*jobs.Record]string{r: "first,second,third", f.load(r): "third"} {
		out.Reset()
		if _, err := f.Log(t.Context(), rec, LogOptions{Stdout: &out}); err != nil || out.String() != want {
			t.Errorf("%v: %q, want %q", err, out.String(), want)
		}
	}
}

func TestLogNothing(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(), Choice{})
	f.claim(r)
	var out bytes.Buffer
	writes(t, r, store.FileStdout, "out")
	for kind, files := range map[LogKind]string{LogRuntime: store.FileRuntime, LogDone: store.FileDoneStdout} {
		if _, err := f.Log(t.Context(), r, LogOptions{Kind: kind, Stdout: &out}); jobs.KindOf(err) != jobs.KindNotFound || out.Len() > 0 {
			t.Errorf("%s: %v %q", kind, err, out.String())
		}
		writes(t, r, files, string(kind))
		if _, err := f.Log(t.Context(), r, LogOptions{Kind: kind, Stdout: &out}); err != nil || out.String() != string(kind) {
			t.Errorf("%s: %v %q", kind, err, out.String())
		}
		out.Reset()
	}
}

// The context and a writer that fails end it, and not the job.
func TestLogEnds(t *testing.T) {
	f := newFixture(t)
	r := f.submit(task(), Choice{})
	f.claim(r)
	writes(t, r, store.FileStdout, "out")
	ctx, cancel := context.WithCancel(t.Context())
	f.onSleep = cancel
	if v, err := f.Log(ctx, r, LogOptions{Follow: true}); !errors.Is(err, context.Canceled) || v.State != jobs.StateRunning {
		t.Errorf("%s, %v", v.State, err)
	}
	f.onSleep = func() { f.beat(r) }
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	defer full.Close()
	_, err = f.Log(t.Context(), r, LogOptions{Stdout: full, Follow: true})
	if jobs.KindOf(err) != jobs.KindInfra || !strings.Contains(err.Error(), "no space left") {
		t.Error(err)
	}
	if s := jobs.StateOf(f.load(r)); s != jobs.StateRunning {
		t.Error(s)
	}
}

// Of a job behind a login host, the output is brought here first.
func TestLogFar(t *testing.T) {
	c := newCluster(t)
	r := c.submit(c.away(task()), Choice{})
	c.starts(r)
	c.onSleep = func() { c.ends(r); c.onSleep = nil }
	var out bytes.Buffer
	if v, err := c.Log(t.Context(), r, LogOptions{Stdout: &out, Follow: true}); err != nil || v.State != jobs.StateCompleted || out.String() != "out\n" {
		t.Errorf("%s, %v: %q", v.State, err, out.String())
	}
}
