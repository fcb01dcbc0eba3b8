package docker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"berth/jobs"
)

// can is what a daemon can hold, as it says itself. What it cannot hold it
// drops with a warning at most.
type can struct {
	memory, swap, cpus, pids bool
	disk                     bool // may take --storage-opt size=; whether it does is seen when it makes a container
	rootless                 bool // root inside is the user
	remapped                 bool // root inside is no user outside: a daemon with userns-remap
	podman                   bool
	why                      string // for a limit that is missing
}

// probe asks the daemon.
func (p *program) probe(ctx context.Context) (can, error) {
	out, err := p.ask(ctx, askLimit, "info", "--format", "{{json .}}")
	if err != nil {
		return can{}, err
	}
	c, err := parseInfo(out)
	if err != nil {
		return can{}, &jobs.Error{Kind: jobs.KindInfra, Msg: p.path + " info cannot be understood", Err: err, Hint: "try: " + p.path + " info"}
	}
	return c, nil
}

// parseInfo reads what "docker info" or "podman info" has said.
func parseInfo(out string) (can, error) {
	var i struct {
		MemoryLimit, SwapLimit, PidsLimit   bool
		CPUQuota                            bool `json:"CpuCfsQuota"`
		Driver, CgroupDriver, CgroupVersion string
		DriverStatus                        [][2]string
		SecurityOptions, ServerErrors       []string
		Host                                *podmanHost
		Store                               podmanStore
	}
	if err := json.Unmarshal([]byte(out), &i); err != nil {
		return can{}, err
	}
	if i.Host != nil {
		return i.Host.can(i.Store), nil
	}
	if len(i.ServerErrors) > 0 {
		return can{}, fmt.Errorf("%.300q", strings.Join(i.ServerErrors, "; "))
	}
	c := can{
		memory: i.MemoryLimit,
		swap:   i.SwapLimit,
		cpus:   i.CPUQuota,
		pids:   i.PidsLimit,
		why:    "cgroup driver " + i.CgroupDriver + ", cgroup version " + i.CgroupVersion,
	}
	if i.CgroupDriver == "none" { // a rootless daemon to which systemd has delegated nothing
		c.memory, c.swap, c.cpus, c.pids = false, false, false, false
	}
	option := func(name string) bool {
		return slices.ContainsFunc(i.SecurityOptions, func(o string) bool { o, _, _ = strings.Cut(o, ","); return o == "name="+name })
	}
	c.rootless, c.remapped = option("rootless"), option("userns")
	c.disk = holdsSize(i.Driver, i.DriverStatus)
	return c, nil
}

// holdsSize tells whether a storage driver may bound a container's files: of
// overlay2 only that over xfs, mounted with pquota, does.
func holdsSize(driver string, status [][2]string) bool {
	switch driver {
	case "btrfs", "zfs":
		return true
	case "overlay2", "overlay":
		return slices.Contains(status, [2]string{"Backing Filesystem", "xfs"})
	}
	return false
}

// limit is one bound on a container.
type limit struct {
	name      string // as the key is called
	value     string
	flags     []string
	held      bool
	defaulted bool
	why       string // it is not held
}

// limits are what the spec asks for.
func limits(s *jobs.EnvSpec, d jobs.DockerSpec, c can) []limit {
	pids := d.Pids
	if pids == 0 {
		pids = DefaultPids
	}
	out := []limit{{
		name:      "pids",
		value:     strconv.Itoa(pids),
		flags:     []string{"--pids-limit", strconv.Itoa(pids)},
		held:      c.pids,
		defaulted: pids == DefaultPids,
		why:       c.why,
	}}
	r := s.Resources
	if r.CPUs != 0 {
		out = append(out, limit{name: "cpus", value: strconv.Itoa(r.CPUs), flags: cpuFlags(r.CPUs), held: c.cpus, why: c.why})
	}
	if r.Memory != 0 {
		out = append(out, limit{name: "memory", value: r.Memory.String(), flags: memoryFlags(r.Memory, c.swap), held: c.memory, why: c.why})
		if c.memory && !c.swap {
			out = append(out, limit{name: "swap", value: "none", defaulted: true,
				why: "this daemon cannot bound swap, which a task may use beyond its memory"})
		}
	}
	if r.Disk != 0 {
		out = append(out, limit{
			name:  "disk",
			value: r.Disk.String(),
			flags: []string{"--storage-opt", "size=" + strconv.FormatInt(int64(r.Disk), 10)},
			held:  c.disk,
			why:   noSize,
		})
	}
	for i := range out {
		out[i].defaulted = out[i].defaulted || slices.Contains(s.Defaulted, out[i].name)
	}
	return out
}

const noSize = "the storage driver of this daemon cannot: it takes overlay2 on xfs mounted with pquota, btrfs or zfs"

// settle returns the flags of the limits that are held, and a note for each
// that is dropped. A limit that was asked for is not dropped; with strict
// none is.
func settle(all []limit, strict bool) (flags, notes []string, err error) {
	for _, l := range all {
		switch {
		case l.held:
			flags = append(flags, l.flags...)
		case strict || !l.defaulted:
			return nil, nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the limit " + l.name + " " + l.value + " cannot be held here: " + l.why,
				Hint: unlimited(l, strict)}
		default:
			notes = append(notes, "the limit "+l.name+" "+l.value+" is not held: "+l.why)
		}
	}
	return flags, notes, nil
}

func unlimited(l limit, strict bool) string {
	if strict && l.defaulted {
		return "do without strict limits; or see docs.docker.com/engine/security/rootless for limits of rootless daemons"
	}
	return "leave " + l.name + " out"
}
