package slurm

import (
	"strconv"
	"strings"
	"time"

	"berth/jobs"
)

// row is one job as squeue or sacct prints it.
type row struct {
	id     string
	name   string
	status jobs.Status
}

// queueFormat asks squeue for full-width fields with a separator. Only -O
// knows the exit code, and there a field without a width but with a suffix is
// not cut (tried with 22.05, 24.11 and 26.05). The reason is last because it
// alone is free text.
const queueFormat = "JobID:|,State:|,exit_code:|,StartTime:|,NodeList:|,Name:|,Reason:|"

// parseQueue reads squeue -h -O queueFormat. Lines of another form (a banner,
// "CLUSTER: name") are passed over.
func parseQueue(out string) []row {
	var rows []row
	for line := range strings.SplitSeq(out, "\n") {
		f := strings.SplitN(strings.TrimSuffix(strings.TrimRight(line, " \r"), "|"), "|", 7)
		if len(f) != 7 || !isID(f[0]) {
			continue
		}
		st := status(f[0], f[1], strings.TrimSpace(f[6]))
		st.Code, st.Signal = exitCode(f[2])
		st.Start = parseTime(f[3])
		st.Node = nodes(f[4])
		rows = append(rows, row{id: f[0], name: f[5], status: st})
	}
	return rows
}

// acctFormat is what sacct is asked for; the reason is last here too.
const acctFormat = "JobIDRaw,State,ExitCode,Start,NodeList,JobName,Reason"

// parseAcct reads sacct -X -P -n -o acctFormat. Of several lines for one id
// and name, as after a requeue, the last counts.
func parseAcct(out string) []row {
	var rows []row
	for line := range strings.SplitSeq(out, "\n") {
		f := strings.SplitN(strings.TrimRight(line, " \r"), "|", 7)
		if len(f) != 7 || !isID(f[0]) {
			continue
		}
		st := status(f[0], f[1], strings.TrimSpace(f[6]))
		st.Code, st.Signal = exitCode(f[2])
		st.Start = parseTime(f[3])
		st.Node = nodes(f[4])
		rows = append(rows, row{id: f[0], name: f[5], status: st})
	}
	return rows
}

func isID(s string) bool {
	return s != "" && len(s) <= 20 && strings.Trim(s, "0123456789") == ""
}

// exitCode reads "CODE:SIGNAL", or the plain status of wait(2) that squeue
// printed until 22.05.
func exitCode(s string) (code, signal int) {
	c, g, ok := strings.Cut(s, ":")
	if !ok {
		raw, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			return 0, 0
		}
		return int(raw >> 8), int(raw & 0x7f)
	}
	code, err1 := strconv.Atoi(c)
	signal, err2 := strconv.Atoi(g)
	if err1 != nil || err2 != nil || code < 0 || signal < 0 {
		return 0, 0
	}
	return code, signal
}

// parseTime reads Slurm's standard form, which has no zone; the queries run
// with TZ=UTC. "N/A", "Unknown" and "None" are no time.
func parseTime(s string) time.Time {
	t, err := time.Parse("2006-01-02T15:04:05", s)
	if err != nil {
		return time.Time{}
	}
	return t
}

func nodes(s string) string {
	if s == "None assigned" || s == "(null)" || s == "N/A" {
		return ""
	}
	return s
}
