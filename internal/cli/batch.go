package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"berth/engine"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// batchLine is the longest request, in bytes: the longest command, as JSON may
// write it, and what it reads.
const batchLine = 64 << 20

// batchRequest is one line that berth exec --batch reads. What it leaves out is
// as the flags say.
type batchRequest struct {
	ID        json.RawMessage   `json:"id"`         // comes back in the answer
	Command   batchCommand      `json:"command"`    // a text for the shell, or a list of words
	Session   string            `json:"session"`    // "" is --session
	Workdir   string            `json:"workdir"`    // "" is the session's directory
	Stdin     string            `json:"stdin"`      // what it reads
	Env       map[string]string `json:"env"`        // variables for this command only
	Timeout   *batchTimeout     `json:"timeout"`    // such as "10m", or seconds; 0 is never
	Merge     *bool             `json:"merge"`      // as --merge
	ShowBytes *int              `json:"show_bytes"` // as --show-bytes
}

type batchCommand jobs.Command

// UnmarshalJSON reads a text or a list of words.
func (c *batchCommand) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &c.Shell) == nil {
		return nil
	}
	if json.Unmarshal(b, &c.Argv) != nil {
		return errors.New("command must be a text or a list of words")
	}
	return nil
}

type batchTimeout time.Duration

// UnmarshalJSON reads a duration as --timeout has it, or seconds.
func (t *batchTimeout) UnmarshalJSON(b []byte) error {
	var text string
	var seconds float64
	var d time.Duration
	err := json.Unmarshal(b, &text)
	switch {
	case err == nil:
		d, err = orNever("timeout", text)
	case json.Unmarshal(b, &seconds) != nil || seconds < 0 || seconds > 1e9:
		return errors.New(`timeout must be a duration such as "10m", or seconds`)
	case seconds == 0:
		d, err = -1, nil
	default:
		d, err = max(1, time.Duration(seconds*float64(time.Second))), nil
	}
	*t = batchTimeout(d)
	return err
}

// over puts what a request says over what the flags say.
func (r *batchRequest) over(req engine.ExecRequest) (engine.ExecRequest, error) {
	req.Command, req.Dir = jobs.Command(r.Command), r.Workdir
	if strings.TrimSpace(req.Command.Shell) == "" && len(req.Command.Argv) == 0 {
		return req, usage("a request needs a command")
	}
	if r.Stdin != "" {
		req.Stdin = strings.NewReader(r.Stdin)
	}
	if r.Timeout != nil {
		req.Timeout = time.Duration(*r.Timeout)
	}
	if r.Merge != nil {
		req.Merge = *r.Merge
	}
	if r.ShowBytes != nil {
		req.ShowBytes = *r.ShowBytes
		if err := checkWindow("show_bytes", req.ShowBytes); err != nil {
			return req, err
		}
	}
	req.Env = slices.Clone(req.Env)
	for name, value := range r.Env {
		if !variableName().MatchString(name) {
			return req, usage("env: %q names no variable", name)
		}
		req.Env = append(req.Env, name+"="+value)
	}
	return req, nil
}

// notInBatch are the flags that say something of one command.
var notInBatch = []string{"command-file", "stdin", "workdir"}

// batchFlags prepares for --batch: each answer, and an error before the first, is
// one line.
func (a *app) batchFlags(cmd *cobra.Command, args []string) error {
	a.json, a.lines = true, true
	if len(args) > 0 {
		return usage("--batch reads its commands from stdin, and takes none after --")
	}
	for _, name := range notInBatch {
		if cmd.Flags().Changed(name) {
			return usage("--%s is of one command: with --batch a request says it", name)
		}
	}
	return nil
}

// batch answers each line of stdin by one line, in their order, until stdin ends.
func (a *app) batch(ctx context.Context, session string, base engine.ExecRequest, in sessions) error {
	lines := make(chan []byte)
	failed := make(chan error, 1)
	go func() {
		defer close(lines)
		failed <- eachLine(a.stdin, batchLine, func(line []byte) bool {
			select {
			case lines <- line:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
	for {
		select {
		case <-ctx.Done():
			return exitCode(jobs.CodeInterrupted)
		case line, ok := <-lines:
			if !ok {
				return <-failed
			}
			if err := a.encode(a.answer(ctx, line, session, base, in)); err != nil {
				return fmt.Errorf("print an answer: %w", err)
			}
		}
	}
}

// answer runs the command of a line. A nil line is one that was too long.
func (a *app) answer(ctx context.Context, line []byte, session string, base engine.ExecRequest, in sessions) map[string]any {
	r, err := readRequest(line)
	fields, err := func() (map[string]any, error) {
		if err != nil {
			return nil, err
		}
		req, err := r.over(base)
		if err != nil {
			return nil, err
		}
		if r.Session != "" {
			session = r.Session
		}
		s, where, err := in(session)
		if err != nil {
			return nil, err
		}
		res, err := s.Exec(ctx, req)
		if err != nil {
			return nil, err
		}
		return a.execJSON(where, req, res), nil
	}()
	if err != nil {
		fields = map[string]any{"error": errorJSON(a.verdict(err))}
	}
	if r.ID != nil {
		fields["id"] = r.ID
	}
	return fields
}

// readRequest reads a line. Of one that cannot be served it still finds the id,
// where there is one.
func readRequest(line []byte) (batchRequest, error) {
	var r batchRequest
	if line == nil {
		return r, usage("a request has at most %d bytes", batchLine)
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	err := dec.Decode(&r)
	if err == nil && dec.More() {
		err = errors.New("there is more than one object in the line")
	}
	if err != nil {
		only := struct {
			ID json.RawMessage `json:"id"`
		}{r.ID}
		_ = json.Unmarshal(line, &only)
		msg := strings.TrimPrefix(err.Error(), "json: ")
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			msg = wrong.Field + " cannot be a " + wrong.Value
		}
		return batchRequest{ID: only.ID}, &jobs.Error{Kind: jobs.KindUsage, Msg: "read a request: " + msg,
			Hint: `one object in a line, such as {"command": "ls"}; berth help callers has the fields`}
	}
	return r, nil
}

// eachLine hands on each line of r that is not blank, and nil in the place of one
// with more than most bytes, until f returns false.
func eachLine(r io.Reader, most int, f func(line []byte) bool) error {
	b := bufio.NewReaderSize(r, 64<<10)
	for {
		var line []byte
		length := 0
		var err error
		for {
			var part []byte
			part, err = b.ReadSlice('\n')
			if length += len(part); length <= most {
				line = append(line, part...)
			}
			if !errors.Is(err, bufio.ErrBufferFull) {
				break
			}
		}
		if length > most {
			line = nil
		}
		if (length > most || len(bytes.TrimSpace(line)) > 0) && !f(line) {
			return nil
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read requests: %w", err)
		}
	}
}
