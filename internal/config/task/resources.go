package task

import (
	"berth/internal/config/keys"
	"berth/internal/config/strict"
	"berth/jobs"
)

func resources(t *strict.Reader, p *jobs.Place) {
	t.Synonyms("memory", "ram")
	t.Synonyms("time", "timeout", "walltime", "time_limit", "timelimit", "limit")
	t.Synonyms("disk", "storage", "tmp", "size")
	t.Synonyms("cpus", "cores", "threads")
	t.Synonyms("ntasks", "tasks", "ranks", "processes")
	t.Refuse(inNetwork, "network")
	keys.Take(t, "resources", p)
}
