// Command session measures commands in a warm environment through the Go API,
// for scripts/bench: each sample is a line "KEY VALUE" on stdout, times in
// milliseconds.
//
//	session N PREFIX BACKEND [IMAGE|HOST]
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"time"

	"berth/backends/all"
	"berth/engine"
	"berth/internal/nodebin"
	"berth/internal/run"
	"berth/jobs"
	"berth/jobs/store"
)

func main() {
	if err := measure(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "session:", err, jobs.HintOf(err))
		os.Exit(1)
	}
}

func measure(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("usage: session N PREFIX BACKEND [IMAGE|HOST]")
	}
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	prefix := args[1]
	st, err := store.Open(os.Getenv("BERTH_HOME"))
	if err != nil {
		return err
	}
	e := &engine.Engine{
		Store: st, Backends: all.Backends(run.Local{}), Node: func() (string, error) { return nodebin.Install(st.Bin()) },
		Getenv: os.LookupEnv, Now: time.Now, Sleep: engine.Sleep,
	}
	o := engine.EnvOptions{Name: "bench-" + prefix, Backend: args[2]}
	if len(args) > 3 {
		if o.Backend == jobs.BackendSSH {
			o.SSH.Host = args[3]
		} else {
			o.Image = args[3]
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	v, err := e.Environment(ctx, o)
	if err != nil {
		return err
	}
	defer v.Close()
	s, err := v.Session("bench")
	if err != nil {
		return err
	}
	exec := func(key, text string, timed func(*engine.ExecResult) error) error {
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
		if timed != nil {
			return timed(res)
		}
		return nil
	}
	// Once before: what is made at the first use is not what is measured.
	for range 5 {
		if err := exec("", "/bin/true", nil); err != nil {
			return err
		}
	}
	for range n {
		if err := exec("true", "/bin/true", nil); err != nil {
			return err
		}
		if err := exec("builtin", "true", nil); err != nil {
			return err
		}
	}
	for range max(3, n/10) {
		begun := time.Now()
		res, err := s.Exec(ctx, engine.ExecRequest{Command: jobs.Command{Shell: "cat /tmp/berth-bench-100m"}, Stdout: discard{}, Timeout: -1})
		if err != nil {
			return err
		}
		if res.Code != 0 {
			break // there is no such file here: not asked for
		}
		fmt.Printf("%s_output %.4f\n", prefix, float64(time.Since(begun).Microseconds())/1000)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fmt.Printf("%s_client_sys_kib %d\n", prefix, m.Sys/1024)
	return nil
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

var _ io.Writer = discard{}
