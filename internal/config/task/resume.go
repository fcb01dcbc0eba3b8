package task

import (
	"time"

	"berth/internal/config/keys"
	"berth/internal/config/strict"
	"berth/jobs"
)

// leastEvery is the least time between checkpoints.
const leastEvery = time.Second

// resume reads how a job goes on when its time is up: a table, or the word
// "on" or "off". nil is not said.
func resume(v strict.Value) *jobs.Resume {
	p := &jobs.Resume{Attempts: jobs.DefaultResumeAttempts}
	switch {
	case !v.Given():
		return nil
	case v.Is(strict.String):
		v.OneOf("off", "on")
		if v.Text() == "off" {
			return &jobs.Resume{}
		}
		return p
	case !v.Is(strict.Table):
		v.MustBe(`"on", "off", or a table such as {every = "20m"}`)
		return nil
	}
	t := v.Table()
	t.Synonyms("before", "stop_before", "margin")
	t.Synonyms("every", "interval", "checkpoint", "checkpoints")
	t.Synonyms("attempts", "max_attempts", "tries", "limit")
	t.Synonyms("hook", "command", "script")
	p.Before = keys.Duration(t.Take("before"))
	p.Hook = command(t.Take("hook"))
	every := t.Take("every")
	p.Every = keys.Duration(every)
	if p.Every > 0 && p.Every < leastEvery {
		every.Failf("", "must be %s or more: a checkpoint reads all of the workspace", leastEvery)
	}
	p.Min = keys.Duration(t.Take("min"))
	if n := t.Take("attempts"); n.Given() {
		p.Attempts = n.Count(jobs.MostAttempts)
	}
	if h := t.Take("core_hours"); h.Given() {
		p.CoreHours = float64(h.Count(1 << 30))
	}
	return p
}
