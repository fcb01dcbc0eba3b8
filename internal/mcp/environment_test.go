package mcp_test

import (
	"context"
	"encoding/base64"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/engine"
	"berth/internal/mcp"
	"berth/jobs"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// What a server has follows from what it was started with, and each tool says what it does.
func TestTools(t *testing.T) {
	reading := []string{"queue", "review_get", "task_diff", "task_list", "task_logs", "task_status", "task_wait"}
	ofEnv := []string{"list_directory", "list_processes", "read_file", "read_process_output", "search"}
	run := []string{"edit_file", "interact_with_process", "kill_process", "run_command", "start_process", "write_file"}
	submit := []string{"task_cancel", "task_submit"}
	for _, c := range []struct {
		name   string
		change func(*mcp.Options)
		want   [][]string
	}{
		{"by default", func(o *mcp.Options) { o.Environment = nil }, [][]string{reading}},
		{"an environment", nil, [][]string{reading, ofEnv}},
		{"run", func(o *mcp.Options) { o.Run = true }, [][]string{reading, ofEnv, run}},
		{"submit", func(o *mcp.Options) { o.Environment, o.Submit = nil, true }, [][]string{reading, submit}},
		{"all", all, [][]string{reading, ofEnv, run, submit}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, c.change)
			got := f.tools(f.client(nil))
			want := slices.Concat(c.want...)
			if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, slices.Sorted(slices.Values(want))) {
				t.Fatalf("tools: %v", names)
			}
			for _, tool := range got {
				reads := !slices.Contains(run, tool.Name) && !slices.Contains(submit, tool.Name)
				if a := tool.Annotations; a == nil || a.ReadOnlyHint != reads || reads && *a.DestructiveHint {
					t.Errorf("%s: annotations %+v", tool.Name, a)
				}
				if repeats := tool.Annotations.IdempotentHint; tool.Name == "kill_process" && repeats {
					t.Error("a signal that is sent twice arrives twice")
				}
				if tool.InputSchema == nil || tool.OutputSchema == nil || tool.Description == "" {
					t.Errorf("%s lacks a schema or a description", tool.Name)
				}
				if strings.Contains(tool.Name, "merge") || strings.Contains(tool.Name, "approve") {
					t.Errorf("%s must not be there", tool.Name)
				}
			}
		})
	}
}

type ran struct {
	ExitCode    int    `json:"exit_code"`
	Stdout      string `json:"stdout"`
	StdoutID    string `json:"stdout_id"`
	StdoutBytes int64  `json:"stdout_bytes"`
	Cwd         string `json:"cwd"`
	TimedOut    bool   `json:"timed_out"`
}

type page struct {
	Text       string `json:"text"`
	NextOffset int64  `json:"next_offset"`
	More       bool   `json:"more"`
	Process    *struct {
		ID      string `json:"id"`
		Running bool   `json:"running"`
		Code    *int   `json:"exit_code"`
	} `json:"process"`
}

// An environment that was removed is made once more, as at the first call.
func TestRemovedEnvironment(t *testing.T) {
	f := newFixture(t, all)
	c := f.client(nil)
	var r ran
	f.call(c, "run_command", map[string]any{"command": "X=1"}, &r)
	first := must(f.engine.FindEnvironment("t"))
	if err := first.Remove(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	f.call(c, "run_command", map[string]any{"command": "echo ${X-new}"}, &r)
	if r.Stdout != "new\n" {
		t.Fatalf("%+v", r)
	}
	if second := must(f.engine.FindEnvironment("t")); second.Spec.ID == first.Spec.ID {
		t.Error("it is the same one")
	}
}

// The end of the server ends the calls under way; so does a client that leaves, and in the
// version without sessions one that takes back its request by HTTP.
func TestEnds(t *testing.T) {
	for _, way := range []string{"server", "client", "request"} {
		t.Run(way, func(t *testing.T) {
			f := newFixture(t, all)
			in, toServer := io.Pipe()
			fromServer, out := io.Pipe()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() { ended <- f.server.Stream(ctx, in, out) }()
			c := f.connect(nil, &sdk.IOTransport{Reader: fromServer, Writer: toServer})
			if way == "request" {
				_ = c.Close()
				c = f.connect(nil, overTCP(f.serve("127.0.0.1:0", ""), ""))
			}
			call, takeBack := context.WithCancel(t.Context())
			defer takeBack()
			began := filepath.Join(f.dir, "began")
			go func() {
				_, _ = c.CallTool(call, &sdk.CallToolParams{Name: "run_command", Arguments: map[string]any{"command": "echo $$ >" + began + "; exec sleep 120"}})
			}()
			for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				if b, _ := os.ReadFile(began); len(b) > 0 {
					break
				}
				if time.Now().After(end) {
					t.Fatal("the command has not begun")
				}
			}
			switch way {
			case "server":
				cancel()
			case "client":
				_ = toServer.Close()
			default:
				takeBack()
			}
			select {
			case err := <-ended:
				if way == "client" && err != nil {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the server waits for the command")
			}
			pid := must(strconv.Atoi(strings.TrimSpace(string(must(os.ReadFile(began))))))
			for end := time.Now().Add(20 * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("the command goes on")
				}
			}
		})
	}
}

func TestCommands(t *testing.T) {
	f := newFixture(t, all)
	c := f.client(nil)
	var r ran
	f.call(c, "run_command", map[string]any{"command": "cd /; X=5; echo one"}, &r)
	if r.ExitCode != 0 || r.Stdout != "one\n" || r.Cwd != "/" {
		t.Fatalf("%+v", r)
	}
	f.call(c, "run_command", map[string]any{"command": "pwd; echo $X $Y; cat; (exit 3)", "env": map[string]string{"Y": "7"}, "stdin": "in"}, &r)
	if r.ExitCode != 3 || r.Stdout != "/\n5 7\nin" {
		t.Fatalf("the session did not stay: %+v", r)
	}
	r = ran{}
	f.call(c, "run_command", map[string]any{"command": "sleep 60", "timeout_s": 0.2}, &r)
	if r.ExitCode != 124 || !r.TimedOut {
		t.Fatalf("%+v", r)
	}
	// What is not shown is read in pages, and its path is not told.
	f.call(c, "run_command", map[string]any{"command": "seq 100000", "max_bytes": 100}, &r)
	if r.StdoutID == "" || strings.Contains(r.Stdout, f.engine.Store.Home()) {
		t.Fatalf("%+v", r)
	}
	var whole strings.Builder
	for p, n := (page{More: true}), 0; p.More && n < 100; n++ {
		f.call(c, "read_process_output", map[string]any{"id": r.StdoutID, "offset": p.NextOffset, "limit": 50_000}, &p)
		whole.WriteString(p.Text)
	}
	if int64(whole.Len()) != r.StdoutBytes || !strings.HasSuffix(whole.String(), "\n99999\n100000\n") {
		t.Fatalf("%d bytes of %d", whole.Len(), r.StdoutBytes)
	}
	for _, bad := range []struct {
		tool  string
		args  map[string]any
		code  int
		words string
	}{
		{"run_command", map[string]any{"command": " "}, 2, "empty"},
		{"run_command", map[string]any{}, 2, "command"},
		{"run_command", map[string]any{"command": "x", "env": map[string]any{"A=B": "c"}}, 2, "names no variable"},
		{"run_command", map[string]any{"command": "x", "timeout_s": -1}, 2, "timeout_s"},
		{"run_command", map[string]any{"command": "x", "shell": "y"}, 2, "shell"},
		{"run_command", map[string]any{"command": "x", "max_bytes": 1 << 40}, 2, "max_bytes"},
		{"run_command", map[string]any{"command": "x", "session": "../x"}, 2, "session"},
		{"read_process_output", map[string]any{"id": "out-77"}, 3, "no output"},
		{"read_process_output", map[string]any{"id": "bg-77"}, 3, "list_processes"},
		{"read_process_output", map[string]any{"id": r.StdoutID, "limit": 1 << 30}, 2, "limit"},
		{"kill_process", map[string]any{"id": "bg-1", "signal": 99}, 2, "signal"},
	} {
		f.fails(c, bad.tool, bad.args, bad.code, bad.words)
	}
}

func TestFiles(t *testing.T) {
	f := newFixture(t, all)
	c := f.client(nil)
	f.call(c, "write_file", map[string]any{"path": "a/b.txt", "content": "hello\nwörld\n", "create_directories": true}, &struct{}{})
	var r struct {
		Text       string `json:"text"`
		Base64     string `json:"base64"`
		Size       int64  `json:"size"`
		NextOffset int64  `json:"next_offset"`
		More       bool   `json:"more"`
	}
	f.call(c, "read_file", map[string]any{"path": "a/b.txt", "limit": 8}, &r) // ends within a character
	if r.Text != "hello\nw" || r.NextOffset != 7 || !r.More || r.Size != 13 {
		t.Fatalf("%+v", r)
	}
	f.call(c, "read_file", map[string]any{"path": "a/b.txt", "offset": r.NextOffset}, &r)
	if r.Text != "örld\n" || r.More {
		t.Fatalf("%+v", r)
	}
	f.call(c, "edit_file", map[string]any{"path": "a/b.txt", "old_string": "hello", "new_string": "bye"}, &struct{}{})
	f.fails(c, "edit_file", map[string]any{"path": "a/b.txt", "old_string": "hello", "new_string": "x"}, 2, "is not in it")
	f.fails(c, "read_file", map[string]any{"path": "nope"}, 3, "nope")
	f.call(c, "run_command", map[string]any{"command": `printf '\377\000' >bin`}, &struct{}{})
	r.Text = ""
	f.call(c, "read_file", map[string]any{"path": "bin"}, &r)
	if b, err := base64.StdEncoding.DecodeString(r.Base64); err != nil || string(b) != "\xff\x00" || r.Text != "" {
		t.Fatalf("%+v", r)
	}
	var l struct {
		Entries    []struct{ Path string } `json:"entries"`
		NextOffset int                     `json:"next_offset"`
		More       bool                    `json:"more"`
	}
	f.call(c, "list_directory", map[string]any{"limit": 1}, &l)
	if len(l.Entries) != 1 || l.Entries[0].Path != "a" || !l.More {
		t.Fatalf("%+v", l)
	}
	f.call(c, "list_directory", map[string]any{"limit": 1, "offset": l.NextOffset}, &l)
	if len(l.Entries) != 1 || l.Entries[0].Path != "bin" || l.More {
		t.Fatalf("%+v", l)
	}
	var s struct {
		Matches []struct {
			Path string
			Line int
		} `json:"matches"`
	}
	f.call(c, "search", map[string]any{"pattern": "w.rld|w..rld"}, &s)
	if len(s.Matches) != 1 || s.Matches[0].Line != 2 {
		t.Fatalf("%+v", s)
	}
	f.fails(c, "list_directory", map[string]any{"offset": -1}, 2, "offset")
	f.fails(c, "search", map[string]any{"pattern": "x", "limit": 100_000}, 2, "together")
}

func TestProcesses(t *testing.T) {
	f := newFixture(t, all)
	c := f.client(nil)
	var p struct {
		ID string `json:"id"`
	}
	f.call(c, "start_process", map[string]any{"command": `echo begin; while read l; do printf 'got %s\033[2J\n' "$l"; done; exit 4`}, &p)
	var out page
	f.call(c, "read_process_output", map[string]any{"id": p.ID, "wait_s": 20}, &out)
	if out.Text != "begin\n" {
		t.Fatalf("%+v", out)
	}
	f.call(c, "interact_with_process", map[string]any{"id": p.ID, "input": "x\n", "wait_s": 20}, &out)
	if !strings.HasPrefix(out.Text, "got x") || strings.Contains(out.Text, "\x1b") || !out.Process.Running {
		t.Fatalf("%+v", out)
	}
	f.call(c, "interact_with_process", map[string]any{"id": p.ID, "close": true, "wait_s": 20}, &out)
	if out.Process.Running || out.Process.Code == nil || *out.Process.Code != 4 {
		t.Fatalf("%+v", out.Process)
	}
	f.call(c, "read_process_output", map[string]any{"id": p.ID, "offset": -3, "limit": 2}, &out)
	if len(out.Text) != 2 || !out.More {
		t.Fatalf("%+v", out)
	}
	f.call(c, "start_process", map[string]any{"command": "sleep 600"}, &p)
	f.call(c, "kill_process", map[string]any{"id": p.ID}, &struct{}{})
	f.call(c, "read_process_output", map[string]any{"id": p.ID, "wait_s": 20}, &out)
	if out.Process.Running {
		t.Fatalf("%+v", out.Process)
	}
}

// A server without the right to run commands reads an environment, and starts none.
func TestReadOnly(t *testing.T) {
	f := newFixture(t, nil)
	c := f.client(nil)
	f.fails(c, "list_directory", map[string]any{}, 78, "does not run")
	f.fails(c, "list_processes", map[string]any{}, 78, "--enable run")
	if _, err := c.CallTool(t.Context(), &sdk.CallToolParams{Name: "run_command", Arguments: map[string]any{"command": "touch x"}}); err == nil {
		t.Fatal("run_command is there")
	}
	v, err := f.engine.FindEnvironment("t")
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if _, err := v.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.call(c, "list_directory", map[string]any{}, &struct{}{})
}

// A call that its client takes back ends its command.
func TestCancel(t *testing.T) {
	f := newFixture(t, all)
	c := f.client(nil)
	f.call(c, "run_command", map[string]any{"command": ":"}, &ran{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		time.Sleep(2 * time.Second)
		cancel()
	}()
	if _, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "run_command", Arguments: map[string]any{"command": "touch begun; sleep 300; touch ended"}}); err == nil {
		t.Fatal("it was answered")
	}
	var r ran // the session is free again
	begun := time.Now()
	f.call(c, "run_command", map[string]any{"command": "ls"}, &r)
	if took := time.Since(begun); r.Stdout != "begun\n" || took > time.Minute {
		t.Fatalf("%q after %s", r.Stdout, took)
	}
}

// A client that asks for it hears that a call goes on.
func TestProgress(t *testing.T) {
	f := newFixture(t, all)
	heard := make(chan string, 10)
	c := f.client(&sdk.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *sdk.ProgressNotificationClientRequest) {
		heard <- r.Params.Message
	}})
	p := &sdk.CallToolParams{Name: "run_command", Arguments: map[string]any{"command": "sleep 6"}}
	p.SetProgressToken("p1")
	if _, err := c.CallTool(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	select {
	case text := <-heard:
		if !strings.HasPrefix(text, "the command runs, ") {
			t.Fatal(text)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("no progress was told")
	}
}

// BenchmarkCommand is what the protocol costs over the Go API, client and server together:
// the difference of the medians of calls by turns.
func BenchmarkCommand(b *testing.B) {
	f := newFixture(b, all)
	c := f.client(nil)
	f.call(c, "run_command", map[string]any{"command": ":"}, nil)
	v, err := f.engine.FindEnvironment("t")
	if err != nil {
		b.Fatal(err)
	}
	defer v.Close()
	s, err := v.Session("")
	if err != nil {
		b.Fatal(err)
	}
	var by, direct []time.Duration
	for b.Loop() {
		begun := time.Now()
		f.call(c, "run_command", map[string]any{"command": ":"}, nil)
		between := time.Now()
		if _, err := s.Exec(b.Context(), engine.ExecRequest{Command: jobs.Command{Shell: ":"}}); err != nil {
			b.Fatal(err)
		}
		by, direct = append(by, between.Sub(begun)), append(direct, time.Since(between))
	}
	slices.Sort(by)
	slices.Sort(direct)
	b.ReportMetric(float64((by[len(by)/2] - direct[len(direct)/2]).Microseconds()), "us-over-api")
	b.ReportMetric(float64(direct[len(direct)/2].Microseconds()), "us-api")
}
