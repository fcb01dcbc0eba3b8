package slurm

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/jobs"
	"berth/slurm/site"
)

// Files of a share with what changes rarely, and how long that counts.
const (
	partitionsFile = ".partitions"
	nodesFile      = ".nodes"
	qosFile        = ".qos"
	siteFor        = time.Hour
)

// Most finds the most that a job with these options can ask for: of memory what
// the largest node of its partitions has but for what that keeps for itself
// (MemSpecLimit), below MaxMemPerNode, and below
// MaxMemPerCPU times the node's CPUs (Slurm gives a job more CPUs when it asks
// for more memory than its own may have); of time MaxTime of the partitions, and
// MaxWall of the QOS. What several processes here ask for is asked once an hour.
func (s *Scheduler) Most(ctx context.Context, o jobs.SlurmOptions) (jobs.Most, error) {
	var m jobs.Most
	text, err := s.cachedQuery(ctx, partitionsFile, whole, "scontrol", "show", "partition", "-o")
	if err != nil {
		return m, err
	}
	wanted := strings.Split(o.Partition, ",")
	chosen := map[string]site.Partition{}
	for _, p := range site.Partitions(text) {
		if o.Partition == "" && p["Default"] == "YES" || slices.Contains(wanted, p["PartitionName"]) {
			chosen[p["PartitionName"]] = p
		}
	}
	if len(chosen) == 0 {
		return m, nil
	}
	if text, err = s.cachedQuery(ctx, nodesFile, nodeSizes, "scontrol", "show", "node", "-o"); err != nil {
		return m, err
	}
	for line := range strings.SplitSeq(text, "\n") {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 3 || chosen[f[0]] == nil {
			continue
		}
		memory, cpus := mebibytes(f[1]), mebibytes(f[2])/jobs.MiB
		why := "the largest node of partition " + f[0] + " has no more"
		if most := mebibytes(chosen[f[0]]["MaxMemPerNode"]); most > 0 && most < memory {
			memory, why = most, "MaxMemPerNode of partition "+f[0]
		}
		if most := mebibytes(chosen[f[0]]["MaxMemPerCPU"]) * cpus; most > 0 && most < memory {
			memory, why = most, "MaxMemPerCPU of partition "+f[0]
		}
		if memory > m.Memory {
			m.Memory, m.MemoryWhy = memory, why
		}
	}
	for name, p := range chosen {
		limit, ok := site.Limit(p["MaxTime"])
		if !ok { // of one of them there is none
			m.Time, m.TimeWhy = 0, ""
			break
		}
		if limit > m.Time {
			m.Time, m.TimeWhy = limit, "MaxTime of partition "+name
		}
	}
	return m, s.mostWall(ctx, o, chosen, &m)
}

// mostWall puts the limit of the QOS, of the job and of its partition, below
// that of the partition.
func (s *Scheduler) mostWall(ctx context.Context, o jobs.SlurmOptions, chosen map[string]site.Partition, m *jobs.Most) error {
	names := []string{o.QOS}
	if len(chosen) == 1 {
		for _, p := range chosen {
			if q := p["QoS"]; q != "N/A" {
				names = append(names, q)
			}
		}
	}
	names = slices.DeleteFunc(names, func(n string) bool { return n == "" })
	if len(names) == 0 {
		return nil
	}
	if on, err := s.accounting(ctx); err != nil || !on {
		return err
	}
	text, err := s.cachedQuery(ctx, qosFile, whole, "sacctmgr", "-nP", "show", "qos", "format=Name,MaxWall")
	if err != nil {
		return err
	}
	for line := range strings.SplitSeq(text, "\n") {
		name, wall, _ := strings.Cut(strings.TrimSpace(line), "|")
		limit, ok := site.Limit(wall)
		if ok && slices.Contains(names, name) && (m.Time == 0 || limit < m.Time) {
			m.Time, m.TimeWhy = limit, fmt.Sprintf("MaxWall of QOS %s", name)
		}
	}
	return nil
}

// namesFor is how old the names of partitions may be.
const namesFor = 7 * 24 * time.Hour

// Partitions returns the names that any process here was told in the last week. It asks
// nothing: whoever completes a word may do so all day, and has no time for an answer.
func (s *Scheduler) Partitions() (names []string) {
	for _, p := range site.Partitions(s.share().kept(partitionsFile, namesFor)) {
		names = append(names, p["PartitionName"])
	}
	return names
}

// cachedQuery is query for what stays as it is for long; what is kept of the answer is
// what of makes of it.
func (s *Scheduler) cachedQuery(ctx context.Context, file string, of func(string) string, argv ...string) (string, error) {
	if text := s.share().kept(file, siteFor); text != "" {
		return text, nil
	}
	text, err := s.query(ctx, argv...)
	if err != nil {
		return "", err
	}
	text = of(text)
	s.share().keep(file, text)
	return text, nil
}

func whole(text string) string { return text }

// nodeSizes makes lines "partition|MiB|CPUs" of what scontrol show node -o says
// of the nodes, each once: what a job can have of such a node, which is not what
// the node reserves for the system (MemSpecLimit, and the cores of CPUSpecList).
func nodeSizes(text string) string {
	seen := map[string]bool{}
	var out strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		node := map[string]string{}
		for _, w := range strings.Fields(line) {
			// Free text, such as the reason of a drained node, comes last.
			if name, value, ok := strings.Cut(w, "="); ok && node[name] == "" {
				node[name] = value
			}
		}
		memory := max(mebibytes(node["RealMemory"])-mebibytes(node["MemSpecLimit"]), 0)
		for p := range strings.SplitSeq(node["Partitions"], ",") {
			size := fmt.Sprintf("%s|%d|%s\n", p, memory/jobs.MiB, cmp.Or(node["CPUEfctv"], node["CPUTot"]))
			if p != "" && !seen[size] {
				seen[size] = true
				out.WriteString(size)
			}
		}
	}
	return out.String()
}

// mebibytes reads a number of MiB; 0 is none, or no limit.
func mebibytes(s string) jobs.Bytes {
	n, err := strconv.ParseInt(strings.TrimSuffix(s, "+"), 10, 40)
	if err != nil || n < 0 {
		return 0
	}
	return jobs.Bytes(n) * jobs.MiB
}
