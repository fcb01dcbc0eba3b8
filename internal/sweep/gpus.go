package sweep

import (
	"slices"
	"strconv"
	"strings"

	"berth/jobs"
)

// DevicesOf are the GPUs that such variables name, by the variable; the last of an
// environment counts.
func DevicesOf(environ []string) map[string][]string {
	all := map[string][]string{}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		if !slices.Contains(jobs.Devices, name) {
			continue
		}
		delete(all, name)
		for _, d := range strings.Split(value, ",") {
			if d = strings.TrimSpace(d); d != "" && d != "-1" && !strings.EqualFold(d, "NoDevFiles") {
				all[name] = append(all[name], d)
			}
		}
	}
	return all
}

// GPUs is how many GPUs a worker has, as it was asked for, or as its environment names them;
// 0 is not known.
func GPUs(p *jobs.Place) (n int) {
	if p == nil {
		return 0
	}
	if asked := p.Resources.GPUs; asked != "" {
		n, _ = strconv.Atoi(asked[strings.LastIndexByte(asked, ':')+1:])
		return max(n, 0)
	}
	for _, d := range DevicesOf(p.Env) {
		n = max(n, len(d))
	}
	return n
}
