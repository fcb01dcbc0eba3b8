package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/engine"
	"berth/internal/remote/replica"
	"berth/jobs"
	"berth/jobs/store"

	"golang.org/x/sys/unix"
)

// jobJSON is a job in every --json output. Fields are only ever added.
type jobJSON struct {
	ID        string        `json:"id"`
	Short     string        `json:"short"`
	Name      string        `json:"name"`
	State     jobs.State    `json:"state"`
	Final     bool          `json:"final"`
	ExitCode  int           `json:"exit_code"` // what `berth wait` exits with; 8 while it goes on
	Exit      *jobs.Exit    `json:"exit,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	Hint      string        `json:"hint,omitempty"`
	Scheduler string        `json:"scheduler"`
	Login     string        `json:"login,omitempty"`     // the host on which the scheduler's commands run
	LoginDir  string        `json:"login_dir,omitempty"` // the attempt's directory there
	Target    string        `json:"target,omitempty"`
	Backend   string        `json:"backend"`
	Level     jobs.Level    `json:"level"`
	Network   *jobs.Network `json:"network,omitempty"` // where it is not open
	// NetworkUse is what was reached and refused; of a job that runs where it was asked for by its id.
	// RefusedLast are names that were refused shortly before a failure.
	NetworkUse  *jobs.NetworkUse  `json:"network_use,omitempty"`
	RefusedLast []string          `json:"refused_before_end,omitempty"`
	NativeID    string            `json:"native_id,omitempty"`
	Word        string            `json:"scheduler_state,omitempty"`  // the scheduler's own word
	WaitingFor  string            `json:"waiting_for,omitempty"`      // of a job that runs: who has what it needs
	Waiting     string            `json:"scheduler_reason,omitempty"` // why it waits
	After       []jobs.After      `json:"after,omitempty"`            // jobs that must end before it begins
	WaitsFor    string            `json:"waits_for,omitempty"`        // those of them that have not
	Plain       string            `json:"scheduler_plain,omitempty"`  // the same in plain words, after "it "
	Node        string            `json:"node,omitempty"`
	Created     time.Time         `json:"created"`
	Claimed     *time.Time        `json:"claimed,omitempty"`
	Started     *time.Time        `json:"started,omitempty"`
	Ended       *time.Time        `json:"ended,omitempty"`
	AsOf        time.Time         `json:"as_of"`
	AskError    string            `json:"ask_error,omitempty"`
	Cancel      bool              `json:"cancel_requested,omitempty"`
	CancelBy    string            `json:"cancelled_by,omitempty"` // whoever asked for its end, when that is known
	Attempt     int               `json:"attempt"`
	Dir         string            `json:"dir"`
	Branch      string            `json:"branch,omitempty"`
	BranchHere  bool              `json:"branch_taken,omitempty"`
	Result      *jobs.Result      `json:"result,omitempty"`
	Done        []jobs.DoneResult `json:"done,omitempty"`
	Checked     string            `json:"checked_over,omitempty"` // what the done commands run over that the task could prepare
	Labels      []string          `json:"labels,omitempty"`
	Progress    *jobs.Progress    `json:"progress,omitempty"` // what the task tells of itself; of a job that was asked for by its id
	TaskFile    string            `json:"task_file,omitempty"`
	RetryOf     string            `json:"retry_of,omitempty"` // the id of another job of the same task
	Parent      string            `json:"parent,omitempty"`   // the id of the job whose task has submitted it
	Number      int               `json:"number,omitempty"`   // by which that task names it
	Image       string            `json:"image,omitempty"`    // of a job with a parent: as it was asked for
	Ports       []int             `json:"ports,omitempty"`    // while it runs
	Artifacts   []string          `json:"artifacts,omitempty"`
	// ArtifactBytes is the size of the artifacts together, LeftOut what was not
	// copied back, and Kept where it still is.
	ArtifactFiles int              `json:"artifact_files,omitempty"`
	ArtifactBytes jobs.Bytes       `json:"artifact_bytes,omitempty"`
	LeftOut       []jobs.Omission  `json:"left_out,omitempty"`
	Kept          *jobs.KeptTree   `json:"kept,omitempty"`
	NotHere       []string         `json:"not_here,omitempty"` // what stays on the login host, and how to fetch it
	Overlay       *jobs.OverlayUse `json:"overlay,omitempty"`
	KeptPlace     *jobs.KeptPlace  `json:"kept_place,omitempty"` // as what its place is kept; nil is that it is not
	Keep          string           `json:"keep,omitempty"`       // whether it is to be
	// Destroyed is what was found after its place had been destroyed.
	Destroyed *jobs.Destroyed `json:"destroyed,omitempty"`
	OOMKills  int             `json:"oom_kills,omitempty"`
	MaxRSS    jobs.Bytes      `json:"max_rss_bytes,omitempty"`
	Peak      jobs.Bytes      `json:"memory_peak_bytes,omitempty"`
	Usage     *jobs.Usage     `json:"usage,omitempty"` // of models
	Agent     *jobs.AgentUse  `json:"agent,omitempty"` // by its own events
	Spent     *jobs.Spent     `json:"spent,omitempty"` // by all attempts; left out where it is next to nothing
	Notes     []string        `json:"notes,omitempty"`
	// Unfollowed says what could not be submitted: the job may need an action of
	// the user to go on.
	Unfollowed *jobs.Unfollowed `json:"unfollowed,omitempty"`
}

// containment is the level, and a network that is not open.
func (j *jobJSON) containment() string {
	if j.Network != nil {
		return string(j.Level) + ", network " + j.Network.Mode
	}
	return string(j.Level)
}

func viewJSON(v engine.View) jobJSON {
	j := jobJSON{
		ID:        v.Spec.ID,
		Short:     jobs.Short(v.Spec.ID),
		Name:      v.Spec.Name,
		State:     v.State,
		Final:     v.State.Final(),
		ExitCode:  jobs.CodeOfRecord(v.Record),
		Scheduler: v.Spec.Scheduler,
		Backend:   v.Spec.Backend,
		Keep:      v.Spec.Overlay.Keep,
		Level:     v.Spec.Level,
		Created:   v.Spec.Created,
		Labels:    v.Spec.Labels,
		TaskFile:  v.Spec.TaskFile,
		Progress:  v.Progress,
		RetryOf:   v.Spec.RetryOf,
		Parent:    v.Spec.Parent,
		Number:    v.Spec.Number,
		AsOf:      v.AsOf.UTC(),
		Cancel:    v.Cancel != nil,
		Dir:       v.Dir,
		Notes:     append([]string{}, v.Spec.Notes...),
		Word:      v.Status.NativeState,
		Waiting:   v.Status.Reason,
		Plain:     v.Status.Explanation,
		CancelBy:  v.Status.By,
		Node:      v.Status.Node,
	}
	if n := v.Spec.Reaches(); !n.Open() {
		j.Network = &n
	}
	if j.Parent != "" {
		j.Image = cmp.Or(v.Spec.ImageRef, v.Spec.Image)
	}
	if !j.Final {
		j.Hint = v.Status.Hint
	}
	if v.AskError != nil {
		j.AskError = v.AskError.Error()
	}
	if v.Note != "" {
		j.Notes = append(j.Notes, v.Note)
	}
	j.Notes = append(j.Notes, v.Notices...)
	if c := v.Cancel; c != nil && (c.By != "" || c.Host != "") {
		j.CancelBy = strings.TrimSuffix(c.By+" on "+c.Host, " on ")
	}
	j.Target, j.After = v.Spec.Target, v.Spec.After
	if !j.Final {
		j.WaitsFor = v.Waits.String()
	}
	j.Checked = v.Spec.CheckedOver()
	a := v.Current()
	if a == nil {
		return j
	}
	j.Attempt, j.Dir, j.Unfollowed = a.N, a.Dir, v.Stuck()
	if j.State == jobs.StateRunning {
		j.WaitingFor, j.Ports = cmp.Or(waitsFor(a.Dir), relayWanted(v.Record)), v.Spec.Ports
	}
	if l := v.Spec.Login; l != nil {
		j.Login = l.Host
		if st, err := store.At(v.Spec.LoginHome); err == nil {
			j.LoginDir = store.AttemptDir(st.JobDir(v.Spec.ID), a.N)
		}
	}
	j.NotHere = replica.NotHere(v.Record)
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
	if text := engine.KeptBeside(v.Spec, a); text != "" {
		j.Notes = append(j.Notes, text)
	}
	if k, text := engine.KeptOfKilled(v.Record, a); text != "" {
		j.KeptPlace, j.Notes = k, append(j.Notes, text)
	}
	// What the scheduler said beside our own record, when it was asked.
	if d := a.Decision; d != nil && d.Word != "" {
		j.Word = d.Word
	}
	if by := said(a); j.CancelBy == "" {
		j.CancelBy = by
	}
	if x := a.Exit; x != nil {
		j.Exit, j.Reason, j.Hint, j.Ended, j.Node = &x.Exit, x.Reason, x.Hint, &x.Ended, x.Node
		if !x.Started.IsZero() {
			j.Started = &x.Started
		}
		j.Overlay, j.Usage, j.Agent, j.Destroyed, j.KeptPlace = x.Overlay, x.Usage, x.Agent, x.Destroyed, x.KeptPlace
		j.Done, j.Artifacts, j.OOMKills, j.MaxRSS = x.Done, x.Artifacts, x.OOMKills, x.MaxRSS
		j.Peak, j.ArtifactFiles, j.ArtifactBytes, j.LeftOut, j.Kept = x.Peak, x.ArtifactFiles, x.ArtifactBytes, x.LeftOut, x.Kept
		j.Notes = append(j.Notes, x.Notes...)
	}
	if j.NetworkUse = v.NetworkUse; a.Exit != nil && a.Exit.NetworkUse != nil {
		j.NetworkUse = engine.NetworkUse(v.Record)
	}
	if s := spentOf(v); s.Worth() {
		j.Spent = &s
	}
	if u := j.NetworkUse; u != nil && j.Usage == nil {
		j.Usage, u.Models = u.Models, nil
	}
	for _, n := range j.refusedLast() {
		j.RefusedLast = append(j.RefusedLast, n.Host())
	}
	if j.Result = a.Result(); j.Result != nil && j.Result.Changed() {
		j.Branch, j.BranchHere = j.Result.Branch, v.BranchHere()
	}
	return j
}

// changesText is how much a result changes, of all workspaces together.
func changesText(r *jobs.Result) string {
	files, more, less := 0, 0, 0
	for _, w := range r.All() {
		files, more, less = files+w.Files, more+w.Insertions, less+w.Deletions
	}
	return jobs.Plural(files, "file") + ", " + sign(more, less)
}

// said returns who cancelled an attempt in the scheduler, as the scheduler reports it.
func said(a *jobs.Attempt) string {
	switch {
	case a.Verdict != nil && a.Verdict.By != "":
		return a.Verdict.By
	case a.Decision != nil:
		return a.Decision.WordBy
	}
	return ""
}

// waitsFor returns what an attempt waits for, by its last event; "" is nothing.
func waitsFor(dir string) string { return waitingFor(store.LastEvent(dir)) }

func waitingFor(e store.Event) string {
	if e.Event == store.EventWaiting {
		return strings.TrimPrefix(e.Text, "for ")
	}
	return ""
}

// preparing returns what an attempt's place is made ready with and how far that is, by its last
// event, where it is for more than a second; "" is nothing.
func preparing(e store.Event, now time.Time) string {
	switch {
	case now.Sub(e.Time) < gaugeAfter:
	case e.Event == store.EventPreparing:
		return e.Text
	case e.Event == store.EventCloning:
		return "cloning " + e.Text
	}
	return ""
}

// tellWaiting prints what a job waits for, and on a terminal how far its place is, until stop is
// called.
func (a *app) tellWaiting(ctx context.Context, dir string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for last := ""; ; {
			e := store.LastEvent(dir)
			now := waitingFor(e)
			if now != "" && now != last {
				a.say("waiting for %s", now)
			}
			last = now
			if a.errTTY && !a.raw.Load() {
				if text := preparing(e, a.now()); text != "" {
					a.overwrite(a.fitting(jobs.Printable(text)))
				} else {
					a.unpass()
				}
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
	}()
	return func() { cancel(); <-done }
}

// stateText is the state with what a person wants beside it.
func stateText(j jobJSON) string {
	s := string(j.State)
	switch {
	case j.WaitsFor != "" && !j.Cancel:
		s += " (waits for " + j.WaitsFor + ")"
	case j.State == jobs.StatePending && j.Waiting != "" && j.Waiting != "None":
		s += " (" + j.Waiting + ")"
	case j.WaitingFor != "" && !j.Cancel:
		what, _, _ := strings.Cut(j.WaitingFor, ",")
		s += " (waiting for " + what + ")"
	case j.Cancel && !j.Final:
		s += " (cancelling)"
	case j.State == jobs.StateFailed && j.ExitCode == jobs.CodeCap:
		s += " (cap met)" // its signal was berth's own
	case j.State == jobs.StateFailed && j.Exit != nil:
		// Of a task that failed in a done command, the command itself did not.
		if how := exitText(*j.Exit); how != "" {
			s += " (" + how + ")"
		}
	}
	if j.Unfollowed != nil {
		s += " (NOT FOLLOWED: see berth status " + j.Short + ")"
	}
	return s
}

// successText are the codes of a success that is to be looked at, in few words.
var successText = map[int]string{jobs.CodeNoChanges: "no changes", jobs.CodeOutOfScope: "out of scope", jobs.CodePartial: "incomplete"}

// shownState is stateText, and of a success what is special about it.
func shownState(j jobJSON) string {
	if what := successText[j.ExitCode]; what != "" && j.State == jobs.StateCompleted {
		return stateText(j) + " (" + what + ")"
	}
	return stateText(j)
}

// exitText tells a death by a signal from an exit code, in few words; "" is that
// the command succeeded.
func exitText(e jobs.Exit) string {
	switch {
	case !e.Started:
		return "did not start"
	case e.Signal != 0:
		return "signal " + signalText(e.Signal)
	case e.Code != 0:
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return ""
}

// signalText is the number with the name, such as "9 KILL".
func signalText(n int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", n, strings.TrimPrefix(unix.SignalName(syscall.Signal(n)), "SIG")))
}

// overlayText says what an attempt did with its overlay.
func overlayText(o *jobs.OverlayUse) string {
	s := o.Name + " (" + o.Driver + "), "
	switch {
	case o.Way != jobs.WaySnapshot:
		s += "changed in place"
	case o.Promoted:
		s += "changed by a snapshot of it"
	default:
		s += "left as it was: it was worked on in a snapshot"
	}
	if o.Why != "" {
		s += ": " + o.Why
	}
	return s
}

// shownArtifacts bounds the artifacts that are named to people.
const shownArtifacts = 10

// detail lists what is worth saying about one job, as label and value.
func (a *app) detail(j jobJSON) [][2]string {
	out := append([][2]string{{"job", j.ID}, {"name", j.Name}, {"state", shownState(j)}}, j.refusedRows()...)
	add := func(label, value string) {
		if value != "" {
			out = append(out, [2]string{label, value})
		}
	}
	add("labels", strings.Join(j.Labels, ", "))
	if j.Parent != "" {
		add("submitted by", fmt.Sprintf("the task of job %s, as its number %d", jobs.Short(j.Parent), j.Number))
		add("image", j.Image)
	}
	if j.RetryOf != "" {
		add("retry of", jobs.Short(j.RetryOf))
	}
	if p := j.Progress; p != nil {
		if p.Text != "" {
			add("progress", p.Text+" ("+a.when(p.Time)+")")
		}
		var all []string
		for _, name := range slices.Sorted(maps.Keys(p.Metrics)) {
			all = append(all, name+"="+strconv.FormatFloat(p.Metrics[name], 'g', -1, 64))
		}
		add("metrics", strings.Join(all, ", "))
	}
	add("waits for", j.WaitsFor)
	add("waiting for", j.WaitingFor)
	add("reason", j.Reason)
	if j.Waiting != "" && !j.Final && j.Plain != "" {
		add("that is", "it "+j.Plain)
	}
	add("hint", j.Hint)
	if u := j.Unfollowed; u != nil {
		add("not followed", u.Reason+", "+a.when(u.Time))
		add("what to do", u.Hint)
	}
	add("cancelled by", j.CancelBy)
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
	if j.Login != "" {
		where += " on " + j.Login
	}
	add("scheduler", where)
	add("backend", j.Backend+" (containment: "+j.containment()+")")
	add("network", j.networkRow())
	add("node", j.Node)
	if len(j.Ports) > 0 {
		add("services", forwardLine(j.Short, j.Ports))
	}
	add("submitted", a.when(j.Created))
	if j.Started != nil {
		add("started", a.when(*j.Started))
	}
	if j.Ended != nil {
		add("ended", a.when(*j.Ended))
	}
	if r := j.Result; r != nil {
		for _, w := range r.All() {
			dir := jobs.ResultDir(j.Dir, w.Workspace)
			if w.Workspace != "" {
				add("workspace", w.Workspace)
			}
			if w.Commit != "" {
				b := w.Branch
				if !j.BranchHere {
					b += " (not in the repository yet; kept in " + filepath.Join(dir, "result.bundle") + ")"
				}
				add("branch", b)
				add("changes", jobs.Plural(w.Files, "file")+", "+sign(w.Insertions, w.Deletions))
				add("diff", filepath.Join(dir, "diff.patch"))
			} else if len(r.Further) > 0 {
				add("changes", "none")
			}
			for _, p := range w.OutOfScope {
				add("out of scope", p)
			}
			add("look at", strings.Join(w.LookAt, ", "))
			if w.Skipped > 0 {
				add("left out", jobs.Plural(w.Skipped, "path")+"; the reasons are in "+filepath.Join(dir, "manifest.json"))
			}
		}
	}
	for _, d := range j.Done {
		add("done", commandText(d.Command)+": "+d.Exit.String())
	}
	if j.Checked != "" {
		add("done", "checked over "+j.Checked)
	}
	for i, p := range j.Artifacts {
		if i == shownArtifacts && len(j.Artifacts) > shownArtifacts+1 {
			all := jobs.Plural(max(len(j.Artifacts), j.ArtifactFiles), "file")
			if j.ArtifactBytes > 0 {
				all += ", " + j.ArtifactBytes.Rough()
			}
			add("artifacts", fmt.Sprintf("%s in all, in %s", all, filepath.Join(j.Dir, "artifacts")))
			break
		}
		add("artifact", filepath.Join(j.Dir, "artifacts", p))
	}
	if o := j.Overlay; o != nil && o.Name != "" {
		add("overlay", overlayText(o))
	}
	a.destroyedRows(j.Destroyed, add)
	if can := jobs.CapabilitiesOf(j.Backend); j.Destroyed != nil && j.KeptPlace == nil &&
		(can.Layers || can.Here() && !jobs.IsCluster(j.Scheduler)) && (j.Overlay == nil || j.Overlay.Name == "") {
		what := "it was not to be kept"
		if j.Keep == jobs.KeepAlways || j.Keep == jobs.KeepFailed && j.State != jobs.StateCompleted && j.State != jobs.StateCancelled {
			what = "it was to be kept, and was not"
		}
		add("inspect", what+": berth retry "+j.Short+" --keep runs it again, and keeps what it leaves")
	}
	if j.MaxRSS > 0 {
		add("peak memory", jobs.Bytes(j.MaxRSS.MiB()*int64(jobs.MiB)).String())
	}
	if j.Agent != nil {
		add("agent", j.Agent.String())
		add("agent version", jobs.Printable(j.Agent.Version))
		add("agent session", j.Agent.Sessions())
	}
	if j.Usage != nil {
		add("models", j.Usage.String())
	}
	if j.Spent != nil {
		add("spent", j.Spent.String())
	}
	for _, n := range j.Notes {
		add("note", n)
	}
	for _, n := range j.NotHere {
		add("not here", n)
	}
	// What the scheduler said to another process a moment ago is taken for now.
	if old := j.Word != "" && !j.Final && a.now().Sub(j.AsOf) >= 2*time.Second; old || j.AskError != "" {
		add("as of", a.when(j.AsOf))
	}
	add("files", j.Dir)
	add("files there", j.LoginDir)
	return out
}

// sign is how many lines a branch adds and removes.
func sign(ins, del int) string { return fmt.Sprintf("+%d -%d lines", ins, del) }
