package examine

import (
	"strings"

	"berth/jobs/finding"
)

// IsModule tells whether a module's name is, or ends in, that of the
// program: apptainer/1.4, tools/apptainer/1.4, singularity-ce/4.1.
func IsModule(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "apptainer" || part == "singularity" || part == "singularity-ce" || part == "singularityce" {
			return true
		}
	}
	return false
}

// CompareModules orders by kind, apptainer last, then by version.
func CompareModules(a, b string) int {
	rank := func(s string) int {
		if strings.Contains(strings.ToLower(s), "apptainer") {
			return 1
		}
		return 0
	}
	if d := rank(a) - rank(b); d != 0 {
		return d
	}
	va, oka := finding.Numbers(a[strings.LastIndexByte(a, '/')+1:])
	vb, okb := finding.Numbers(b[strings.LastIndexByte(b, '/')+1:])
	switch {
	case oka && okb && finding.Less(va, vb), !oka && okb:
		return -1
	case oka && okb && finding.Less(vb, va), oka && !okb:
		return 1
	}
	return strings.Compare(a, b)
}
