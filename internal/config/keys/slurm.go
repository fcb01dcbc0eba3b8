package keys

import (
	"strings"

	"berth/internal/config/strict"
	"berth/jobs"
	"berth/slurm/options"
)

// Slurm reads the keys of a [slurm] table.
func Slurm(t *strict.Reader) jobs.SlurmOptions {
	t.Synonyms("extra", "options", "args", options.Program, "flags")
	t.Synonyms("partition", "queue")
	o := jobs.SlurmOptions{
		Partition:  word(t.Take("partition")),
		Account:    word(t.Take("account")),
		QOS:        word(t.Take("qos")),
		Constraint: t.Take("constraint").Text(),
		MPI:        mpi(t.Take("mpi")),
	}
	for _, v := range t.Take("extra").Items(options.What) {
		if s := v.Text(); s != "" && CheckExtra(v, s) {
			o.Extra = append(o.Extra, s)
		}
	}
	return o
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

// word reads a name that has no white space in it.
func word(v strict.Value) string {
	s := v.Text()
	if strings.ContainsAny(s, " \u00a0") {
		v.Failf("", "holds white space")
		return ""
	}
	return s
}

// CheckExtra complains about a word that may not be passed through to Slurm as
// it stands, and tells whether it may.
func CheckExtra(v strict.Value, word string) bool {
	why := options.Complaint(word)
	if why != "" {
		v.Failf("", "%s", why)
	}
	return why == ""
}
