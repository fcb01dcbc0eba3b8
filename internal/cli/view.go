package cli

import (
	"path/filepath"
	"time"

	"berth/engine"
	"berth/jobs"
)

// jobJSON is a job in every --json output. Fields are only ever added.
type jobJSON struct {
	ID         string            `json:"id"`
	Short      string            `json:"short"`
	Name       string            `json:"name"`
	State      jobs.State        `json:"state"`
	Final      bool              `json:"final"`
	ExitCode   int               `json:"exit_code"` // what `berth wait` exits with; 8 while it goes on
	Exit       *jobs.Exit        `json:"exit,omitempty"`
	Reason     string            `json:"reason,omitempty"`
	Hint       string            `json:"hint,omitempty"`
	Scheduler  string            `json:"scheduler"`
	Backend    string            `json:"backend"`
	Level      jobs.Level        `json:"level"`
	NativeID   string            `json:"native_id,omitempty"`
	Word       string            `json:"scheduler_state,omitempty"`  // the scheduler's own word
	Waiting    string            `json:"scheduler_reason,omitempty"` // why it waits
	Node       string            `json:"node,omitempty"`
	Created    time.Time         `json:"created"`
	Claimed    *time.Time        `json:"claimed,omitempty"`
	Started    *time.Time        `json:"started,omitempty"`
	Ended      *time.Time        `json:"ended,omitempty"`
	AsOf       time.Time         `json:"as_of"`
	AskError   string            `json:"ask_error,omitempty"`
	Cancel     bool              `json:"cancel_requested,omitempty"`
	Attempt    int               `json:"attempt"`
	Dir        string            `json:"dir"`
	Branch     string            `json:"branch,omitempty"`
	BranchHere bool              `json:"branch_taken,omitempty"`
	Result     *jobs.Result      `json:"result,omitempty"`
	Done       []jobs.DoneResult `json:"done,omitempty"`
	Artifacts  []string          `json:"artifacts,omitempty"`
	OOMKills   int               `json:"oom_kills,omitempty"`
	MaxRSS     jobs.Bytes        `json:"max_rss_bytes,omitempty"`
	Notes      []string          `json:"notes,omitempty"`
}

func viewJSON(v engine.View) jobJSON {
	j := jobJSON{ID: v.Spec.ID, Short: jobs.Short(v.Spec.ID), Name: v.Spec.Name, State: v.State, Final: v.State.Final(), ExitCode: jobs.CodeOfRecord(v.Record),
		Scheduler: v.Spec.Scheduler, Backend: v.Spec.Backend, Level: v.Spec.Level, Created: v.Spec.Created, AsOf: v.AsOf.UTC(), Cancel: v.Cancel != nil,
		Dir: v.Dir, Notes: append([]string{}, v.Spec.Notes...), Word: v.Status.Word, Waiting: v.Status.Reason, Node: v.Status.Node}
	if !j.Final {
		j.Hint = v.Status.Hint
	}
	if v.AskError != nil {
		j.AskError = v.AskError.Error()
	}
	if v.Note != "" {
		j.Notes = append(j.Notes, v.Note)
	}
	a := v.Current()
	if a == nil {
		return j
	}
	j.Attempt, j.Dir = a.N, a.Dir
	if a.Submitted != nil {
		j.NativeID = a.Submitted.Handle.NativeID
	}
	if a.Claim != nil {
		j.Claimed, j.Node = &a.Claim.Time, a.Claim.Host
		if j.NativeID == "" { // the answer to its submission was lost
			j.NativeID = a.Claim.NativeID
		}
	}
	if d := a.Verdict; d != nil && a.Exit == nil {
		j.Reason, j.Hint, j.Word, j.Ended = d.Reason, d.Hint, d.Word, &d.Time
	}
	if x := a.Exit; x != nil {
		j.Exit, j.Reason, j.Hint, j.Ended, j.Node = &x.Exit, x.Reason, x.Hint, &x.Ended, x.Node
		if !x.Started.IsZero() {
			j.Started = &x.Started
		}
		j.Result, j.Done, j.Artifacts, j.OOMKills, j.MaxRSS = x.Result, x.Done, x.Artifacts, x.OOMKills, x.MaxRSS
		j.Notes = append(j.Notes, x.Notes...)
		if x.Result != nil && x.Result.Commit != "" {
			j.Branch, j.BranchHere = x.Result.Branch, x.Result.Taken || a.Taken != nil
		}
	}
	return j
}

// stateText is the state with what a person wants beside it.
func stateText(j jobJSON) string {
	s := string(j.State)
	switch {
	case j.State == jobs.StatePending && j.Waiting != "" && j.Waiting != "None":
		s += " (" + j.Waiting + ")"
	case j.Cancel && !j.Final:
		s += " (cancelling)"
	}
	return s
}

// detail lists what is worth saying about one job, as label and value.
func (a *app) detail(j jobJSON) [][2]string {
	out := [][2]string{{"job", j.ID}, {"name", j.Name}, {"state", stateText(j)}}
	add := func(label, value string) {
		if value != "" {
			out = append(out, [2]string{label, value})
		}
	}
	add("reason", j.Reason)
	add("hint", j.Hint)
	if j.Exit != nil && (j.Exit.Started || j.Exit.Error != "") {
		add("exit", j.Exit.String())
	}
	where := j.Scheduler
	if j.NativeID != "" {
		where += " " + j.NativeID
	}
	if j.Word != "" {
		where += " (" + j.Word + ")"
	}
	add("scheduler", where)
	add("backend", j.Backend+" (containment: "+string(j.Level)+")")
	add("node", j.Node)
	add("submitted", a.when(j.Created))
	if j.Started != nil {
		add("started", a.when(*j.Started))
	}
	if j.Ended != nil {
		add("ended", a.when(*j.Ended))
	}
	if r := j.Result; r != nil {
		if r.Commit != "" {
			b := j.Branch
			if !j.BranchHere {
				b += " (not in the repository yet; kept in " + filepath.Join(j.Dir, "result.bundle") + ")"
			}
			add("branch", b)
			add("changes", plural(r.Files, "file")+", "+sign(r.Insertions, r.Deletions))
			add("diff", filepath.Join(j.Dir, "diff.patch"))
		}
		for _, p := range r.OutOfScope {
			add("out of scope", p)
		}
		if r.Skipped > 0 {
			add("left out", plural(r.Skipped, "path")+"; the reasons are in "+filepath.Join(j.Dir, "manifest.json"))
		}
	}
	for _, d := range j.Done {
		add("done", commandText(d.Command)+": "+d.Exit.String())
	}
	for _, p := range j.Artifacts {
		add("artifact", filepath.Join(j.Dir, "artifacts", p))
	}
	if j.MaxRSS > 0 {
		add("peak memory", jobs.Bytes(j.MaxRSS.MiB()*int64(jobs.MiB)).String())
	}
	for _, n := range j.Notes {
		add("note", n)
	}
	if j.AskError != "" {
		add("as of", a.when(j.AsOf))
	}
	add("files", j.Dir)
	return out
}
