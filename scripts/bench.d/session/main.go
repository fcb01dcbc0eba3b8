// Command session measures commands in a warm environment through the Go API, and
// in turns with it through run_command of a berth mcp, for scripts/bench: each sample
// is a line "KEY VALUE" on stdout, times in milliseconds.
//
//	session N NAME BACKEND [SCHEDULER]
//
// The environment is called bench-NAME. The berth of PATH is the one whose mcp is measured.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"time"

	"berth/engine"
	"berth/jobs"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	engine.Main()
	if err := measure(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "session:", err, jobs.HintOf(err))
		os.Exit(1)
	}
}

func measure(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("usage: session N NAME BACKEND [SCHEDULER]")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	prefix := args[1]
	o := jobs.EnvOptions{Name: "bench-" + prefix, Place: jobs.Place{Backend: args[2]}}
	if len(args) > 3 {
		o.Scheduler = args[3]
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	e, err := engine.Open(ctx, engine.Options{})
	if err != nil {
		return err
	}
	v, err := e.Environment(ctx, o)
	if err != nil {
		return err
	}
	defer v.Close()
	s, err := v.Session("bench")
	if err != nil {
		return err
	}
	direct := func(text string) error {
		res, err := s.Exec(ctx, engine.ExecRequest{Command: jobs.Command{Shell: text}})
		if err == nil && res.Code != 0 {
			err = fmt.Errorf("%s: exit %d: %s", text, res.Code, res.Stderr.Text)
		}
		return err
	}
	served, leave, err := client(ctx, o.Name)
	if err != nil {
		return err
	}
	defer leave()
	sample := func(key string, do func(string) error, text string) error {
		begun := time.Now()
		err := do(text)
		if took := time.Since(begun); err == nil && key != "" {
			fmt.Printf("%s_%s %.4f\n", prefix, key, float64(took.Microseconds())/1000)
		}
		return err
	}
	for i := range n + 5 {
		keys := []string{"true", "builtin", "mcp"}
		if i < 5 { // what is made at the first use is not what is measured
			keys = []string{"", "", ""}
		}
		if err := sample(keys[0], direct, "/bin/true"); err != nil {
			return err
		}
		if err := sample(keys[1], direct, "true"); err != nil {
			return err
		}
		if err := sample(keys[2], served, "/bin/true"); err != nil {
			return err
		}
	}
	return nil
}

// client is one of a berth mcp that works in an environment: a function that has it run a command, and one that leaves.
func client(ctx context.Context, env string) (served func(text string) error, leave func(), err error) {
	cmd := exec.CommandContext(ctx, "berth", "mcp", "--enable", "run", "--env", env, "--session", "bench-mcp")
	cmd.Stderr = os.Stderr
	c, err := sdk.NewClient(&sdk.Implementation{Name: "bench", Version: "1"}, nil).Connect(ctx, &sdk.CommandTransport{Command: cmd}, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("berth mcp: %w", err)
	}
	return func(text string) error {
		r, err := c.CallTool(ctx, &sdk.CallToolParams{Name: "run_command", Arguments: map[string]any{"command": text}})
		if err != nil {
			return err
		}
		b, err := json.Marshal(r.StructuredContent)
		if err != nil {
			return err
		}
		var out struct {
			Code *int `json:"exit_code"`
		}
		if err := json.Unmarshal(b, &out); err != nil || r.IsError || out.Code == nil || *out.Code != 0 {
			return fmt.Errorf("run_command %s: %s", text, b)
		}
		return nil
	}, func() { _ = c.Close() }, nil
}
