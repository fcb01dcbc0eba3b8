package task

import (
	"strconv"
	"time"

	"berth/internal/config/strict"
	"berth/internal/sys/pattern"
	"berth/jobs"
)

// Upper bounds that only a slip of the finger passes.
const (
	maxCPUs  = 1 << 20
	maxNodes = 1 << 20
	maxTasks = 1 << 20
	maxGPUs  = 1 << 20
)

func resources(t *strict.Reader) jobs.Resources {
	t.Synonyms("memory", "ram")
	t.Synonyms("time", "timeout", "walltime", "time_limit", "timelimit", "limit")
	t.Synonyms("disk", "storage", "tmp", "size")
	t.Synonyms("cpus", "cores", "threads")
	t.Synonyms("ntasks", "tasks", "ranks", "processes")
	return jobs.Resources{
		CPUs:   t.Take("cpus").Count(maxCPUs),
		Memory: size(t.Take("memory")),
		Disk:   size(t.Take("disk")),
		Time:   duration(t.Take("time")),
		GPUs:   gpus(t.Take("gpus")),
		Nodes:  t.Take("nodes").Count(maxNodes),
		Tasks:  t.Take("ntasks").Count(maxTasks),
	}
}

// number returns the text of a string or a whole number.
func number(v strict.Value, what string) string {
	switch {
	case !v.Given():
		return ""
	case v.Is(strict.Int):
		return strconv.FormatInt(v.Whole(), 10)
	case v.Is(strict.String):
		return v.Text()
	}
	v.MustBe(what)
	return ""
}

func size(v strict.Value) jobs.Bytes {
	s := number(v, `a size such as "512MiB", or a whole number of MiB`)
	if s == "" {
		return 0
	}
	b, err := jobs.ParseBytes(s)
	if err != nil {
		v.Fail(err)
	}
	return b
}

func duration(v strict.Value) time.Duration {
	s := number(v, `a duration such as "2h", or a whole number of seconds`)
	if s == "" {
		return 0
	}
	d, err := jobs.ParseDuration(s)
	if err != nil {
		v.Fail(err)
	}
	return d
}

var gpuForm = pattern.Lazy(`^(?:[A-Za-z0-9][A-Za-z0-9_.-]*:)?([0-9]{1,7})$`)

// gpus reads a number, or a type and a number.
func gpus(v strict.Value) string {
	s := number(v, `a whole number, or a string such as "a100:2"`)
	if s == "" {
		return ""
	}
	m := gpuForm().FindStringSubmatch(s)
	if m == nil {
		v.Failf("", `must be a number or "TYPE:NUMBER" such as "a100:2", found %q`, s)
		return ""
	}
	if n, err := strconv.Atoi(m[1]); err != nil || n < 1 || n > maxGPUs || m[1][0] == '0' {
		v.Failf("", "must ask for 1 GPU or more, found %q", s)
		return ""
	}
	return s
}
