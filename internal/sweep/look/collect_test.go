package look

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/internal/sweep/journal"
	"berth/jobs"
)

func everyRow(Row) (bool, error) { return true, nil }

// Metrics, JSON lines and files come into one table; what is no regular file, is too long
// or lies outside of the directory is left out and said.
func TestCollect(t *testing.T) {
	p := func(x string) map[string]string { return map[string]string{"x": x} }
	l := ran(t,
		did{params: p("a"), state: journal.OK, stdout: "hello\n{\"acc\": 0.50, \"deep\": {\"n\": [1, 2]}, \"s\": \"a,\\\"b\"}\n{broken}\n", metrics: "loss=3\nloss=2.5\nname = text\n=1\nno line"},
		did{params: p("b"), state: journal.OK, stdout: "{\"acc\": 1}\n{\"acc\": 2, \"task\": 7}\n"},
		did{params: p("c*"), state: journal.Failed, code: 2}, did{params: p("link")}, did{params: p("pipe"), state: journal.OK}, did{params: p("big"), state: journal.OK}, did{params: p("../up"), state: journal.OK})
	dir := l.Sweep.Spec.Workdir
	must(t, os.Mkdir(filepath.Join(dir, "r"), 0o700))
	write := func(name, text string) {
		t.Helper()
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("r/a.json", `{"acc": 9, "from": "file"}`)
	write("r/c*.json", `[{"k": true}, {"k": null}]`)
	write("r/cc.json", `{"k": "another task's"}`)
	write("r/big.json", `{"a":"`+strings.Repeat("x", mostFileBytes)+`"}`)
	write("up.json", `{"acc": 5}`)
	must(t, syscall.Mkfifo(filepath.Join(dir, "r/pipe.json"), 0o600))
	c, err := NewCollector(l, "r/{x}.json")
	must(t, err)
	defer c.Close()
	var lines, table bytes.Buffer
	params, values, err := c.Lines(&lines, c.l.All(), everyRow)
	must(t, err)
	must(t, CSV(&lines, &table, params, values))
	var got []string
	for line := range strings.Lines(table.String()) {
		cells := strings.SplitN(line, ",", 9)
		got = append(got, cells[0]+" "+cells[2]+" "+cells[3]+" "+strings.TrimSpace(cells[8]))
	}
	want := `task row state x,acc,deep.n,s,loss,name,from,value.task,k
1 1 ok a,0.50,"[1,2]","a,""b",2.5,text,,,
1 2 ok a,9,,,2.5,text,file,,
2 1 ok b,1,,,,,,,
2 2 ok b,2,,,,,,7,
3 1 failed c*,,,,,,,,true
3 2 failed c*,,,,,,,,
4 1 waiting link,,,,,,,,
5 1 ok pipe,,,,,,,,
6 1 ok big,,,,,,,,
7 1 ok ../up,5,,,,,,,`
	if strings.Join(got, "\n") != want {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	if c.Rows != 10 || c.LeftOut != 2 || !strings.Contains(strings.Join(c.Examples, "\n"), "pipe.json: is no regular file") || !strings.Contains(strings.Join(c.Examples, "\n"), "has more than") {
		t.Errorf("%d rows, %d %q", c.Rows, c.LeftOut, c.Examples)
	}
}

// A file without a parameter in its name is found by the id, and one that leads out of the
// directory is not followed.
func TestCollectByID(t *testing.T) {
	l := ran(t, did{state: journal.OK}, did{state: journal.OK})
	outside := filepath.Join(t.TempDir(), "secret.json")
	must(t, os.WriteFile(outside, []byte(`{"secret": 1}`), 0o600))
	dir := l.Sweep.Spec.Workdir
	var ids []string
	must(t, l.Rows(l.All(), func(r Row) error { ids = append(ids, r.ID.String()); return nil }))
	must(t, os.WriteFile(filepath.Join(dir, "out-"+ids[0]+".json"), []byte(`{"v": 1}`), 0o600))
	must(t, os.Symlink(outside, filepath.Join(dir, "out-"+ids[1]+".json")))
	must(t, os.WriteFile(filepath.Join(dir, "out-17.json"), []byte(`{"v": 1}`), 0o600))
	c, err := NewCollector(l, "out-*.json")
	must(t, err)
	defer c.Close()
	var lines bytes.Buffer
	_, values, err := c.Lines(&lines, c.l.All(), everyRow)
	must(t, err)
	if len(values) != 1 || c.Files != 1 || c.LeftOut != 2 || strings.Contains(lines.String(), "secret") {
		t.Errorf("%q %d %q", values, c.Files, c.Examples)
	}
	for _, wrong := range []string{"/etc/*.json", "../x", "a/../../b", "*/x.json", "["} {
		if _, err := NewCollector(l, wrong); jobs.KindOf(err) != jobs.KindUsage {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	if c, err := NewCollector(l, "{none}"); err != nil {
		t.Error(err)
	} else if _, _, err := c.Lines(&lines, c.l.All(), everyRow); jobs.KindOf(err) != jobs.KindUsage {
		t.Error(err)
	}
}
