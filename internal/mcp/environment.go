package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"berth/engine"
	"berth/jobs"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

// Bounds of what a call may ask for.
const (
	mostEntries = 10_000
	mostWait    = 10 * time.Minute
	mostTime    = 7 * 24 * time.Hour
	// killGrace is how long a process has to end by itself.
	killGrace = 5 * time.Second
)

type runIn struct {
	Command  string            `json:"command" jsonschema:"for the session's shell"`
	Workdir  string            `json:"workdir,omitempty" jsonschema:"change to this directory first; the session stays there"`
	Timeout  float64           `json:"timeout_s,omitempty" jsonschema:"seconds until it is ended; default 180"`
	Stdin    string            `json:"stdin,omitempty" jsonschema:"what it reads"`
	Env      map[string]string `json:"env,omitempty" jsonschema:"variables for this command only"`
	Session  string            `json:"session,omitempty" jsonschema:"another session, with its own directory and variables"`
	MaxBytes int               `json:"max_bytes,omitempty" jsonschema:"how much of stdout and of stderr is shown; default 30000"`
}

type runOut struct {
	ExitCode    int      `json:"exit_code" jsonschema:"the command's own; 124 timed out, 126 and 127 did not start, 130 interrupted"`
	Stdout      string   `json:"stdout"`
	Stderr      string   `json:"stderr"`
	StdoutMore  string   `json:"stdout_id,omitempty" jsonschema:"not all is shown: read_process_output with this id reads the whole"`
	StderrMore  string   `json:"stderr_id,omitempty"`
	StdoutBytes int64    `json:"stdout_bytes"`
	StderrBytes int64    `json:"stderr_bytes"`
	Cwd         string   `json:"cwd" jsonschema:"the session's directory after it"`
	DurationMS  float64  `json:"duration_ms"`
	TimedOut    bool     `json:"timed_out,omitempty"`
	Interrupted bool     `json:"interrupted,omitempty"`
	ShellEnded  bool     `json:"shell_ended,omitempty"`
	Notes       []string `json:"notes,omitempty"`
}

type readIn struct {
	Path   string `json:"path"`
	Offset int64  `json:"offset,omitempty" jsonschema:"byte to begin at; negative counts from the end"`
	Limit  int64  `json:"limit,omitempty" jsonschema:"bytes at most; default 30000, at most 1048576"`
}

type readOut struct {
	Path       string `json:"path"`
	Text       string `json:"text,omitempty"`
	Base64     string `json:"base64,omitempty" jsonschema:"in place of text, of what is no UTF-8"`
	Size       int64  `json:"size"`
	Offset     int64  `json:"offset"`
	NextOffset int64  `json:"next_offset"`
	More       bool   `json:"more"`
}

type writeIn struct {
	Path    string `json:"path"`
	Content string `json:"content"`
	Parents bool   `json:"create_directories,omitempty" jsonschema:"make missing directories above it"`
}

type writeOut struct {
	Path  string `json:"path"`
	Bytes int64  `json:"bytes"`
}

type editIn struct {
	Path string `json:"path"`
	Old  string `json:"old_string"`
	New  string `json:"new_string"`
	All  bool   `json:"replace_all,omitempty" jsonschema:"else old_string must be there exactly once"`
}

type editOut struct {
	Path     string `json:"path"`
	Replaced int    `json:"replaced"`
}

type listIn struct {
	Path   string `json:"path,omitempty" jsonschema:"default the session's directory"`
	Depth  int    `json:"depth,omitempty" jsonschema:"1 is the directory itself"`
	Glob   string `json:"glob,omitempty" jsonschema:"picks by the last part of the name"`
	Offset int    `json:"offset,omitempty" jsonschema:"entries to leave out"`
	Limit  int    `json:"limit,omitempty" jsonschema:"entries at most; default 500"`
}

type entry struct {
	Path     string    `json:"path"`
	Type     string    `json:"type"`
	Size     int64     `json:"size"`
	Mode     string    `json:"mode"`
	Modified time.Time `json:"modified"`
}

type listOut struct {
	Path       string   `json:"path"`
	Entries    []entry  `json:"entries"`
	NextOffset int      `json:"next_offset"`
	More       bool     `json:"more"`
	Notes      []string `json:"notes,omitempty"`
}

type searchIn struct {
	Pattern    string `json:"pattern" jsonschema:"an expression of grep -E for a part of a line"`
	Path       string `json:"path,omitempty" jsonschema:"a file or directory; default the session's directory"`
	Literal    bool   `json:"literal,omitempty" jsonschema:"pattern is a text"`
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Glob       string `json:"glob,omitempty" jsonschema:"picks files by the last part of the name"`
	Offset     int    `json:"offset,omitempty" jsonschema:"matches to leave out"`
	Limit      int    `json:"limit,omitempty" jsonschema:"matches at most; default 200"`
}

type match struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

type searchOut struct {
	Path       string   `json:"path"`
	Matches    []match  `json:"matches"`
	NextOffset int      `json:"next_offset"`
	More       bool     `json:"more"`
	Notes      []string `json:"notes,omitempty"`
}

type startIn struct {
	Command string            `json:"command" jsonschema:"for a shell that begins as a copy of the session"`
	Workdir string            `json:"workdir,omitempty"`
	Timeout float64           `json:"timeout_s,omitempty" jsonschema:"seconds until it is ended; default never"`
	Env     map[string]string `json:"env,omitempty"`
	Session string            `json:"session,omitempty"`
}

type process struct {
	ID      string    `json:"id"`
	Command string    `json:"command"`
	Running bool      `json:"running"`
	Exit    string    `json:"exit,omitempty" jsonschema:"how it ended"`
	Code    *int      `json:"exit_code,omitempty"`
	Started time.Time `json:"started"`
	Bytes   int64     `json:"output_bytes" jsonschema:"what it has written since it began, stdout and stderr together"`
	Cut     bool      `json:"output_cut,omitempty" jsonschema:"what came later was not kept"`
}

func processOf(p engine.Background) process {
	out := process{ID: p.ID, Command: commandText(p.Command), Running: p.Running, Started: p.Started, Bytes: p.Log, Cut: p.Cut, Exit: p.Lost}
	if p.Exit != nil {
		out.Exit, out.Code = p.Exit.String(), &p.Exit.Code
	}
	return out
}

type processesOut struct {
	Processes []process `json:"processes"`
	More      bool      `json:"more"`
}

type outputIn struct {
	ID     string  `json:"id" jsonschema:"of a process, or of a command's output that was not all shown"`
	Offset int64   `json:"offset,omitempty" jsonschema:"byte to begin at; negative counts from the end"`
	Limit  int64   `json:"limit,omitempty" jsonschema:"bytes at most; default 30000, at most 1048576"`
	Wait   float64 `json:"wait_s,omitempty" jsonschema:"wait so many seconds at most until there is more, or it has ended"`
}

type outputOut struct {
	Page
	Process *process `json:"process,omitempty"`
}

type interactIn struct {
	ID    string  `json:"id"`
	Input string  `json:"input,omitempty" jsonschema:"as it is: end a line by a newline"`
	Close bool    `json:"close,omitempty" jsonschema:"that was all: the process reads the end of its input"`
	Wait  float64 `json:"wait_s,omitempty" jsonschema:"then wait so many seconds at most for output; default 1"`
}

type killIn struct {
	ID     string `json:"id"`
	Signal int    `json:"signal,omitempty" jsonschema:"send this signal alone; default is to end it and all that it has started"`
}

type none struct{}

func (s *Server) environmentTools() {
	reads := hints{reads: true}
	tool(s, "read_file", "Read a part of a file of the environment.", reads, s.readFile)
	tool(s, "list_directory", "List a directory of the environment.", reads, s.list)
	tool(s, "search", "Search a file, or all files below a directory of the environment, for a pattern.", reads, s.search)
	tool(s, "list_processes", "List the background processes of the environment, those that have ended, too.", reads, s.processes)
	tool(s, "read_process_output", "Read a part of the output of a background process, or of a command whose output was not all shown.", reads, s.output)
	if !s.Run {
		return
	}
	changes := hints{destroys: true, open: true}
	tool(s, "run_command", "Run a command in the environment's shell and wait for its end. Directory and variables stay for the next one.", changes, s.run)
	tool(s, "write_file", "Make a text the content of a file of the environment: all of it or nothing.", hints{destroys: true, repeats: true}, s.write)
	tool(s, "edit_file", "Replace a text in a file of the environment.", hints{destroys: true}, s.edit)
	tool(s, "start_process", "Start a background process in the environment. Its output is kept; its standard input stays open.", changes, s.start)
	tool(s, "interact_with_process", "Give a background process something to read, and show what it writes then.", changes, s.interact)
	tool(s, "kill_process", "End a background process and all that it has started.", hints{destroys: true}, s.kill)
}

// within checks a number of seconds.
func within(name string, n float64, most time.Duration) (time.Duration, error) {
	if n < 0 || n > most.Seconds() {
		return 0, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%s must be from 0 to %g", name, most.Seconds())}
	}
	return time.Duration(n * float64(time.Second)), nil
}

// request makes one of what a command and a background process have in common.
func request(command, dir string, timeout float64, env map[string]string) (engine.ExecRequest, error) {
	req := engine.ExecRequest{Command: jobs.Command{Shell: command}, Dir: dir}
	if strings.TrimSpace(command) == "" {
		return req, &jobs.Error{Kind: jobs.KindUsage, Msg: "the command is empty"}
	}
	var err error
	if req.Timeout, err = within("timeout_s", timeout, mostTime); err != nil {
		return req, err
	}
	for name, value := range env {
		if !isVariable(name) {
			return req, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("env: %q names no variable", name)}
		}
		req.Env = append(req.Env, name+"="+value)
	}
	slices.Sort(req.Env)
	return req, nil
}

// isVariable reports whether a word can name a variable.
func isVariable(name string) bool {
	for i, r := range name {
		if letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'; !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// executor runs commands in one session.
type executor interface {
	Exec(context.Context, engine.ExecRequest) (*engine.ExecResult, error)
}

func (s *Server) executor(ctx context.Context, name string) (executor, error) {
	v, err := s.environment(ctx)
	if err != nil {
		return nil, err
	}
	if once := v.OneShot(); once != nil {
		if name != "" {
			return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the backend " + v.Spec.Backend + " runs single commands, and has no sessions",
				Hint: "leave session out"}
		}
		return once, nil
	}
	session, err := s.sessionOf(v, name)
	return session, err
}

func (s *Server) run(ctx context.Context, r *sdk.CallToolRequest, in runIn) (*runOut, error) {
	req, err := request(in.Command, in.Workdir, in.Timeout, in.Env)
	if err != nil {
		return nil, err
	}
	if req.Timeout == 0 {
		req.Timeout = s.Timeout
	}
	req.ShowBytes = in.MaxBytes
	if in.MaxBytes == 0 {
		req.ShowBytes = usualPage
	}
	if req.ShowBytes < 1 || req.ShowBytes > mostPage {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("max_bytes must be from 1 to %d", mostPage)}
	}
	if in.Stdin != "" {
		req.Stdin = strings.NewReader(in.Stdin)
	}
	req.Fork = s.Fork
	x, err := s.executor(ctx, in.Session)
	if err != nil {
		return nil, err
	}
	_, stop := progress(ctx, r, "the command runs")
	defer stop()
	res, err := x.Exec(ctx, req)
	if err != nil {
		return nil, err
	}
	out := &runOut{ExitCode: res.Code, StdoutBytes: res.Stdout.Bytes, StderrBytes: res.Stderr.Bytes,
		Cwd: res.Dir, DurationMS: float64(res.Duration.Microseconds()) / 1000,
		TimedOut: res.TimedOut, Interrupted: res.Interrupted, ShellEnded: res.ShellEnded,
		Notes: res.Notes}
	out.Stdout, out.StdoutMore = s.rest(res.Stdout, out)
	out.Stderr, out.StderrMore = s.rest(res.Stderr, out)
	return out, nil
}

// rest is what is shown of an output, and the name of the whole; "" is that all is shown.
func (s *Server) rest(c engine.Captured, out *runOut) (text, name string) {
	switch {
	case !c.Truncated:
		return c.Text, ""
	case c.File == "":
		out.Notes = append(out.Notes, fmt.Sprintf("the rest of the output was not kept: %v", c.FileError))
		return c.Text, ""
	}
	name = s.outputs.add(c.File)
	return strings.Replace(c.Text, c.File, name, 1), name // the path is one of the user's machine
}

func (s *Server) readFile(ctx context.Context, _ *sdk.CallToolRequest, in readIn) (*readOut, error) {
	p, err := span{Offset: max(0, in.Offset), Limit: in.Limit}.check()
	if err != nil {
		return nil, err
	}
	session, err := s.session(ctx, "")
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	c, err := session.ReadFile(ctx, in.Path, in.Offset, p.Limit, &b)
	if err != nil {
		return nil, err
	}
	begin := in.Offset
	if begin < 0 {
		begin = max(0, c.File.Size+begin)
	}
	got := b.Bytes()
	if cut := incomplete(got); c.More && cut < len(got) {
		got = got[:len(got)-cut]
	}
	out := &readOut{Path: c.File.Path, Size: c.File.Size, Offset: begin, NextOffset: begin + int64(len(got)), More: c.More}
	if utf8.Valid(got) && !bytes.Contains(got, []byte{0}) {
		out.Text = string(got)
	} else {
		got = b.Bytes()
		out.NextOffset = begin + int64(len(got))
		out.Base64 = base64.StdEncoding.EncodeToString(got)
	}
	return out, nil
}

func (s *Server) write(ctx context.Context, _ *sdk.CallToolRequest, in writeIn) (*writeOut, error) {
	session, err := s.session(ctx, "")
	if err != nil {
		return nil, err
	}
	c, err := session.WriteFile(ctx, in.Path, strings.NewReader(in.Content), jobs.WriteOptions{Parents: in.Parents})
	if err != nil {
		return nil, err
	}
	return &writeOut{c.File.Path, c.Bytes}, nil
}

func (s *Server) edit(ctx context.Context, _ *sdk.CallToolRequest, in editIn) (*editOut, error) {
	session, err := s.session(ctx, "")
	if err != nil {
		return nil, err
	}
	n, err := session.EditFile(ctx, in.Path, jobs.FileEdit{Old: in.Old, New: in.New, All: in.All})
	if err != nil {
		return nil, err
	}
	return &editOut{in.Path, n}, nil
}

// entries checks a part of a list.
func entries(offset, limit, usual int) (int, error) {
	if limit == 0 {
		limit = usual
	}
	if offset < 0 || limit < 0 || limit > mostEntries || offset > mostEntries-limit {
		return 0, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("offset and limit must be 0 or more, and %d together at most", mostEntries),
			Hint: "narrow it by path or glob"}
	}
	return limit, nil
}

// part is the part of a list; more is that the list goes on behind it.
func part[T any](list []T, offset, limit int, beyond bool) (out []T, next int, more bool) {
	list = list[min(offset, len(list)):]
	more = beyond || len(list) > limit
	list = list[:min(limit, len(list))]
	return append([]T{}, list...), offset + len(list), more
}

func (s *Server) list(ctx context.Context, _ *sdk.CallToolRequest, in listIn) (*listOut, error) {
	limit, err := entries(in.Offset, in.Limit, 500)
	if err != nil {
		return nil, err
	}
	session, err := s.session(ctx, "")
	if err != nil {
		return nil, err
	}
	if in.Path == "" {
		in.Path = "."
	}
	l, err := session.List(ctx, in.Path, jobs.ListOptions{Depth: in.Depth, Glob: in.Glob, Limit: in.Offset + limit})
	if err != nil {
		return nil, err
	}
	all := make([]entry, len(l.Entries))
	for i, e := range l.Entries {
		all[i] = entry{e.Path, e.Type, e.Size, e.Mode.String(), e.Time.UTC()}
	}
	out := &listOut{Path: l.Path, Notes: l.Notes}
	out.Entries, out.NextOffset, out.More = part(all, in.Offset, limit, l.More)
	return out, nil
}

func (s *Server) search(ctx context.Context, _ *sdk.CallToolRequest, in searchIn) (*searchOut, error) {
	limit, err := entries(in.Offset, in.Limit, 200)
	if err != nil {
		return nil, err
	}
	session, err := s.session(ctx, "")
	if err != nil {
		return nil, err
	}
	if in.Path == "" {
		in.Path = "."
	}
	f, err := session.Search(ctx, in.Path, jobs.FileQuery{Pattern: in.Pattern, Literal: in.Literal, IgnoreCase: in.IgnoreCase, Glob: in.Glob,
		Limit: in.Offset + limit})
	if err != nil {
		return nil, err
	}
	all := make([]match, len(f.Matches))
	for i, m := range f.Matches {
		all[i] = match(m)
	}
	out := &searchOut{Path: f.Path, Notes: f.Notes}
	out.Matches, out.NextOffset, out.More = part(all, in.Offset, limit, f.More)
	return out, nil
}

func (s *Server) start(ctx context.Context, _ *sdk.CallToolRequest, in startIn) (*process, error) {
	req, err := request(in.Command, in.Workdir, in.Timeout, in.Env)
	if err != nil {
		return nil, err
	}
	session, err := s.session(ctx, in.Session)
	if err != nil {
		return nil, err
	}
	p, err := session.Start(ctx, req)
	if err != nil {
		return nil, err
	}
	out := processOf(p)
	return &out, nil
}

// mostProcesses is how many are listed, the last ones.
const mostProcesses = 200

func (s *Server) processes(ctx context.Context, _ *sdk.CallToolRequest, _ none) (*processesOut, error) {
	v, err := s.environment(ctx)
	if err != nil {
		return nil, err
	}
	list, err := v.Backgrounds(ctx)
	if err != nil {
		return nil, err
	}
	out := &processesOut{Processes: []process{}, More: len(list) > mostProcesses}
	for _, p := range list[max(0, len(list)-mostProcesses):] {
		out.Processes = append(out.Processes, processOf(p))
	}
	return out, nil
}

const outputPrefix = "out-"

func outputName(n int) string { return outputPrefix + strconv.Itoa(n) }

func (s *Server) output(ctx context.Context, _ *sdk.CallToolRequest, in outputIn) (*outputOut, error) {
	wait, err := within("wait_s", in.Wait, mostWait)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(in.ID, outputPrefix) {
		path, ok := s.outputs.find(in.ID)
		if !ok {
			return nil, &jobs.Error{Kind: jobs.KindNotFound,
				Msg: fmt.Sprintf("there is no output %q: the last %d are kept", jobs.Printable(in.ID), mostOutputs)}
		}
		p, err := readFile(path, span{in.Offset, in.Limit})
		return &outputOut{Page: p}, err
	}
	v, err := s.environment(ctx)
	if err != nil {
		return nil, err
	}
	return s.outputOf(ctx, v, in, wait)
}

// about finds a background process.
func about(ctx context.Context, v *engine.Environment, id string) (engine.Background, error) {
	list, err := v.Backgrounds(ctx)
	if err != nil {
		return engine.Background{}, err
	}
	for _, p := range list {
		if p.ID == id {
			return p, nil
		}
	}
	return engine.Background{}, &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("there is no background process %q", jobs.Printable(id)),
		Hint: "list_processes"}
}

// outputOf reads the output of a process; when there is none from the offset on, it waits.
func (s *Server) outputOf(ctx context.Context, v *engine.Environment, in outputIn, wait time.Duration) (*outputOut, error) {
	p, err := span{max(0, in.Offset), in.Limit}.check()
	if err != nil {
		return nil, err
	}
	for until := time.Now().Add(wait); ; {
		b, err := about(ctx, v, in.ID)
		if err != nil {
			return nil, err
		}
		if in.Offset < 0 {
			p.Offset, in.Offset = max(0, b.Log+in.Offset), 0
		}
		if b.Log > p.Offset || !b.Running || !time.Now().Before(until) {
			w := &window{span: span{0, p.Limit}} // what is written begins at the offset
			if b.Log > p.Offset {
				if _, err := v.Log(ctx, in.ID, p.Offset, false, w); err != nil && !errors.Is(err, errFull) {
					return nil, err
				}
			}
			w.Offset = p.Offset
			now := processOf(b)
			return &outputOut{Page: w.page(), Process: &now}, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (s *Server) interact(ctx context.Context, _ *sdk.CallToolRequest, in interactIn) (*outputOut, error) {
	wait, err := within("wait_s", in.Wait, mostWait)
	if err != nil {
		return nil, err
	}
	if in.Wait == 0 {
		wait = time.Second
	}
	v, err := s.environment(ctx)
	if err != nil {
		return nil, err
	}
	before, err := about(ctx, v, in.ID)
	if err != nil {
		return nil, err
	}
	if _, err := v.Write(ctx, in.ID, strings.NewReader(in.Input), in.Close); err != nil {
		return nil, err
	}
	return s.outputOf(ctx, v, outputIn{ID: in.ID, Offset: before.Log}, wait)
}

func (s *Server) kill(ctx context.Context, _ *sdk.CallToolRequest, in killIn) (*process, error) {
	if in.Signal < 0 || in.Signal > 64 {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "signal must be from 1 to 64"}
	}
	v, err := s.environment(ctx)
	if err != nil {
		return nil, err
	}
	p, err := v.Kill(ctx, in.ID, in.Signal, killGrace)
	if err != nil {
		return nil, err
	}
	out := processOf(p)
	return &out, nil
}
