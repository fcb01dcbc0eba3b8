package define

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"berth/internal/sweep/command"
	"berth/internal/sys/disk"
	"berth/jobs"
)

// tasks are the command lines of a sweep, or what is wrong with it.
func tasks(t *testing.T, text string) ([]string, error) {
	t.Helper()
	dir := t.TempDir()
	s, err := Read(filepath.Join(dir, "sweep.toml"), []byte(text))
	if err != nil {
		return nil, short2(dir, err)
	}
	all, _, err := collect(s)
	return all, short2(dir, err)
}

// short2 leaves the test's directory out of an error.
func short2(dir string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s", strings.ReplaceAll(err.Error(), dir+"/", ""))
}

func collect(s *Sweep) (all []string, ids []ID, err error) {
	err = s.Tasks(nil, func(task Task) error {
		argv, err := s.Command.Command(task)
		all, ids = append(all, strings.Join(argv, "|")), append(ids, task.ID)
		return err
	})
	return all, ids, err
}

func TestDefinition(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"grid": {"command = ['p', '{a}', '{b}']\n[grid]\na = [1, 2.50]\nb = ['x', true]", []string{"p|1|x", "p|1|true", "p|2.50|x", "p|2.50|true"}},
		"range and zip": {"command = ['p', '{a}{b}', '{c}']\n[zip]\nb = ['x', 'y']\nc = [1, 2]\n[grid]\na = { from = 1, to = 5, step = 2 }",
			[]string{"p|1x|1", "p|3x|1", "p|5x|1", "p|1y|2", "p|3y|2", "p|5y|2"}},
		"list":      {"command = ['p', '{a}', '{k}']\n[[list]]\na = 1e-5\n[[list]]\na = 0.10\n[constants]\nk = 'c'", []string{"p|1e-5|c", "p|0.10|c"}},
		"where":     {"command = ['p', '{a}', '{b}']\nwhere = [\"a < 2 or b == 'y'\", 'not (a == 3)', \"a in [1, 2, '3']\"]\n[grid]\na = [1, 2, 3]\nb = ['x', 'y']", []string{"p|1|x", "p|1|y", "p|2|y"}},
		"repeat":    {"command = ['p', '{repeat}']\nrepeat = 2\n[grid]\na = [1, 1]", []string{"p|0", "p|1", "p|2", "p|3"}},
		"script":    {"command = 'echo {a} ${a} {{a}} {a b} {} >{a}.txt'\n[grid]\na = ['x y', \"o'k\"]", []string{"/bin/sh|-c|echo 'x y' ${a} {a} {a b} {} >'x y'.txt", `/bin/sh|-c|echo 'o'"'"'k' ${a} {a} {a b} {} >'o'"'"'k'.txt`}},
		"in quotes": {"command = 'echo \"{a}\"'\n[grid]\na = ['x/y.z']", []string{"/bin/sh|-c|echo \"x/y.z\""}},
		"sample":    {"command = ['p', '{a}', '{n}', '{o}', '{l}']\nseed = 7\n[sample]\ncount = 2\na = { uniform = [0, 1] }\nn = { int = [1, 6] }\no = { choice = ['u', 'v'] }\nl = { log_uniform = [1e-4, 1] }", []string{"p|0.162967|4|u|0.575316", "p|0.977822|2|u|0.217449"}},
	} {
		got, err := tasks(t, c.text)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"command = 'x'\ngird = 1\n[grid]\na=[1]":                               `sweep.toml:2: unknown key "gird": did you mean [grid]?`,
		"command = 'x {b}'\n[grid]\nlr=[1]":                                    `sweep.toml:1: command: names {b}, which is no parameter`,
		"command = 'x {rl}'\n[grid]\nlr=[1]":                                   `did you mean "lr"?`,
		"command = 'x'\n[zip]\na=[1,2]\nb=[1]":                                 `sweep.toml:4: zip.b has 1 values, and a has 2`,
		"command = 'x'\n[zip]\na=[1]\n[grid]\na=[1]":                           `sweep.toml:5: grid.a is a parameter already`,
		"command = 'x'\n[grid]\na=[]":                                          `sweep.toml:3: grid.a is an empty list`,
		"command = 'x'\n[grid]\na=[1, [2]]":                                    `must be a string, a number, true or false, found a list`,
		"command = 'x'\n[grid]\n'a-b'=[1]":                                     `"a-b" is no name of a parameter`,
		"command = 'x'\n[grid]\nrepeat=[1]":                                    `"repeat" is a parameter that every task has`,
		"command = 'x'\n[grid]\na={from=1,to=0}":                               `never comes from 1 to 0 by 1`,
		"[grid]\na=[1]":                                                        `missing key "command"`,
		"command = 'x'\ntask='y.md'\n[grid]\na=[1]":                            `task and command stand both`,
		"command = 'echo \"{a}\"'\n[grid]\na=['$(id)']":                        `task 1: a is "$(id)", and {a} stands in quotes`,
		"command = '''cat <<E\n{a}\nE'''\n[grid]\na=['$(id)']":                 `task 1: a is "$(id)"`,
		"command = 'x'\nwhere=['b < 1']\n[grid]\na=[1]":                        `sweep.toml:2: where[0]: "b" is no parameter`,
		"command = 'x'\nwhere=['a <']\n[grid]\na=[1]":                          `it ends where a value should stand`,
		"command = 'x'\nwhere=['a < 1']\n[grid]\na=['y']":                      `"y" < "1": these are not both numbers`,
		"command = 'x'\nwhere=['a < 1']\n[grid]\na=[1]":                        `where leaves out all of its 1 rows`,
		"command = 'x'\n[sample]\na={uniform=[0,1]}":                           `missing key "count"`,
		"command = 'x'\n[sample]\ncount=1\na={uniform=[1,0]}":                  `the smaller one first`,
		"command = 'x'\n[sample]\ncount=1\na={normal=[1,0]}":                   `unknown key "normal" in sample.a: the keys are uniform, log_uniform, int, choice`,
		"command = 'x'\nrepeat=10000000\n[grid]\na={from=1,to=10000}\nb=[1,2]": `more than 10000000 tasks`,
		"command = 'x'\nrows='none.csv'":                                       `rows: the rows`,
		"command = 'x'\nrows='none.txt'":                                       `are no .csv or .jsonl`,
		"command = 'x'\n[[list]]\na=1\n[[list]]\nb=1":                          `has other parameters`,
	} {
		_, err := tasks(t, text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// rowsOf are the tasks of a command over rows in a file of this name, or lines.
func rowsOf(t *testing.T, name, rows string) ([]string, error) {
	t.Helper()
	dir := t.TempDir()
	path := "-"
	if name != "-" {
		path = filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(rows), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Of("s", []string{"p", "{a}"}, path)
	if name == "-" && !strings.HasPrefix(rows, "{") {
		s, err = Of("s", []string{"p", "{line}"}, path)
	}
	if err != nil {
		return nil, short2(dir, err)
	}
	s.Rows(strings.NewReader(rows))
	all, _, err := collect(s)
	return all, short2(dir, err)
}

// What tasks ask for is a number, or a parameter's, and is held against what a worker
// has before anything is submitted. It is no part of their ids.
func TestRequests(t *testing.T) {
	for name, c := range map[string]struct{ keys, want string }{
		"numbers":     {"cpus = 2\nmem = '4GiB'", ""},
		"by row":      {"cpus = '{a}'\nmem = '{a}GiB'", ""},
		"too many":    {"cpus = 8", "task 1: the task asks for 8 CPUs, and a worker has 4"},
		"in a row":    {"mem = '{a}0GiB'", "task 1: the task asks for 10GiB of memory, and a worker has 8GiB"},
		"no number":   {"cpus = 'many'", `task 1: cpus is "many", and must be a number from 1 on`},
		"no size":     {"mem = 'much'", `task 1: mem is "much", and must be a size such as 4GiB`},
		"nothing":     {"cpus = 0", `task 1: cpus is "0", and must be a number from 1 on`},
		"no such row": {"cpus = '{b}'", `task 1: cpus "{b}" names a parameter that there is not`},
		"another key": {"memory = '1GiB'", `sweep.toml:2: unknown key "memory": did you mean "mem"?`},
		"ranks":       {"ntasks = 2\ncpus = 3\nmem = '1GiB'\nmpi = 'pmix'", "task 1: the task asks for 6 CPUs, and a worker has 4"},
		"no memory":   {"ntasks = '{a}'", "task 1: the task has ranks, and does not say how much memory they have"},
		"GPUs":        {"ntasks = 2\nmem = '1GiB'\ngpus = 1", "task 1: the task has ranks and asks for GPUs"},
		"no ranks":    {"mpi = 'pmix'", "sweep.toml:2: mpi is of tasks with ntasks"},
		"own":         {"own = 'room'", ""},
		"no own":      {"own = 'rom'", `sweep.toml:2: own must be "auto", "room", "container" or "nothing", found "rom": did you mean "room"?`},
		"retry":       {"retry = { task = 2, codes = [75], max_memory = '6GiB' }", ""},
		"no class":    {"retry = { tusk = 2 }", `unknown key "tusk" in retry: did you mean "task"?`},
		"of jobs":     {"retry = { core_hours = 2 }", "sweep.toml:2: retry.core_hours is of jobs, and not of the tasks of a sweep"},
		"a list":      {"cpus = [1]", "sweep.toml:2: cpus must be a string, a number, true or false, found a list"},
	} {
		s, err := Read("sweep.toml", []byte("command = ['p', '{a}']\n"+c.keys+"\n[grid]\na = [1, 2]"))
		var ids []ID
		if err == nil {
			s.Worker, s.Steps = jobs.Resources{CPUs: 4, Memory: 8 * jobs.GiB}, true
			_, ids, err = collect(s)
		}
		if c.want == "" {
			plain, _ := Read("sweep.toml", []byte("command = ['p', '{a}']\n[grid]\na = [1, 2]"))
			if _, want, _ := collect(plain); err != nil || !slices.Equal(ids, want) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func TestRows(t *testing.T) {
	for _, c := range []struct {
		name, rows string
		want       []string
		wrong      string
	}{
		{"r.csv", "\ufeffa,b\n1,2\n\"x,\ny\",3\n", []string{"p|1", "p|x,\ny"}, ""},
		{"r.csv", "a,b\n1,2\n3\n", nil, "r.csv:3: has 1 fields, and the head has 2"},
		{"r.csv", "a,a\n1,2\n", nil, `r.csv:1: "a" is the name of two columns`},
		{"r.csv", "a b\n1\n", nil, `r.csv:1: column 1: "a b" is no name`},
		{"r.csv", "b\n1\n2\n", nil, "r.csv:2: the command names {a}, which is no parameter: {{a}} stays as it is\nr.csv:3: "},
		{"r.csv", "", nil, "there is no head"},
		{"r.csv", "a\n", nil, "the sweep has no tasks: there are no rows"},
		{"r.csv", "a\n\xff\n", nil, "r.csv:2: a is not UTF-8"},
		{"r.csv", "a\n" + strings.Repeat("x", 2<<20) + "\n", nil, "a line has more than 1048576 bytes"},
		{"r.jsonl", "{\"a\":1e-5,\"b\":[1, 2]}\n\n{\"a\":{\"x\": 1}}\r\n{\"a\":true}", []string{"p|1e-5", `p|{"x":1}`, "p|true"}, ""},
		{"r.jsonl", "{\"a\":1}\n{\"b\":1}\n[1]\n", nil, "r.jsonl:2: the command names {a}, which is no parameter: {{a}} stays as it is\nr.jsonl:3: is no JSON object"},
		{"r.jsonl", "{\"a\":1,\"a\":2}\n", nil, `"a" stands twice`},
		{"r.jsonl", "{\"a\":null}\n", nil, "a is null"},
		{"r.jsonl", "{\"a\":1} {}\n", nil, "something behind"},
		{"r.jsonl", "{\"a\":\"x\\u0000\"}\n", nil, "r.jsonl:1: a holds a NUL byte"},
		{"-", "one\ntwo words\n\nthree", []string{"p|one", "p|two words", "p|three"}, ""},
		{"-", "{\"a\":1}\n{\"a\":2}\n", []string{"p|1", "p|2"}, ""},
		{"r.txt", "", nil, "are no .csv or .jsonl"},
	} {
		got, err := rowsOf(t, c.name, c.rows)
		if c.wrong == "" && (err != nil || !slices.Equal(got, c.want)) || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%s %.40q: %q, %v", c.name, c.rows, got, err)
		}
	}
}

// Ids: rows and columns may move, a file may become another format, and others may
// come and go; what is asked for decides.
func TestIDs(t *testing.T) {
	ids := func(name, rows string) []ID {
		t.Helper()
		dir := t.TempDir()
		if err := disk.Replace(filepath.Join(dir, name), []byte(rows), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Of("s", []string{"p", "{a}", "{b}"}, filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		_, all, err := collect(s)
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	first := ids("r.csv", "a,b\n1,x\n2,y\n1,x\n")
	if first[0] == first[2] || first[0] == first[1] {
		t.Error("two tasks with one id")
	}
	moved := ids("r.jsonl", `{"b":"z","a":3}`+"\n"+`{"b":"y","a":2}`+"\n"+`{"b":"x","a":"1"}`+"\n"+`{"a":1,"b":"x"}`)
	if moved[1] != first[1] || moved[2] != first[0] || moved[3] != first[2] {
		t.Errorf("%v became %v", first, moved)
	}
	// The lengths keep these apart.
	if a := ids("r.csv", "a,b\n1,1\n11,\n"); a[0] == a[1] {
		t.Error("1,1 and 11 have one id")
	}
	s, _ := Of("s", []string{"p", "{a}{b}"}, "-")
	s.Rows(strings.NewReader(`{"a":1,"b":"x"}`))
	if _, other, err := collect(s); err != nil || other[0] == first[0] {
		t.Errorf("another command has the same id: %v", err)
	}
	// It is written in the records of sweeps, and must never become another.
	if got := first[0].String(); got != "0a8dfecac5681786a272b02083ad64d3" {
		t.Errorf("id %s", got)
	}
}

// A sample stays what it was when there are more of them, or other parameters.
func TestSamplesStay(t *testing.T) {
	few, err := tasks(t, "command = ['p', '{a}']\n[sample]\ncount = 3\na = { uniform = [0, 1] }")
	if err != nil {
		t.Fatal(err)
	}
	many, err := tasks(t, "command = ['p', '{a}']\n[sample]\ncount = 9\nb = { int = [0, 9] }\na = { uniform = [0, 1] }")
	if err != nil || !slices.Equal(few, many[:3]) {
		t.Errorf("%q became %q, %v", few, many, err)
	}
	if other, err := tasks(t, "command = ['p', '{a}']\nseed = 1\n[sample]\ncount = 3\na = { uniform = [0, 1] }"); err != nil || other[0] == few[0] {
		t.Errorf("another seed: %q, %v", other, err)
	}
}

func TestTaskFile(t *testing.T) {
	task := Task{Params: []Param{{Name: "lr", Text: "0.1"}, {Name: "say", Text: "a \"b\"\n"}}, Repeat: 4}
	for text, want := range map[string]string{
		"+++\nname = \"r{{ .lr }}\"\n+++\nTry {{.lr}} {{ .repeat }} {{ x }} {{ .say }}": "+++\nname = \"r0.1\"\n+++\nTry 0.1 4 {{ x }} a \"b\"\n",
		"+++\nname = \"{{ .say }}\"\n+++\n":                                             `error line 2: say is "a \"b\"\n", and in the front matter`,
		"a\n{{ .none }}":                                                                "error line 2: {{ .none }} is no parameter",
	} {
		got, err := command.File([]byte(text), task)
		if err != nil {
			got = []byte("error " + err.Error())
		}
		if !strings.HasPrefix(string(got), want) {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// Many rows that are equal, and many that differ: nothing is kept of them but their ids.
func TestMany(t *testing.T) {
	for _, text := range []string{"command = 'true'\nrepeat = 100000\n[grid]\na = [1]", "command = 'true {a}'\n[grid]\na = {from = 1, to = 100000}"} {
		s, err := Read("sweep.toml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		n := 0
		if err := s.Tasks(nil, func(task Task) error {
			if n++; n == 100_000 {
				runtime.GC()
				runtime.ReadMemStats(&after)
			}
			return nil
		}); err != nil || n != 100_000 {
			t.Fatalf("%d tasks, %v", n, err)
		}
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 10<<20 {
			t.Errorf("%d KiB for 100,000 tasks", grown>>10)
		}
	}
}

func TestStops(t *testing.T) {
	s, err := Read("sweep.toml", []byte("command = 'true'\n[grid]\na = [1, 2, 3]"))
	if err != nil {
		t.Fatal(err)
	}
	s.Most = 2
	if _, _, err := collect(s); err == nil || jobs.HintOf(err) != "--max-tasks allows more" {
		t.Error(err)
	}
}

func FuzzCondition(f *testing.F) {
	for _, s := range []string{"a < 1 and not b == 'x'", "a in [1, 2]", "((a))", "a ==", "'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if c, err := ParseCondition(s); err == nil {
			_, _ = c.Holds([]Param{{Name: "a", Text: "1"}, {Name: "b", Text: "x"}})
		}
	})
}

func BenchmarkTasks(b *testing.B) {
	s, err := Read("sweep.toml", []byte("command = ['p', '{a}', '{b}', '{c}']\n[constants]\nc = 'x'\n[grid]\na = {from = 1, to = 100000}\nb = {from = 1, to = 100}"))
	if err != nil {
		b.Fatal(err)
	}
	n := 0
	err = s.Tasks(nil, func(Task) error {
		if n++; n > b.N {
			return os.ErrClosed
		}
		return nil
	})
	if !errors.Is(err, os.ErrClosed) {
		b.Log(err)
	}
}

// Rows that are all the same are tasks of their own, each with an id that stays when others
// come behind it.
func TestIdentical(t *testing.T) {
	s, err := Of("s", []string{"true {line}"}, "-")
	if err != nil {
		t.Fatal(err)
	}
	const many = 100_000
	s.Rows(strings.NewReader(strings.Repeat("a/b/../c\n", many)))
	seen := make(map[ID]bool, many)
	err = s.Tasks(nil, func(task Task) error {
		if task.Repeat != len(seen) || seen[task.ID] {
			return fmt.Errorf("task %d: repeat %d, id %s", task.Number, task.Repeat, task.ID)
		}
		seen[task.ID] = true
		return nil
	})
	if err != nil || len(seen) != many {
		t.Errorf("%d, %v", len(seen), err)
	}
}
