package keys

import (
	"slices"

	"berth/internal/config/strict"
	"berth/jobs"
	"berth/slurm/options"
)

// Slurm reads the keys of a [slurm] table.
func Slurm(t *strict.Reader) jobs.SlurmOptions {
	t.Synonyms("extra", "options", "args", options.Program, "flags")
	t.Synonyms("partition", "queue")
	var p jobs.Place
	Take(t, "slurm", &p)
	return p.Slurm
}

// Take reads a task file's keys of a table, but for those that have a reading of
// their own there.
func Take(t *strict.Reader, table string, p *jobs.Place, but ...string) {
	for i := range Fields {
		if f := &Fields[i]; f.Task && f.Table() == table && !slices.Contains(but, f.Key()) {
			f.Take(t.Take(f.Key()), p)
		}
	}
}

// mpi reads how ranks find each other.
func mpi(v strict.Value) string {
	if v.Is(strict.String) {
		if s, _ := v.Raw(); s == "pmi2" {
			v.Failf("", `must not be "pmi2": its connection is an open descriptor, which commands in a container do not get; use "pmix"`)
			return ""
		}
	}
	return v.OneOf("pmix", "none")
}
