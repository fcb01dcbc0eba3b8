package agents

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "write the golden files again")

// decode gives all events of a stream.
func decode(t testing.TB, format string, pieces ...[]byte) ([]Event, Counts) {
	t.Helper()
	var out []Event
	d, err := NewDecoder(format, func(e Event) { out = append(out, e) })
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pieces {
		if n, err := d.Write(p); n != len(p) || err != nil {
			t.Fatalf("%d of %d, %v", n, len(p), err)
		}
	}
	d.Close()
	return out, d.Seen
}

func shown(events []Event, seen Counts) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	for _, e := range events {
		_ = enc.Encode(e)
	}
	fmt.Fprintf(&b, "# %+v\n", seen)
	return b.Bytes()
}

// golden compares with a file of testdata.
func golden(t *testing.T, file string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}

func TestStreams(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json*")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		base := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(file), ".jsonl"), ".json")
		format := base
		if formats[format] == nil {
			format, _, _ = strings.Cut(base, "-")
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if base == "hostile" {
			for _, format := range Formats() {
				events, seen := decode(t, format, data)
				check(t, events)
				golden(t, "testdata/hostile-"+format+".events", shown(events, seen))
			}
			continue
		}
		events, seen := decode(t, format, data)
		golden(t, "testdata/"+base+".events", shown(events, seen))
		// However it comes.
		split, _ := decode(t, format, bytes.SplitAfter(data, nil)...)
		if a, b := shown(events, seen), shown(split, seen); !bytes.Equal(a, b) {
			t.Errorf("%s, byte by byte: %s", file, b)
		}
	}
}

// check holds events to what is promised of them.
func check(t testing.TB, events []Event) {
	t.Helper()
	for _, e := range events {
		for _, s := range append([]string{e.Kind, e.Text, e.Tool, e.Arg, e.ID, e.Session, e.Model, e.Version, e.Reason}, e.Denied...) {
			if strings.ContainsFunc(s, hidden) || !utf8.ValidString(s) || len(s) > maxText+len("…") {
				t.Fatalf("%+v: %q", e, s)
			}
		}
		if u := e.Usage; u != nil && (u.Input < 0 || u.Output < 0 || u.CacheRead < 0 || u.CacheWrite < 0 || u.USD < 0 || u.USD > maxUSD) {
			t.Fatalf("%+v", *u)
		}
		before := e
		if e.Clean(); fmt.Sprintf("%+v", e) != fmt.Sprintf("%+v", before) {
			t.Fatalf("%+v is not clean: %+v", before, e)
		}
	}
}

// TestHostileShapes: what is deep, huge or no number makes clean events at most, for every
// format, and what follows is read.
func TestHostileShapes(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	objects := strings.Repeat(`{"a":`, 9_000) + "1" + strings.Repeat("}", 9_000)
	lines := []string{
		deep(100_000), `{"type":"assistant","message":` + deep(10_000) + `}`, `{"type":"assistant","message":` + deep(9_990) + `}`,
		`{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"t","name":"x","input":` + objects + `}]}}`,
		`{"type":"item.completed","item":{"id":"i","type":"mcp_tool_call","arguments":` + objects + `,"result":{"content":` + deep(9_000) + `}}}`,
		`{"type":"tool_use","tool_name":"x","parameters":` + objects + `,"part":{"tool":"x","state":{"status":"completed","input":` + objects + `}}}`,
		"\x00\x00", "{\"type\":\"result\",\"result\":\"a\x00b\"}", `{"type":"assistant","type":"result","num_turns":1,"num_turns":99999999999999999999999}`,
		`{"type":"result","num_turns":-9223372036854775808,"total_cost_usd":-1,"usage":{"input_tokens":9223372036854775807,"output_tokens":9223372036854775807}}`,
		`{"type":"turn.completed","usage":{"input_tokens":-9223372036854775808,"cached_input_tokens":9223372036854775807,"cache_write_input_tokens":9223372036854775807}}`,
		`{"type":"result","status":"success","stats":{"total_tokens":9223372036854775807,"input_tokens":-9223372036854775808,"output_tokens":9223372036854775807,"cached":9223372036854775807}}`,
		`{"type":"step_finish","part":{"cost":1e999,"tokens":{"input":1e999,"output":-1,"reasoning":9223372036854775807,"cache":{"read":-1,"write":1.5}}}}`,
		`{"type":"system","subtype":"api_retry","attempt":-5,"max_retries":99999999999,"error_status":1e9,"error":"` + strings.Repeat("x", 100_000) + `"}`,
		`{"type":"user","message":{"content":` + strings.Repeat(`[{"type":"tool_result","content":[{"text":"`, 1) + strings.Repeat("y", 3<<20) + `"}]}]}}`,
	}
	for _, format := range Formats() {
		events, seen := decode(t, format, []byte(strings.Join(lines, "\n")+"\n"))
		if check(t, events); seen.Lines != len(lines) || len(events) > 3*len(lines) {
			t.Errorf("%s: %d events, %+v", format, len(events), seen)
		}
	}
}

// TestBegin: a long text is cut between characters, wherever its escapes are.
func TestBegin(t *testing.T) {
	for _, escape := range []string{`\n`, `\\`, `\"`, `\u00e9`, `\ud83d\ude00`, "é", `a\\\n`} {
		for shift := range 12 {
			long := `"` + strings.Repeat("x", shift) + strings.Repeat(escape, maxWords) + `"`
			var w words
			if err := json.Unmarshal([]byte(long), &w); err != nil || len(w) < maxText || len(w) > maxWords {
				t.Errorf("%q, shifted by %d: %d bytes, %v", escape, shift, len(w), err)
			}
		}
	}
}

// TestUnquote: the text is the one that encoding/json makes of the same string.
func TestUnquote(t *testing.T) {
	for _, text := range []string{``, `a`, `\n`, `\b\f\n\r\t\/\\\"x`, `a\u00e9b`, `\ud83d\ude00`, `\ud83d`, `\ud83dx`, `\ud83d\n`, `\ud83d\u0041`, `\ude00\ud83d`,
		`\ud83d\ud83d\ude00`, `\u0000`, `é\u2028€`, `\\u0041`} {
		var want string
		if err := json.Unmarshal([]byte(`"`+text+`"`), &want); err != nil {
			t.Fatal(text, err)
		}
		if got := unquote([]byte(text)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// TestReasonOf: a status is a number of its own, and no part of a port; what the broker
// refuses says nothing of the key.
func TestReasonOf(t *testing.T) {
	for said, want := range map[string]string{
		"unexpected status 401 Unauthorized, url: http://127.0.0.1:4/v1": ReasonAuth,
		"status: 403": ReasonAuth,
		"bad thing, url: http://127.0.0.1:40123/v1": "",
		"bad thing, url: http://127.0.0.1:403/v1":   "",
		"503 Service Unavailable":                   ReasonAPI,
		"(code=529)":                                ReasonAPI,
		"1500 tokens":                               "",
		"unexpected status 403 Forbidden: berth: the request names a tool, url: …": "",
	} {
		if got := reasonOf(said); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}

// TestLongLines: what has no end holds bounded memory, and what follows is read.
func TestLongLines(t *testing.T) {
	var got []Event
	d, _ := NewDecoder("claude", func(e Event) { got = append(got, e) })
	block := bytes.Repeat([]byte("x"), 1<<20)
	for range 100 {
		_, _ = d.Write(block)
		if cap(d.line) > 2*maxLine {
			t.Fatal(cap(d.line))
		}
	}
	_, _ = d.Write([]byte("\n" + `{"type":"system","subtype":"init","session_id":"s"}` + "\n"))
	if len(got) != 2 || got[0].Kind != KindText || len(got[0].Text) > maxShort+4 || got[1].Session != "s" || d.Seen.Long != 1 || cap(d.line) > 1<<20 {
		t.Fatalf("%+v %+v %d", got, d.Seen, cap(d.line))
	}
}

func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"plain ü→\n\tx":                     "plain ü→\n\tx",
		"\x1b[31mred\x1b[0m\x1b[2J!":        "red!",
		"a\x00b\x9bc\xffd":                  "ab\ufffdc\ufffdd",
		"a\u202eb\u2028c\x85":               "abc\ufffd",
		"\x1b]52;c;ZXZpbA==\x07clipboard":   "clipboard",
		strings.Repeat("a", 11):             "aaaaaaaaaa…",
		strings.Repeat("a", 9) + "ü":        "aaaaaaaaa…",
		strings.Repeat("a", 8) + "ü" + "bb": "aaaaaaaaü…",
	} {
		most := 10
		if len(in) > 12 || !strings.HasPrefix(in, "aaaa") {
			most = maxText
		}
		if got := text(in, most); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestSession(t *testing.T) {
	for in, want := range map[string]string{"ses_1.a-B": "ses_1.a-B", "--dangerously": "", "; rm -rf": "", "a/b": "", strings.Repeat("a", 200): "", "": ""} {
		if got := session(in); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
}

func FuzzDecoder(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.json*")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for i := range Formats() {
			f.Add(uint8(i), data)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		events, seen := decode(t, Formats()[int(which)%len(Formats())], data)
		check(t, events)
		if seen.Events != len(events) {
			t.Fatal(seen)
		}
	})
}

// The result of a tool of copilot's is what encoding/json would read, however it is written.
func TestCopilotResult(t *testing.T) {
	for _, s := range []string{
		`"a\nb"`, `{}`, `{ }`, `[]`, `null`, `7`, `{"content":"x"}`, `{"Content" : "x"}`, `{"con\u0074ent":"x"}`, `{"content":null}`,
		`{"content":"x","content":"y"}`, `{"content":"x","content":null}`, `{"content":[{"text":"x"},{"text":"y"}]}`, `{"content":7,"b":"z"}`,
		`{"a":{"content":"in"},"b":[1,"]}",{"c":"\\"}],"content":"\\\"out\\"}`, "{\n\t\"a\" : -1.5e3 ,\r \"content\":\t\"x\\ud83d\\ude00\" }",
		`{"a":true,"b":false,"c":null,"d":"","content":"x"}`,
		`{"detailed":"\"content\":\"no\"","content":""}`, `{"":"","content":{"content":"x"}}`, `{"content":"x\\"}`,
	} {
		var got struct{ Result copilotResult }
		if err := json.Unmarshal([]byte(`{"result":`+s+`}`), &got); err != nil {
			t.Fatal(err)
		}
		var of struct{ Content words }
		want := ""
		if strings.HasPrefix(s, "{") {
			if err := json.Unmarshal([]byte(s), &of); err != nil {
				t.Fatal(err)
			}
			want = string(of.Content)
		} else if strings.HasPrefix(s, `"`) {
			if err := json.Unmarshal([]byte(s), &want); err != nil {
				t.Fatal(err)
			}
		}
		if string(got.Result) != want {
			t.Errorf("%s: %q, not %q", s, got.Result, want)
		}
	}
}
