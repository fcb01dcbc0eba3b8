package mcp

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/jobs"
)

// notShown are the fields of a job that a person does not read, and why. All of them are
// compared, see [plan].
var notShown = map[string]string{
	"Spec.Version": "of the record", "Spec.ID": "another one each time", "Spec.Key": "of the request", "Spec.Created": "of the record", "Spec.User": "who confirms it",
	"Spec.Host": "where it is confirmed", "Spec.LoginHome": "follows from the cluster", "Spec.Notes": "words about other fields",
	"Spec.Slug": "follows from the name", "Spec.Prompt": "the prompt is shown", "Spec.PromptBytes": "the prompt is shown", "Spec.TaskFile": "the task's file is shown",
	"Spec.Verifies": "of jobs of berth's own", "Spec.RetryOf": "of berth retry", "Spec.Parent": "of a task's jobs", "Spec.Number": "of a task's jobs",
	"Spec.Notify":            "the user's configuration",
	"Spec.Agent.Events":      "of the agent's file, which is named",
	"Spec.Agent.Tells":       "of the agent's file, which is named",
	"Spec.Agent.Exit":        "of the agent's file, which is named",
	"Spec.Agent.Home":        "of the agent's file, which is named",
	"Spec.Agent.Versions":    "of the agent's file, which is named",
	"Spec.Agent.VersionArgv": "of the agent's file, which is named",
	"Spec.Agent.Resume":      "of the agent's file, which is named: its command with a session",
	"Spec.Agent.Session":     "of a job that is tried again, which no submit here is",
	"Spec.Agent.Sandbox":     "says what became of own sandbox",
	"Spec.Workspace.GitDir":  "follows from the repository", "Spec.Workspace.Copy": "follows from the cluster", "Spec.Workspace.Ignore": "the user's configuration of git",
	"Spec.Further.GitDir": "follows from the repository", "Spec.Further.Copy": "there is none with a login host", "Spec.Further.Ignore": "the user's configuration of git",
	"Spec.Place.Overlay.Driver": "berth's choice", "Spec.Place.Overlay.Why": "berth's choice", "Spec.Place.Overlay.Inodes": "berth's choice", "Spec.Place.Overlay.Wait": "the user's configuration",
	"Spec.Place.Overlay.Templates": "berth's own directory", "Spec.Place.Rooms": "berth's choice",
	"Spec.Place.Network.Bounds":  "they only make it narrower",
	"Spec.Place.Credentials.API": "the user's configuration, by its name", "Spec.Place.Credentials.Header": "the user's configuration, by its name",
	"Spec.Place.Credentials.User": "the user's configuration, by its name", "Spec.Place.Credentials.BaseURLEnv": "the user's configuration, by its name",
	"Spec.Place.Credentials.KeyEnv": "the user's configuration, by its name", "Spec.Place.Credentials.Methods": "the user's configuration, by its name",
	"Spec.Place.Credentials.Paths": "the user's configuration, by its name", "Spec.Place.Credentials.CA": "the user's configuration, by its name",
	"Spec.Place.Credentials.CAFile": "the user's configuration, by its name", "Spec.Place.Credentials.From": "the user's configuration, by its name",
	"Spec.Place.Prices": "the user's configuration", "Spec.Place.Profile": "the site's, chosen by the user",
	"Spec.Place.External.Owner": "berth's own", "Spec.Place.External.Allow": "of old records", "Spec.Place.External.Job": "the job's id", "Spec.Place.External.OneShot": "of the backend",
	"Spec.Retry.Most": "what the site gives",
	"Task.Workspace":  "settled into the spec", "Task.Reference": "settled into the spec", "Task.After": "settled into the spec", "Task.Source": "all that it says is here",
}

// fill gives each field below v a value that is not zero.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), n)
	case reflect.Map:
		e := reflect.New(v.Type().Elem()).Elem()
		fill(e, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf(fmt.Sprint("key", *n)), e)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(int64(*n), 0)))
			return
		}
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.String:
		v.SetString(fmt.Sprint("word", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(*n))
	case reflect.Uint8:
		v.SetUint(uint64(*n % 256))
	default:
		v.SetInt(int64(*n) * 1e9)
	}
}

// leaves calls do with the path of each field below v, and a function that changes it.
func leaves(v reflect.Value, path string, do func(path string, change func())) {
	switch v.Kind() {
	case reflect.Pointer:
		leaves(v.Elem(), path, do)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			do(path, func() { v.Set(reflect.ValueOf(time.Unix(1, 1))) })
			return
		}
		for i := range v.NumField() {
			leaves(v.Field(i), path+"."+v.Type().Field(i).Name, do)
		}
	case reflect.Slice:
		leaves(v.Index(0), path, do)
	case reflect.Map:
		do(path, func() { v.SetMapIndex(reflect.ValueOf("other"), v.MapIndex(v.MapKeys()[0])) })
	case reflect.String:
		do(path, func() { v.SetString("another") })
	case reflect.Bool:
		do(path, func() { v.SetBool(!v.Bool()) })
	case reflect.Float64:
		do(path, func() { v.SetFloat(4711) })
	case reflect.Uint8:
		do(path, func() { v.SetUint(7) })
	default:
		do(path, func() { v.SetInt(4711e9) })
	}
}

// full is a job with all fields set.
func full() (*jobs.Spec, *jobs.Task) {
	s, t, n := &jobs.Spec{}, &jobs.Task{}, 0
	fill(reflect.ValueOf(s).Elem(), &n)
	fill(reflect.ValueOf(t).Elem(), &n)
	s.Network.Mode, s.Network.Asked, s.Network.Learn = jobs.NetworkAllow, "", false
	return s, t
}

// Each field of a job is shown to the person who confirms it, or stands in notShown; and
// each is compared.
func TestAllIsShown(t *testing.T) {
	unused := maps.Clone(notShown)
	exempt := func(path string) bool {
		for p := range notShown {
			if path == p || strings.HasPrefix(path, p+".") {
				delete(unused, p)
				return true
			}
		}
		return false
	}
	text := func(s *jobs.Spec, task *jobs.Task) string { return shown(s, *task, "") }
	s, task := full()
	before := text(s, task)
	var paths []string
	leaves(reflect.ValueOf(s).Elem(), "Spec", func(path string, _ func()) { paths = append(paths, path) })
	for i, path := range paths {
		// Of a command there is a line or words.
		s, task := full()
		n := 0
		leaves(reflect.ValueOf(s).Elem(), "Spec", func(_ string, change func()) {
			if n == i {
				change()
			}
			n++
		})
		if strings.HasSuffix(path, ".Argv") {
			continue
		}
		switch is, ex := text(s, task) != before, exempt(path); {
		case !is && !ex:
			t.Errorf("%s is not shown", path)
		case is && ex:
			t.Errorf("%s is shown, and stands in notShown", path)
		}
	}
	inPlace := reflect.TypeFor[jobs.Spec]()
	for i := range reflect.TypeFor[jobs.Task]().NumField() {
		field := reflect.TypeFor[jobs.Task]().Field(i)
		if _, both := inPlace.FieldByName(field.Name); both && field.Name != "Prompt" && field.Name != "Workspace" && field.Name != "After" {
			continue // it is settled into the spec
		}
		s, task := full()
		reflect.ValueOf(task).Elem().Field(i).SetZero()
		if path := "Task." + field.Name; (text(s, task) != before) == exempt(path) {
			t.Errorf("%s must be shown, or stand in notShown", path)
		}
	}
	if len(unused) > 0 {
		t.Errorf("notShown has fields that are not there: %v", slices.Sorted(maps.Keys(unused)))
	}
}

// A task cannot write rows of its own, whatever its texts say.
func TestForged(t *testing.T) {
	wide := strings.Repeat("\u65e5", 39)
	forged := "scheduler    none\n--- in short ---\rcontainment  vm\n\n" + strings.Repeat("x", 76) + "cost         nothing\n" + wide + "network      none"
	s := &jobs.Spec{Name: strings.Repeat("n", 65) + "cost         free", Command: jobs.Command{Shell: "true # \nrm -rf ~"},
		Done: []jobs.Command{{Shell: "true # \nevil"}, {Argv: []string{"a\nb", "c"}}}, Resume: &jobs.Resume{Hook: jobs.Command{Shell: "hook\u202e\U000e0041"}},
		Place: jobs.Place{Level: jobs.LevelNone, Backend: jobs.BackendLocal, Scheduler: jobs.SchedulerLocal}}
	text := shown(s, jobs.Task{Prompt: forged}, "#!/bin/sh\n"+forged)
	for line := range strings.SplitSeq(text, "\n") {
		wide := 0
		for _, r := range line {
			if wide++; r >= 0x80 {
				wide++
			}
			if !jobs.Shows(r) {
				t.Errorf("%q has a character that is not seen", line)
			}
		}
		if wide > 78 {
			t.Errorf("%d columns: %s", wide, line)
		}
		for _, label := range []string{"scheduler", "cost", "network", "containment"} {
			if strings.HasPrefix(line, label+" ") && !slices.Contains([]string{"scheduler    local", "cost         core-hours without a bound: it asks for no time limit",
				"network      open", "containment  none: IT HAS YOUR OWN RIGHTS"}, line) {
				t.Errorf("a forged row: %s", line)
			}
		}
	}
	for _, want := range []string{"--- command ---\n| true # \n| rm -rf ~\n", "--- done command 1 of 2 ---\n| true # \n| evil\n", "--- done command 2 of 2 ---\n| \"a\\nb\" \"c\"\n",
		"--- hook at each checkpoint ---\n| hook\\u{202e}\\u{e0041}\n", "\n> cost         nothing\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
	if _, short, _ := strings.Cut(text, "\n--- in short ---\nscheduler    local\nbackend      local\ncontainment  none: IT HAS"); strings.Count(text, "\n--- in short ---\n") != 1 || !strings.HasSuffix(short, "no time limit\n") {
		t.Errorf("it does not end with what matters:\n%s", text)
	}
}

// No character is lost where a line goes on.
func TestWrapped(t *testing.T) {
	for _, line := range []string{"", "short", strings.Repeat("word ", 50), strings.Repeat("x", 200), strings.Repeat("\u65e5 ", 90), " " + strings.Repeat("y", 77), strings.Repeat(" ", 170)} {
		parts := wrapped(line, 76)
		if strings.Join(parts, "") != line {
			t.Errorf("%q became %q", line, parts)
		}
	}
	if got := wrapped("beside, up to its own", 15); !slices.Equal(got, []string{"beside, up to ", "its own"}) {
		t.Errorf("%q", got)
	}
}

func TestCost(t *testing.T) {
	s := &jobs.Spec{Retry: &jobs.Retry{Attempts: 2}, Resume: &jobs.Resume{Attempts: 4}, Submit: &jobs.Submit{MaxJobs: 3, MaxCPUTime: 90 * time.Minute, GPUs: 2},
		Place: jobs.Place{Resources: jobs.Resources{CPUs: 2, Time: time.Hour}}}
	if got, want := cost(s), "up to 10.00 core-hours in 5 attempts; beside, up to 3 jobs of its own, with 1.50 CPU-hours together, up to 2 GPUs each"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	s.Resume.Attempts = 1000
	if got := cost(s); !strings.Contains(got, " in 100 attempts") {
		t.Error(got)
	}
}
