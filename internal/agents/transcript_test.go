package agents

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func readAll(t *testing.T, path string) []Event {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []Event
	if err := ReadTranscript(f, func(e Event) error { out = append(out, e); return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTranscript(t *testing.T) {
	path := filepath.Join(t.TempDir(), "transcript.jsonl")
	data, err := os.ReadFile("testdata/claude.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	want, _ := decode(t, "claude", data)
	tr, err := OpenTranscript(path)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1e9, 0).UTC()
	for i := range want {
		want[i].Time = at
		tr.Write(want[i])
	}
	tr.Flush()
	if got := readAll(t, path); !bytes.Equal(shown(got, Counts{}), shown(want, Counts{})) {
		t.Errorf("got %s", shown(got, Counts{}))
	}
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o600 {
		t.Error(fi.Mode(), err)
	}
	// One that was cut off, by a runner that was killed, goes on with a line of its own.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = f.WriteString(`{"kind":"mess`)
	_ = f.Close()
	if tr, err = OpenTranscript(path); err != nil {
		t.Fatal(err)
	}
	tr.Write(Event{Kind: KindMessage, Text: "again"})
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, path); len(got) != len(want)+1 || got[len(want)].Text != "again" {
		t.Errorf("%d %+v", len(got), got[len(got)-1])
	}
}

func TestTranscriptLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(dir, "victim"), filepath.Join(dir, "transcript.jsonl")); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenTranscript(filepath.Join(dir, "transcript.jsonl")); err == nil {
		t.Error("it was opened through a link")
	}
}

// TestTranscriptBounds: what is more is counted, and the end is there all the same.
func TestTranscriptBounds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "transcript.jsonl")
	tr, err := OpenTranscript(path)
	if err != nil {
		t.Fatal(err)
	}
	tr.events = maxEvents - 1
	for range 10 {
		tr.Write(Event{Kind: KindMessage, Text: "x"})
	}
	tr.Write(Event{Kind: KindEnd})
	if err := tr.Close(); err != nil {
		t.Fatal(err)
	}
	got := readAll(t, path)
	if len(got) != 3 || got[1].Kind != KindEnd || got[2].Kind != KindCut || got[2].Turns != 10 {
		t.Errorf("%+v", got)
	}
}

// TestReadTranscript: one that comes from a cluster may be anything.
func TestReadTranscript(t *testing.T) {
	in := strings.Join([]string{
		`{"kind":"message","text":"\u001b]0;x\u0007hello\u202e"}`, `no json`, `{"text":"no kind"}`, `[1]`,
		`{"kind":"message","text":"` + strings.Repeat("x", 1<<20) + `"}`,
		`{"kind":"end","usage":{"requests":-4,"input_tokens":-1,"usd":-2},"session":"--x","turns":-7}`, `{"kind":"cut off"`,
	}, "\n")
	var got []Event
	if err := ReadTranscript(strings.NewReader(in), func(e Event) error { got = append(got, e); return nil }); err != nil {
		t.Fatal(err)
	}
	if check(t, got); len(got) != 2 || got[0].Text != "hello" || got[1].Session != "" || got[1].Turns != 0 || got[1].Usage.USD != 0 {
		t.Errorf("%+v", got)
	}
	stop := errors.New("stop")
	if err := ReadTranscript(strings.NewReader(in), func(Event) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
}

func TestView(t *testing.T) {
	for _, format := range []string{"claude", "codex", "gemini", "opencode", "claude-turns"} {
		data, err := os.ReadFile("testdata/" + format + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		v := &View{W: &out, Wide: 60}
		d, _ := NewDecoder(strings.TrimSuffix(format, "-turns"), func(e Event) {
			if err := v.Event(e); err != nil {
				t.Fatal(err)
			}
		})
		_, _ = d.Write(data)
		d.Close()
		golden(t, "testdata/"+format+".view", out.Bytes())
	}
	var out bytes.Buffer
	v := &View{W: &out, Colour: true}
	for _, e := range []Event{{Kind: KindTool, Tool: "Bash", Arg: "ls"}, {Kind: KindResult, Text: "a\nb\nc\nd", Failed: true}, {Kind: KindCut, Turns: 3}} {
		_ = v.Event(e)
	}
	want := "\x1b[34m> Bash\x1b[0m ls\n\x1b[31m  ! a\x1b[0m\n\x1b[31m  ! b\x1b[0m\n\x1b[31m  ! c  (+1 lines)\x1b[0m\n\x1b[2m-- 3 events were left out: a transcript has 200000 at most\x1b[0m\n"
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
}
