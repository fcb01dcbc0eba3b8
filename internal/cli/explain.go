package cli

import (
	"slices"
	"time"

	"berth/engine"
	"berth/jobs"
	"berth/jobs/store"

	"github.com/spf13/cobra"
)

func (a *app) explainCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "explain ID",
		Long: `Say why a job is queued, or why it ended as it did, and what comes next: in one sentence,
and then in full:

- of a queued job: the scheduler's reason in plain words, when it is expected to
  start, and what would start it sooner. With Slurm, smaller requests are tried with
  sbatch --test-only, which submits nothing;
- of an ended job: how it is known that it ended, who cancelled it, and the
  scheduler's state where it differs from the job's own record, which counts;
- each attempt, with the decision about it and its reason;
- who acts on the job next, and when;
- what was chosen for it: the image and where it was run from on the node, the
  driver of its writable layer, its containment, what it may reach and who says so,
  and what enforced which limit.
  What is decided on the node is known once the command has begun.
` + exitHelp + `0 ok, 2 an ambiguous id, 3 no such job, 5 the ledger could not be read, 78 the
state directory is open to others.`,
		Example: `  berth explain 0a1b2c3d
  berth explain --json 0a1b2c3d`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs one job id", Hint: "berth ps --all lists the jobs"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, ids []string) error {
			views, err := a.views(cmd, ids, true)
			if err != nil {
				return err
			}
			e, err := a.engine()
			if err != nil {
				return err
			}
			x, err := explain(views[0], e.Explain(cmd.Context(), &views[0]))
			if err != nil {
				return err
			}
			if x.Receipt, err = receiptOf(views[0]); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"explain": x})
			}
			return a.rows(slices.Concat(a.explained(x), receiptRows(x.Receipt), networkUseRows(x.NetworkUse)))
		},
	}
	a.jsonFlag(c)
	return c
}

// explainJSON is what is known of the choices made for a job. Fields are only
// ever added.
type explainJSON struct {
	ID       string     `json:"id"`
	Short    string     `json:"short"`
	Name     string     `json:"name"`
	State    jobs.State `json:"state"`
	Summary  string     `json:"summary"` // one sentence for people
	Final    bool       `json:"final"`
	ExitCode int        `json:"exit_code"` // what `berth wait` exits with; 8 while it goes on
	Reason   string     `json:"reason,omitempty"`
	Hint     string     `json:"hint,omitempty"`
	WaitsFor string     `json:"waits_for,omitempty"` // jobs that must end before it begins, and have not
	Attempt  int        `json:"attempt"`
	// What the scheduler says of the current attempt now, with plain words and who
	// cancelled it. Differs: it calls its end otherwise than the job's own record,
	// which counts.
	Word     string `json:"scheduler_state,omitempty"`
	Waiting  string `json:"scheduler_reason,omitempty"`
	Plain    string `json:"scheduler_plain,omitempty"` // after "it "
	Differs  bool   `json:"scheduler_differs,omitempty"`
	AskError string `json:"ask_error,omitempty"` // why it could not be asked
	CancelBy string `json:"cancelled_by,omitempty"`
	// Expected is when a job that waits may start, as the scheduler plans now, and
	// Forecasts when it might in other ways; the first of them is as it is.
	Expected  *time.Time      `json:"expected_start,omitempty"`
	Forecasts []jobs.Forecast `json:"forecasts,omitempty"`
	// Evidence is of the end of the last attempt, when that has ended.
	Evidence []string `json:"evidence,omitempty"`
	// Next are those who act on it next, the likeliest first.
	Next []engine.Actor `json:"next"`
	// Unfollowed is what could not be submitted.
	Unfollowed *jobs.Unfollowed `json:"unfollowed,omitempty"`
	// Attempts are those that have ended, with what was decided of each.
	Attempts []explainAttempt `json:"attempts,omitempty"`
	// LookAt is what to look at before the branch is used.
	LookAt []string `json:"look_at,omitempty"`
	// LeftOut is what did not come back, Kept where it still is.
	LeftOut []jobs.Omission `json:"left_out,omitempty"`
	Kept    *jobs.KeptTree  `json:"kept,omitempty"`
	NotHere []string        `json:"not_here,omitempty"`
	Image   *explainImage   `json:"image,omitempty"`
	Overlay *explainOverlay `json:"overlay,omitempty"`
	// Network is what it reaches, with who says so; it is left out where that is all.
	Network jobs.Network `json:"network,omitzero"`
	// Receipt is how the attempt was contained; nil before its container opened.
	Receipt *jobs.Receipt `json:"receipt,omitempty"`
	// NetworkUse is what was reached and refused, and RefusedLast what was refused shortly before a
	// failure.
	NetworkUse  *jobs.NetworkUse `json:"network_use,omitempty"`
	RefusedLast []string         `json:"refused_before_end,omitempty"`
	network     string
	refused     [][2]string
}

// explainAttempt is an attempt that has ended, and what followed it.
type explainAttempt struct {
	Number int        `json:"number"`
	State  jobs.State `json:"state"`
	Node   string     `json:"node,omitempty"`
	Reason string     `json:"reason,omitempty"`
	// NativeID is the scheduler's id; Asked is what the attempt requested in place
	// of what the job requests.
	NativeID string      `json:"native_id,omitempty"`
	Asked    jobs.Change `json:"asked,omitzero"`
	Exit     *jobs.Exit  `json:"exit,omitempty"`
	OOMKills int         `json:"oom_kills,omitempty"`
	MaxRSS   jobs.Bytes  `json:"max_rss_bytes,omitempty"`
	Peak     jobs.Bytes  `json:"memory_peak_bytes,omitempty"`
	// Session is what became of an earlier session of its agent; "" is that there was none.
	Session string `json:"agent_session,omitempty"`
	// Decision is nil until what follows the attempt is decided.
	Decision *jobs.Decision `json:"decision,omitempty"`
}

func explainAttempts(r *jobs.Record) (out []explainAttempt) {
	for i := range r.Attempts {
		a := &r.Attempts[i]
		x := explainAttempt{Number: a.N, State: jobs.StateOfAttempt(a), Decision: a.Decision, Asked: a.Info.Change}
		if a.Submitted != nil {
			x.NativeID = a.Submitted.Handle.NativeID
		}
		switch {
		case a.Exit != nil:
			x.Reason, x.Node, x.Exit, x.OOMKills, x.MaxRSS, x.Peak =
				a.Exit.Reason, a.Exit.Node, &a.Exit.Exit, a.Exit.OOMKills, a.Exit.MaxRSS, a.Exit.Peak
			if u := a.Exit.Agent; u != nil {
				x.Session = u.Sessions()
			}
		case a.Verdict != nil:
			x.Reason = a.Verdict.Reason
		default:
			continue
		}
		out = append(out, x)
	}
	return out
}

// explainImage is the image of a job, as it was submitted and as it was run.
type explainImage struct {
	Path      string `json:"path"`
	Reference string `json:"reference,omitempty"`
	Digest    string `json:"digest,omitempty"` // of the registry's manifest
	Sum       string `json:"sha256,omitempty"` // of the file
	Stage     string `json:"stage"`            // as it was asked for
	// Used is nil before the command began.
	Used *jobs.ImageUse `json:"used,omitempty"`
}

// explainOverlay is its writable layer, likewise.
type explainOverlay struct {
	Name   string           `json:"name,omitempty"` // "" is thrown away
	Driver string           `json:"driver"`
	Why    string           `json:"why,omitempty"` // this driver
	Used   *jobs.OverlayUse `json:"used,omitempty"`
}

func explain(v engine.View, known engine.Explanation) (*explainJSON, error) {
	v.NetworkUse = engine.NetworkUse(v.Record)
	j := viewJSON(v)
	x := &explainJSON{ID: j.ID, Short: j.Short, Name: j.Name, State: j.State, Final: j.Final, ExitCode: j.ExitCode, Reason: j.Reason,
		Hint: j.Hint, Attempt: j.Attempt, Unfollowed: j.Unfollowed, Attempts: explainAttempts(v.Record)}
	x.Word, x.Waiting, x.Plain, x.Differs, x.CancelBy = known.Word.NativeState, known.Word.Reason, known.Word.Explanation, known.Differs, j.CancelBy
	x.NetworkUse, x.RefusedLast, x.network, x.refused = j.NetworkUse, j.RefusedLast, j.networkRow(), j.refusedRows()
	x.WaitsFor, x.LeftOut, x.Kept, x.NotHere = j.WaitsFor, j.LeftOut, j.Kept, j.NotHere
	if j.Result != nil {
		x.LookAt = j.Result.Suspicious()
	}
	x.Evidence, x.Forecasts, x.Next = known.Evidence, known.Forecasts, known.Next
	if x.Word == "" {
		x.Word = j.Word
	}
	if x.CancelBy == "" {
		x.CancelBy = known.Word.By
	}
	if !x.Final && x.Hint == "" {
		x.Hint = known.Word.Hint
	}
	if !known.Expected.IsZero() {
		x.Expected = &known.Expected
	}
	if known.Trouble != nil {
		x.AskError = known.Trouble.Error()
	}
	x.Summary = x.summary(j.Node)
	s := v.Spec
	x.Network = s.Reaches()
	if !s.Can().Layers {
		if s.Image != "" {
			x.Image = &explainImage{Path: s.Image, Reference: s.ImageRef, Digest: s.ImageDigest, Sum: s.ImageSum}
		}
		return x, nil
	}
	x.Image = &explainImage{Path: s.Image, Reference: s.ImageRef, Digest: s.ImageDigest, Sum: s.ImageSum, Stage: jobs.StageAuto}
	if s.Stage != "" {
		x.Image.Stage = s.Stage
	}
	x.Overlay = &explainOverlay{Name: s.Overlay.Name, Driver: s.Overlay.Driver, Why: s.Overlay.Why}
	a := v.Current()
	switch {
	case a == nil:
	case a.Exit != nil:
		x.Image.Used, x.Overlay.Used = a.Exit.Image, a.Exit.Overlay
	default:
		in, err := store.LoadInside(a.Dir)
		if err != nil {
			return nil, err
		}
		if in != nil {
			x.Image.Used = in.Image
		}
	}
	return x, nil
}
