package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"berth/engine"
	"berth/jobs"
)

// open opens an engine with a state directory of its own, as the examples need it; a
// program leaves Home empty, and has the user's. Its main function begins with
// engine.Main.
func open(ctx context.Context) (e *engine.Engine, remove func()) {
	home, err := os.MkdirTemp("", "berth-example")
	check(err)
	e, err = engine.Open(ctx, engine.Options{Home: home})
	check(err)
	return e, func() {
		// What has run the job writes there a moment longer.
		for err = os.RemoveAll(home); errors.Is(err, syscall.ENOTEMPTY); err = os.RemoveAll(home) {
		}
		check(err)
	}
}

// environment is one of this machine without a container.
func environment(ctx context.Context, e *engine.Engine) (v *engine.Environment, s *engine.Session, remove func()) {
	v, err := e.Environment(ctx, jobs.EnvOptions{Name: "example", Place: jobs.Place{Backend: jobs.BackendLocal}})
	check(err)
	s, err = v.Session("")
	check(err)
	return v, s, func() {
		check(v.Remove(ctx, true))
		v.Close()
	}
}

func check(err error) {
	if err != nil {
		panic(fmt.Sprint(err, " ", jobs.HintOf(err)))
	}
}

// A job is planned, submitted and waited for.
func Example_job() {
	ctx := context.Background()
	e, remove := open(ctx)
	defer remove()

	task := jobs.Task{
		Name:    "greet",
		Command: jobs.Command{Shell: "echo hello"},
		Place:   jobs.Place{Scheduler: jobs.SchedulerLocal, Backend: jobs.BackendLocal},
	}
	spec, err := e.Plan(ctx, task, engine.Choice{}, false)
	check(err)
	rec, err := e.Submit(ctx, spec, task)
	check(err)
	v, err := e.Wait(ctx, rec.Spec.ID, nil)
	check(err)
	var out bytes.Buffer
	_, err = e.Log(ctx, rec, engine.LogOptions{Stdout: &out})
	check(err)
	fmt.Printf("%s, exit code %d: %s", v.State, jobs.CodeOfRecord(v.Record), out.String())
	// Output: completed, exit code 0: hello
}

// Whoever waits is told of each new state of a job.
func Example_events() {
	ctx := context.Background()
	e, remove := open(ctx)
	defer remove()

	task := jobs.Task{Name: "quick", Command: jobs.Words([]string{"true"}), Place: jobs.Place{Scheduler: jobs.SchedulerLocal, Backend: jobs.BackendLocal}}
	spec, err := e.Plan(ctx, task, engine.Choice{}, false)
	check(err)
	rec, err := e.Submit(ctx, spec, task)
	check(err)
	var last jobs.State
	_, err = e.Wait(ctx, rec.Spec.ID, func(v engine.View) { last = v.State }) // queued, running, ...
	check(err)
	fmt.Println(last)
	// Output: completed
}

// The output of a job is shown as it comes; that ends with the job.
func Example_follow() {
	ctx := context.Background()
	e, remove := open(ctx)
	defer remove()

	task := jobs.Task{
		Name:    "count",
		Command: jobs.Command{Shell: "for n in 1 2 3; do echo $n; done; exit 7"},
		Place:   jobs.Place{Scheduler: jobs.SchedulerLocal, Backend: jobs.BackendLocal},
	}
	spec, err := e.Plan(ctx, task, engine.Choice{}, false)
	check(err)
	rec, err := e.Submit(ctx, spec, task)
	check(err)
	v, err := e.Log(ctx, rec, engine.LogOptions{Stdout: os.Stdout, Stderr: os.Stderr, Follow: true})
	check(err)
	fmt.Printf("%s: exit code %d\n", v.State, v.Current().Exit.Exit.Code)
	// Output:
	// 1
	// 2
	// 3
	// failed: exit code 7
}

// The commands of a session share its directory, variables and functions.
func Example_session() {
	ctx := context.Background()
	e, remove := open(ctx)
	defer remove()
	_, s, end := environment(ctx, e)
	defer end()

	for _, line := range []string{"cd /usr; export WHO=you", "echo $WHO in $PWD", "exit 3"} {
		res, err := s.Exec(ctx, engine.ExecRequest{Command: jobs.Command{Shell: line}, Timeout: time.Minute})
		check(err)
		fmt.Printf("%d %q\n", res.Code, res.Stdout.Text)
	}
	// Output:
	// 0 ""
	// 0 "you in /usr\n"
	// 3 ""
}

// Files are read and written as a whole, and edited.
func Example_files() {
	ctx := context.Background()
	e, remove := open(ctx)
	defer remove()
	_, s, end := environment(ctx, e)
	defer end()

	path := filepath.Join(e.Store.Home(), "notes.txt")
	_, err := s.WriteFile(ctx, path, strings.NewReader("one\ntwo\n"), jobs.WriteOptions{})
	check(err)
	n, err := s.EditFile(ctx, path, jobs.FileEdit{Old: "two", New: "three"})
	check(err)
	var text bytes.Buffer
	_, err = s.ReadFile(ctx, path, 0, 0, &text)
	check(err)
	found, err := s.Search(ctx, path, jobs.FileQuery{Pattern: "^thr"})
	check(err)
	fmt.Printf("%d replaced: %q; found in line %d\n", n, text.String(), found.Matches[0].Line)
	// Output: 1 replaced: "one\nthree\n"; found in line 2
}

// A background process goes on when the program has ended.
func Example_background() {
	ctx := context.Background()
	e, remove := open(ctx)
	defer remove()
	v, s, end := environment(ctx, e)
	defer end()

	p, err := s.Start(ctx, engine.ExecRequest{Command: jobs.Command{Shell: "read line; echo got $line"}})
	check(err)
	_, err = v.Write(ctx, p.ID, strings.NewReader("it\n"), true)
	check(err)
	var log bytes.Buffer
	p, err = v.Log(ctx, p.ID, 0, true, &log) // until it has ended
	check(err)
	fmt.Printf("%s: running %t: %s", p.ID, p.Running, log.String())
	// Output: bg-1: running false: got it
}
