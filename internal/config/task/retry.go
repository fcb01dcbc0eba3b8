package task

import (
	"berth/internal/config/keys"
	"berth/internal/config/strict"
	"berth/jobs"
)

// Retry reads how often a job, or a task of a sweep, may be tried again: a table, or the
// word "off". nil is not said.
func Retry(v strict.Value) *jobs.Retry {
	switch {
	case !v.Given():
		return nil
	case v.Is(strict.String):
		v.OneOf("off", "on")
		if v.Text() == "off" {
			return &jobs.Retry{}
		}
		return jobs.DefaultRetry()
	case !v.Is(strict.Table):
		v.MustBe(`"on", "off", or a table such as {memory = 2}`)
		return nil
	}
	t := v.Table()
	t.Synonyms("attempts", "max_attempts", "tries", "limit")
	t.Synonyms("infrastructure", "infra", "site")
	t.Synonyms("codes", "exit_codes")
	p := jobs.DefaultRetry()
	count := func(to *int, key string) {
		if k := t.Take(key); k.Given() {
			*to = k.UpTo(jobs.MostAttempts)
		}
	}
	attempts := t.Take("attempts")
	if attempts.Given() {
		p.Attempts = attempts.Count(jobs.MostAttempts)
	}
	count(&p.Task, "task")
	count(&p.Memory, "memory")
	count(&p.Time, "time")
	count(&p.Node, "node")
	count(&p.Infra, "infrastructure")
	codes := t.Take("codes")
	for _, c := range codes.Items("exit codes") {
		p.Codes = append(p.Codes, c.UpTo(255))
	}
	if len(p.Codes) > 0 && p.Task == 0 {
		codes.Failf("", "names exit codes after which the task is tried again, and retry.task allows that 0 times: give task = 1, or more")
	}
	if h := t.Take("core_hours"); h.Given() {
		p.CoreHours = float64(h.Count(1 << 30))
	}
	p.MaxMemory = keys.Size(t.Take("max_memory"))
	p.MaxTime = keys.Duration(t.Take("max_time"))
	return p
}
