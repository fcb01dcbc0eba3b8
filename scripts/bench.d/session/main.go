// Command session measures commands in a warm environment through the Go API,
// for scripts/bench: each sample is a line "KEY VALUE" on stdout, times in
// milliseconds.
//
//	session N NAME BACKEND [SCHEDULER]
//
// The environment is called bench-NAME.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"berth/engine"
	"berth/jobs"
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
	exec := func(key, text string) error {
		begun := time.Now()
		res, err := s.Exec(ctx, engine.ExecRequest{Command: jobs.Command{Shell: text}})
		if err != nil {
			return err
		}
		took := time.Since(begun)
		if res.Code != 0 {
			return fmt.Errorf("%s: exit %d: %s", text, res.Code, res.Stderr.Text)
		}
		if key != "" {
			fmt.Printf("%s_%s %.4f\n", prefix, key, float64(took.Microseconds())/1000)
		}
		return nil
	}
	// Once before: what is made at the first use is not what is measured.
	for range 5 {
		if err := exec("", "/bin/true"); err != nil {
			return err
		}
	}
	for range n {
		if err := exec("true", "/bin/true"); err != nil {
			return err
		}
		if err := exec("builtin", "true"); err != nil {
			return err
		}
	}
	return nil
}
