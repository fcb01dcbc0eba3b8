//go:build faults

package faults

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"testing"
	"time"
)

// fault is one thing that breaks, at a time from the beginning of a schedule.
type fault struct {
	at   time.Duration
	name string
	host string        // where, for those that have a place
	last time.Duration // how long, for those that are undone
	pick int           // which of the processes or jobs there, whose number is not known beforehand
}

func (f fault) String() string {
	s := fmt.Sprintf("%7.1fs  %s", f.at.Seconds(), f.name)
	if f.host != "" {
		s += " on " + f.host
	}
	if f.last > 0 {
		s += fmt.Sprintf(" for %.1fs", f.last.Seconds())
	}
	return s
}

// kind is what can break.
type kind struct {
	weight int
	hosts  []string
	most   int // seconds that it may last, 0 is a moment
	do     func(f fault) answer
	undo   func(f fault) answer
}

// process makes a fault of a signal to one process of those that match: of
// alice's, or of Slurm's that serve hers.
func process(signal, pattern string) func(f fault) answer {
	return func(f fault) answer {
		return on(f.host, "root", fmt.Sprintf(`p=($(pgrep -f '%s')); [ ${#p[@]} -gt 0 ] || exit 3; kill -%s ${p[$((%d %% ${#p[@]}))]}`, pattern, signal, f.pick))
	}
}

func root(text string) func(f fault) answer {
	return func(f fault) answer { return on(f.host, "root", text) }
}

// job makes a fault of a command about one of alice's Slurm jobs. Of reapers
// none: whoever takes one away has to look at the job.
func job(states, command string) func(f fault) answer {
	return func(f fault) answer {
		return on("login", "alice", fmt.Sprintf(`j=($(timeout 10 squeue -h --me -t %s -o '%%i %%j' | awk '$2 !~ /^berth-reap-/ {print $1}')); [ ${#j[@]} -gt 0 ] || exit 3; timeout 20 %s ${j[$((%d %% ${#j[@]}))]}`, states, command, f.pick))
	}
}

func onHost(verb string) func(f fault) answer {
	return func(f fault) answer {
		if out, err := exec.Command("docker", verb, container(f.host)).CombinedOutput(); err != nil {
			return answer{err: string(out), code: 1}
		}
		return answer{}
	}
}

// names are the kinds in a fixed order: a schedule follows from its seed alone.
var names = []string{
	"kill slurmctld", "stop slurmctld", "kill slurmd", "stop slurmd", "kill slurmstepd", "kill munged", "kill slurmdbd",
	"cut node off", "freeze node", "kill runner", "stop runner", "kill guest", "kill container's init", "kill FUSE helper",
	"kill client", "requeue", "scancel", "fill state directory",
}

var kinds = map[string]kind{
	"kill slurmctld":        {3, []string{"ctl"}, 10, root("tb-slurmctld kill"), root("tb-slurmctld start")},
	"stop slurmctld":        {3, []string{"ctl"}, 20, root("pkill -STOP -x slurmctld"), root("pkill -CONT -x slurmctld")},
	"kill slurmd":           {3, nodes, 20, root("tb-slurmd kill"), root("tb-slurmd start")},
	"stop slurmd":           {2, nodes, 20, root("pkill -STOP -x slurmd"), root("pkill -CONT -x slurmd")},
	"kill slurmstepd":       {3, nodes, 0, process("KILL", "^slurmstepd: "), nil},
	"kill munged":           {2, []string{"c1", "c2", "ctl", "login"}, 10, root("tb-munged kill"), root("tb-munged start")},
	"kill slurmdbd":         {2, []string{"ctl"}, 20, root("tb-slurmdbd kill"), root("tb-slurmdbd start")},
	"cut node off":          {3, nodes, 40, func(f fault) answer { return cut(f.host) }, func(f fault) answer { return join(f.host) }},
	"freeze node":           {3, nodes, 40, onHost("pause"), onHost("unpause")},
	"kill runner":           {4, nodes, 0, process("KILL", "berth-node[^ ]* runner --attempt"), nil},
	"stop runner":           {2, nodes, 40, process("STOP", "berth-node[^ ]* runner --attempt"), root("pkill -CONT -f 'berth-node[^ ]* runner --attempt'; true")},
	"kill guest":            {3, nodes, 0, process("KILL", "^/[^ ]*berth[^ ]* guest"), nil},
	"kill container's init": {2, nodes, 0, process("KILL", "^appinit"), nil},
	"kill FUSE helper":      {3, nodes, 0, process("KILL", "(fuse-overlayfs|fuse2fs|squashfuse_ll) "), nil},
	"kill client":           {5, []string{"login"}, 0, process("KILL", "^berth (submit|wait|status|cancel|follow)"), nil},
	"requeue":               {3, nil, 0, job("R", "scontrol requeue"), nil},
	"scancel":               {2, nil, 0, job("R,PD", "scancel"), nil},
	"fill state directory":  {2, []string{"login"}, 6, root("fallocate -l 10G /mnt/state/filler 2>/dev/null; dd if=/dev/zero of=/mnt/state/filler bs=1M 2>/dev/null; true"), root("rm -f /mnt/state/filler")},
}

// schedule is what breaks in so much time, from a seed.
func schedule(seed uint64, length time.Duration) []fault {
	r := rand.New(rand.NewPCG(seed, 1))
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	var out []fault
	for at := 5 * time.Second; ; {
		n := r.IntN(total)
		for _, name := range names {
			k := kinds[name]
			if n -= k.weight; n >= 0 {
				continue
			}
			f := fault{at: at, name: name, pick: r.IntN(1 << 20)}
			if len(k.hosts) > 0 {
				f.host = k.hosts[r.IntN(len(k.hosts))]
			}
			if k.most > 0 {
				f.last = time.Duration(1000+r.IntN(1000*(k.most-1))) * time.Millisecond
			}
			out = append(out, f)
			break
		}
		// Some come while others last.
		at += time.Duration(2000+r.IntN(10000)) * time.Millisecond
		if at > length {
			return out
		}
	}
}

// TestSchedule follows from its seed alone, so that what a schedule has shown can
// be shown again; a longer one goes on where a shorter one ends.
func TestSchedule(t *testing.T) {
	short, long := schedule(6, 3*time.Minute), schedule(6, 30*time.Minute)
	if again := schedule(6, 3*time.Minute); len(short) < 10 || !slices.Equal(short, again) || !slices.Equal(short, long[:len(short)]) {
		t.Errorf("%v\n%v\n%v", short, again, long)
	}
	if got := short[0].String(); got != "    5.0s  cut node off on c1 for 16.7s" {
		t.Errorf("the first of seed 6 was another one before: %s", got)
	}
	if other := schedule(7, 3*time.Minute); slices.Equal(short, other) {
		t.Errorf("the seed does not count: %v", other)
	}
}
