package broker

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"berth/jobs"
)

// What the walker shows is what encoding/json reads, and what it takes is valid.
func FuzzWalk(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":[1,{"b":"c\n\u0041"}],"d":null}`, `{"a":1,"a":2}`, `{"a":1,"\u0061":2}`, `[[[]]]`, `"x"`, ` 1e5 `, `{"tools":[{"type":"x"}]}`, `{"a":"\ud800"}`,
		`{"\ud800":1}`, "{\"\xff\":1}", strings.Repeat("[", 200) + strings.Repeat("]", 200)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var texts []string
		err := walk(body, func(path []string, v item) {
			if v.kind == '"' {
				texts = append(texts, v.text())
			}
		})
		if err != nil {
			return
		}
		var want []string
		d := json.NewDecoder(bytes.NewReader(body))
		for d.More() {
			var v any
			if err := d.Decode(&v); err != nil {
				t.Fatalf("%q is taken, and is none: %v", body, err)
			}
			collect(v, &want)
		}
		if len(texts) != len(want) {
			t.Fatalf("%q: %q, wanted %q", body, texts, want)
		}
		for _, api := range jobs.APIs {
			_, _ = ask(api, body)
		}
	})
}

func collect(v any, out *[]string) {
	switch v := v.(type) {
	case string:
		*out = append(*out, v)
	case []any:
		for _, one := range v {
			collect(one, out)
		}
	case map[string]any:
		for _, one := range v {
			collect(one, out)
		}
	}
}

// However an answer is cut into pieces, what passes is its beginning, and never a key.
func FuzzScan(f *testing.F) {
	f.Add([]byte("xxabcabcdxx"), []byte("abcd"), 3)
	f.Add([]byte("aaaaaaab"), []byte("aaab"), 1)
	f.Add([]byte("nothing"), []byte("zz"), 2)
	f.Fuzz(func(t *testing.T, text, key []byte, step int) {
		if len(key) == 0 || step <= 0 {
			return
		}
		s := &scanner{keys: [][]byte{key, append([]byte("x"), key...)}}
		var out []byte
		for rest := text; len(rest) > 0; {
			n := min(step, len(rest))
			piece, clean := s.next(append([]byte(nil), rest[:n]...))
			if !clean {
				if !bytes.Contains(text, key) {
					t.Fatalf("%q is cut for %q", text, key)
				}
				return
			}
			out = append(out, piece...)
			rest = rest[n:]
			if bytes.Contains(out, key) || !bytes.HasPrefix(text, out) {
				t.Fatalf("%q of %q passes", out, text)
			}
		}
		if out = append(out, s.rest()...); bytes.Contains(text, key) || !bytes.Equal(out, text) {
			t.Fatalf("%q has %q in it, and %q passes", text, key, out)
		}
	})
}
