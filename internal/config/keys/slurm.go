package keys

import (
	"strings"

	"berth/internal/config/strict"
	"berth/internal/sys/pattern"
	"berth/jobs"
)

// Slurm reads the keys of a [slurm] table.
func Slurm(t *strict.Reader) jobs.SlurmOptions {
	t.Synonyms("extra", "options", "args", "sbatch", "flags")
	t.Synonyms("partition", "queue")
	o := jobs.SlurmOptions{
		Partition:  word(t.Take("partition")),
		Account:    word(t.Take("account")),
		QOS:        word(t.Take("qos")),
		Constraint: t.Take("constraint").Text(),
		MPI:        mpi(t.Take("mpi")),
	}
	for _, v := range t.Take("extra").Items("sbatch options") {
		if s := v.Text(); s != "" && checkExtra(v, s) {
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

var optionForm = pattern.Lazy(`^--([a-z][a-z0-9-]*)(=.*)?$`)

// checkExtra tells whether an option of sbatch may be passed through.
func checkExtra(v strict.Value, s string) bool {
	m := optionForm().FindStringSubmatch(s)
	if m == nil {
		extraForm(v, s)
		return false
	}
	name := m[1]
	full := Expand(name)
	if full == "" {
		v.Failf("", "must not abbreviate an option, found %q: write its name in full", s)
		return false
	}
	if why, ok := owned[full]; ok {
		v.Failf("", "must not set --%s: %s", full, why)
		return false
	}
	if key, ok := keyed[full]; ok {
		v.Failf("", "must not set --%s: use %s", full, key)
		return false
	}
	return true
}

// extraForm explains what is wrong with something that is not --option=value.
func extraForm(v strict.Value, s string) {
	name, value, spaced := strings.Cut(s, " ")
	switch long := short[firstTwo(s)]; {
	case strings.HasPrefix(s, "--") && spaced && optionForm().MatchString(name) && !strings.Contains(name, "="):
		v.Failf("", "must have the form --option=value: write %q", name+"="+strings.TrimSpace(value))
	case owned[long] != "" && !strings.HasPrefix(s, "--"):
		v.Failf("", "must not set %s (--%s): %s", s[:2], long, owned[long])
	case keyed[long] != "" && !strings.HasPrefix(s, "--"):
		v.Failf("", "must not set %s (--%s): use %s", s[:2], long, keyed[long])
	case long != "" && !strings.HasPrefix(s, "--"):
		v.Failf("", "is a short option, found %q: write the long one, --%s", s, long)
	case strings.HasPrefix(s, "-"):
		v.Failf("", "must have the form --option or --option=value, found %q", s)
	default:
		v.Failf("", "must begin with --, found %q", s)
	}
}

func firstTwo(s string) string {
	if len(s) < 2 {
		return s
	}
	return s[:2]
}
