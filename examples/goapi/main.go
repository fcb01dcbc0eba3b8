// Goapi runs a task, and 30 commands in one environment, through berth's Go API.
//
//	go run . --backend docker --image debian:12
//	go run . --backend singularity --image ~/images/debian.sif --scheduler slurm
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"text/tabwriter"
	"time"

	"berth/engine"
	"berth/jobs"
)

func main() {
	engine.Main() // what berth starts this program for, first
	var place jobs.Place
	flag.StringVar(&place.Backend, "backend", jobs.BackendLocal, "where commands run: local, docker, singularity, ...")
	flag.StringVar(&place.Scheduler, "scheduler", "", "what starts the task and keeps the environment: slurm; none is this machine")
	flag.StringVar(&place.Image, "image", "", "of the container")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, place); err != nil {
		fmt.Fprintln(os.Stderr, "goapi:", err)
		if h := jobs.HintOf(err); h != "" {
			fmt.Fprintln(os.Stderr, "hint:", h)
		}
		stop()
		os.Exit(jobs.CodeOf(err))
	}
}

func run(ctx context.Context, place jobs.Place) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	cfg, err := engine.ReadConfig(dir)
	if err != nil {
		return err
	}
	e, err := engine.Open(ctx, engine.Options{Config: cfg, Progress: func(line string) { fmt.Fprintln(os.Stderr, line) }})
	if err != nil {
		return err
	}
	if err := task(ctx, e, cfg, place); err != nil {
		return err
	}
	return commands(ctx, e, cfg, place)
}

// task runs a job and prints what it writes, as it comes.
func task(ctx context.Context, e *engine.Engine, cfg *engine.Config, place jobs.Place) error {
	if place.Scheduler == "" {
		place.Scheduler = jobs.SchedulerLocal
	}
	t := jobs.Task{Name: "goapi", Command: jobs.Command{Shell: "echo the sum is $((40 + 2))"}, Place: place}
	if place.Image != "" && t.Can().ImageNames {
		t.Image, t.Reference = "", place.Image
	}
	choice, notes, err := cfg.Task(&t)
	if err != nil {
		return err
	}
	for _, n := range notes {
		fmt.Fprintln(os.Stderr, "note:", n)
	}
	spec, err := e.Plan(ctx, t, choice, false)
	if err != nil {
		return err
	}
	rec, err := e.Submit(ctx, spec, t)
	if err != nil {
		return err
	}
	v, err := e.Log(ctx, rec, engine.LogOptions{Stdout: os.Stdout, Stderr: os.Stderr, Follow: true,
		See: func(v engine.View) { fmt.Fprintf(os.Stderr, "job %s: %s\n", jobs.Short(v.Spec.ID), v.State) }})
	if err != nil {
		return err
	}
	fmt.Printf("task %s, exit code %d\n", v.State, jobs.CodeOfRecord(v.Record))
	if v.State != jobs.StateCompleted {
		return fmt.Errorf("the task ended as %s: %s", v.State, v.Note)
	}
	return nil
}

// commands runs 30 commands in one session and prints a table of them.
func commands(ctx context.Context, e *engine.Engine, cfg *engine.Config, place jobs.Place) error {
	o := jobs.EnvOptions{Name: "goapi", Place: place, Lifetime: time.Minute}
	if err := cfg.Environment(&o); err != nil {
		return err
	}
	o.Scheduler = place.Scheduler
	v, err := e.Environment(ctx, o)
	if err != nil {
		return err
	}
	defer v.Close()
	if err := inSession(ctx, v); err != nil {
		_ = v.Remove(context.WithoutCancel(ctx), true)
		return err
	}
	return v.Remove(ctx, true)
}

func inSession(ctx context.Context, v *engine.Environment) error {
	s, err := v.Session("")
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "N\tCODE\tMILLISECONDS\tOUTPUT")
	for n := 1; n <= 30; n++ {
		res, err := s.Exec(ctx, engine.ExecRequest{Command: jobs.Command{Shell: "sum=$((sum + " + fmt.Sprint(n) + ")); echo $sum"}})
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(w, "%d\t%d\t%.1f\t%s\n", n, res.Code, float64(res.Duration.Microseconds())/1000, strings.TrimSpace(res.Stdout.Text))
	}
	return w.Flush()
}
