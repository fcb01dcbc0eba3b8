package look

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"berth/internal/sweep/journal"
	"berth/internal/sweep/metric"
)

// Value is something that a task has found: a number or a string of JSON, true or false.
type Value struct {
	Name string
	JSON json.RawMessage
}

// Text is it for a table.
func (v Value) Text() string {
	var s string
	if len(v.JSON) > 0 && v.JSON[0] == '"' && json.Unmarshal(v.JSON, &s) == nil {
		return s
	}
	if string(v.JSON) == "null" {
		return ""
	}
	return string(v.JSON)
}

// Number is it as a number.
func (v Value) Number() (float64, bool) {
	n, err := strconv.ParseFloat(v.Text(), 64)
	return n, err == nil
}

// Bounds of what one task's results may be; more is left out, and counted.
const (
	mostRowsOfTask = 1000
	mostValues     = 200 // of one row
	mostName       = 100 // bytes of a name
	mostFileBytes  = 1 << 20
	mostFiles      = 100
	mostNested     = 4
)

// flatten puts what is in an object into a row: a.b for an object in it; a list is its JSON.
func flatten(prefix string, b []byte, depth int, out []Value) ([]Value, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return out, errors.New("is no JSON object")
	}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return out, err
		}
		name, _ := t.(string)
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return out, err
		}
		name = prefix + name
		if len(name) > mostName || len(out) >= mostValues {
			continue
		}
		if raw[0] == '{' && depth < mostNested {
			if out, err = flatten(name+".", raw, depth+1, out); err != nil {
				return out, err
			}
			continue
		}
		var c bytes.Buffer
		if err := json.Compact(&c, raw); err != nil {
			return out, err
		}
		out = append(out, Value{name, c.Bytes()})
	}
	_, err := d.Token()
	return out, err
}

// objects reads JSON objects that stand one behind the other, or in a list.
func objects(b []byte) (rows [][]Value, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	add := func(raw json.RawMessage) error {
		if len(rows) >= mostRowsOfTask {
			return nil
		}
		row, err := flatten("", raw, 0, nil)
		rows = append(rows, row)
		return err
	}
	for {
		var raw json.RawMessage
		if err := d.Decode(&raw); errors.Is(err, io.EOF) {
			return rows, nil
		} else if err != nil {
			return rows, err
		}
		if raw[0] != '[' {
			if err := add(raw); err != nil {
				return rows, err
			}
			continue
		}
		var list []json.RawMessage
		if err := json.Unmarshal(raw, &list); err != nil {
			return rows, err
		}
		for _, item := range list {
			if err := add(item); err != nil {
				return rows, err
			}
		}
	}
}

// lineObjects are the lines of an output that are JSON objects.
func lineObjects(out []byte) (rows [][]Value) {
	for line := range bytes.Lines(out) {
		line = bytes.TrimSpace(line)
		if len(line) < 2 || line[0] != '{' || line[len(line)-1] != '}' || len(line) > 64<<10 || len(rows) >= mostRowsOfTask {
			continue
		}
		if row, err := flatten("", line, 0, nil); err == nil {
			rows = append(rows, row)
		}
	}
	return rows
}

// Metrics are the last value of each metric that a task has written, by their names.
func (l *Look) Metrics(rec *journal.Record) ([]Value, error) {
	const most = 256 << 10
	tail, err := l.In.Tail(rec, most, journal.Progress)
	if err != nil {
		return nil, err
	}
	text := tail[journal.Progress]
	if len(text) >= most { // it begins somewhere in a line
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	if rec.Kind == journal.Wrote { // it runs: the last line may go on
		text = text[:bytes.LastIndexByte(text, '\n')+1]
	}
	return lastMetrics(text), nil
}

// lastMetrics reads lines NAME=VALUE.
func lastMetrics(text []byte) (out []Value) {
	last := map[string]json.RawMessage{}
	for line := range bytes.Lines(text) {
		name, value, ok := strings.Cut(strings.TrimSpace(string(line)), "=")
		if name, value = strings.TrimSpace(name), strings.TrimSpace(value); !ok || metric.Check(name, value) != nil ||
			last[name] == nil && len(last) >= mostValues {
			continue
		}
		if _, err := strconv.ParseFloat(value, 64); err == nil && json.Valid([]byte(value)) {
			last[name] = json.RawMessage(value)
		} else if b, err := json.Marshal(strings.ToValidUTF8(value, "\ufffd")); err == nil {
			last[name] = b
		}
	}
	for _, name := range slices.Sorted(maps.Keys(last)) {
		out = append(out, Value{name, last[name]})
	}
	return out
}

// merge puts values behind others; a name that stands already keeps its value.
func merge(a []Value, more []Value) []Value {
	for _, v := range more {
		if !slices.ContainsFunc(a, func(x Value) bool { return x.Name == v.Name }) && len(a) < mostValues {
			a = append(a, v)
		}
	}
	return a
}

// stdout is all that is kept of a task's standard output: some 9 MiB at most.
func (l *Look) stdout(rec *journal.Record) (out []byte, err error) {
	err = l.In.Output(rec, func(f journal.Frame) error {
		if f.Stream == journal.Stdout {
			out = append(out, f.Data...)
		}
		if len(out) > 64<<20 {
			return fmt.Errorf("its output has more than 64 MiB")
		}
		return nil
	})
	return out, err
}
