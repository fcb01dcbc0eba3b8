package protocol_test

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"berth/backends/external/protocol"
)

var (
	// shown is a block of messages of the page, or one within a line.
	shown = regexp.MustCompile("(?s)```json\n(.*?)```|`(\\{\"[^`]*)`")
	// left is what a message of the page leaves out.
	left = strings.NewReplacer("{...}", "{}", ", ...}", "}")
)

// Each message of docs/backend-protocol.md is one of these types, and says with it what it
// says: no field is unknown, and none has another type or form.
func TestPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "backend-protocol.md"))
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]func() any{ // what an ok has
		protocol.VerbCheck: func() any { return &protocol.Checked{} }, protocol.VerbOpen: func() any { return &protocol.Opened{} },
		protocol.VerbList: func() any { return &protocol.Listed{} }, protocol.VerbSnapshot: func() any { return &protocol.Snapshotted{} },
		protocol.VerbRestore: func() any { return &protocol.Restored{} },
	}
	verbs, messages := map[string]bool{}, 0
	for part := range strings.SplitSeq(string(page), "\n#") {
		title, _, _ := strings.Cut(part, "\n")
		verb := strings.Trim(title, "# `")
		verbs[verb] = true
		for _, m := range shown.FindAllStringSubmatch(part, -1) {
			d := json.NewDecoder(strings.NewReader(left.Replace(m[1] + m[2])))
			for {
				var text json.RawMessage
				if err := d.Decode(&text); err == io.EOF {
					break
				} else if err != nil {
					t.Errorf("%s: %v in %s", title, err, m[0])
					break
				}
				messages++
				var key map[string]json.RawMessage
				if err := json.Unmarshal(text, &key); err != nil {
					t.Errorf("%s: %v in %s", title, err, text)
				}
				var into any = &protocol.Line{}
				switch {
				case key["berth"] != nil:
					into = &protocol.Request{}
				case key["stdout"] != nil, key["stderr"] != nil, key["exit"] != nil:
					into = &protocol.ExecLine{}
				case key["ok"] != nil && of[verb] != nil:
					into, text = of[verb](), key["ok"]
				}
				same(t, title, text, into)
			}
		}
	}
	for _, verb := range protocol.Verbs() {
		if !verbs[verb] {
			t.Errorf("the page has no part about %s", verb)
		}
	}
	if messages < 15 {
		t.Errorf("%d messages are too few", messages)
	}
}

// same decodes a message and encodes it again.
func same(t *testing.T, title string, text []byte, into any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		t.Errorf("%s: %v in %s", title, err, text)
		return
	}
	again, err := json.Marshal(into)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(again, &got); err != nil {
		t.Fatal(err)
	}
	if want, got := told(want), told(got); !reflect.DeepEqual(want, got) {
		t.Errorf("%s: %s is read as %s", title, text, again)
	}
}

// told is a message without fields that say nothing, which may be left out.
func told(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for key, value := range v {
			if value = told(value); value != nil {
				out[key] = value
			}
		}
		if len(out) > 0 {
			return out
		}
	case []any:
		var out []any
		for _, value := range v {
			out = append(out, told(value))
		}
		if len(out) > 0 {
			return out
		}
	case string, float64, bool:
		if !reflect.ValueOf(v).IsZero() {
			return v
		}
	}
	return nil
}
