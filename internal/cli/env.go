package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"berth/backends/external"
	"berth/engine"
	"berth/internal/config/keys"
	"berth/jobs"

	"github.com/spf13/cobra"
)

const envExit = exitHelp + `0 ok, 2 usage, 3 no such environment, 5 the environment or its machine failed.`

func (a *app) envCmd() *cobra.Command {
	return group("env",
		`An environment is the place that berth exec, shell, cp and bg work in: a container with a
name, files of its own, and a process that keeps it warm and ends when it has not been
used for a while. Its files stay until berth env rm. The first command in it makes it.`,
		`  berth env ls
  berth env show train
  berth env stop train          # its files stay
  berth env stop --all
  berth env rm train            # its files are removed
  berth env snapshot train good
  berth env restore train good  # its files are again as they were`, a.envLsCmd(),
		a.envShowCmd(), a.envStopCmd(), a.envRmCmd(), a.envSnapshotCmd(), a.envRestoreCmd(), a.envSnapshotsCmd(), a.envGcCmd())
}

// envJSON is an environment in every --json output. Fields are only ever added.
type envJSON struct {
	Spec    jobs.EnvSpec     `json:"environment"`
	Running bool             `json:"running"`
	State   *engine.EnvState `json:"state,omitempty"`
	// Allocation is that of an environment held in one.
	Allocation *jobs.Allocation `json:"allocation,omitempty"`
	Ended      string           `json:"ended,omitempty"` // how its last keeper ended
	Usage      *jobs.Usage      `json:"usage,omitempty"` // of models, since it was stopped last
	Error      string           `json:"error,omitempty"`
	// Sandbox is that of a backend that is a program.
	Sandbox *external.Made `json:"sandbox,omitempty"`
}

func shownJSON(s engine.Shown) envJSON {
	j := envJSON{Spec: s.Spec, State: s.State, Running: s.State != nil || s.Allocation != nil && s.Allocation.Open,
		Allocation: s.Allocation, Sandbox: sandbox(s.Spec), Usage: s.Usage}
	if s.Last != nil && s.State == nil {
		j.Ended = s.Last.Why
	}
	if s.Err != nil {
		j.Error = s.Err.Error()
	}
	return j
}

func (a *app) envLsCmd() *cobra.Command {
	var ask bool
	c := &cobra.Command{
		Use: "ls", Short: "list environments",
		Long: `List the environments. Those on another machine are asked only with --ask.
Columns: name, state, backend, containment, image or host, made.

States:
  new         recorded, never started
  warm        runs, and waits for a command
  in use      a command or a background process runs
  no relay    runs, and what it connects to waits for a relay:
              berth network relay start
  stopped     its files are there; the next command starts it
  open        its sandbox may run and cost money, and nothing supervises it:
              berth env stop
  not asked   it is on another machine; --ask asks there
  no answer   that machine was asked, and did not answer within 20 s
  unknown     it could not be asked: berth env show NAME says why
  queued      its allocation waits in the scheduler's queue
  held        it has an allocation, and was not asked what runs in it
` + envExit,
		Example: `  berth env ls
  berth env ls --ask`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := a.engine()
			if err != nil {
				return err
			}
			list, err := e.Environments()
			if len(list) > 0 && err != nil {
				a.say("warning: %v", err)
				err = nil
			}
			if err != nil {
				return err
			}
			out := make([]envJSON, len(list))
			rows := make([][]string, len(list))
			for i, s := range e.ShowAll(cmd.Context(), list, ask) {
				v := list[i]
				v.Close()
				out[i] = shownJSON(s)
				rows[i] = a.envRow(s, ask)
			}
			if a.json {
				return a.printJSON(map[string]any{"environments": out})
			}
			if len(rows) == 0 && a.tty {
				a.say("no environments; berth exec -- COMMAND makes one")
				return nil
			}
			return a.table(envHead, rows)
		},
	}
	c.Flags().BoolVar(&ask, "ask", false, "also ask other machines for the state")
	a.jsonFlag(c)
	a.watchFlag(c)
	return c
}

var envHead = []string{"NAME", "STATE", "BACKEND", "LEVEL", "PLACE", "MADE"}

// envRow is an environment below envHead.
func (a *app) envRow(s engine.Shown, asked bool) []string {
	p := s.Spec
	return []string{p.Name, a.envState(s, asked), p.Backend, string(p.Level), dash(envPlace(p)), a.when(p.Created)}
}

func envPlace(s jobs.EnvSpec) string {
	if s.SSH != nil {
		return s.SSH.Host
	}
	return s.Image
}

func (a *app) envState(s engine.Shown, asked bool) string {
	switch {
	case s.Silent:
		return "no answer"
	case s.Err != nil:
		return "unknown"
	case s.State != nil && !s.State.NoRelay.IsZero():
		return "no relay"
	case s.State != nil && s.State.Running+s.State.BG > 0:
		return "in use"
	case s.State != nil:
		return "warm"
	case s.Allocation != nil && !s.Allocation.Running:
		return "queued"
	case s.Allocation != nil:
		return "held"
	case (s.Spec.Can().NeedsHost || s.Spec.Login != nil) && !asked:
		return "not asked"
	case a.sandboxLeft(s):
		return "open"
	case s.Last == nil && !s.Spec.Can().NeedsHost && s.Spec.Login == nil:
		return "new"
	}
	return "stopped"
}

func (a *app) envShowCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "show NAME", Short: "show one environment in full",
		Long: `Show what an environment is and what runs in it: its settings, the process that keeps
it warm, its sessions, how it ended last. Nothing is started.
` + envExit,
		Example: `  berth env show train`,
		Args:    oneEnv,
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := a.existing(args[0])
			if err != nil {
				return err
			}
			defer v.Close()
			s := v.Show(cmd.Context(), true)
			if a.json {
				return a.printJSON(map[string]any{"shown": shownJSON(s)})
			}
			rows := a.envDetail(s)
			if !s.Spec.Reaches().Open() && s.Spec.Login == nil { // there it would take another connection
				if b, err := v.NetworkRecord(cmd.Context()); err == nil {
					rows = append(rows, envNetworkRows(s.Spec.Name, b)...)
				}
			}
			if err := a.rows(rows); err != nil {
				return err
			}
			return s.Err
		},
	}
	a.jsonFlag(c)
	return c
}

func (a *app) envDetail(s engine.Shown) [][2]string {
	p := s.Spec
	rows := [][2]string{{"name", p.Name}, {"id", p.ID}, {"state", a.envState(s, true)}, {"backend", p.Backend}, {"containment", string(p.Level)}}
	add := func(k, v string) {
		if v != "" {
			rows = append(rows, [2]string{k, v})
		}
	}
	add("place", envPlace(p))
	if p.Login != nil {
		add("login", p.Login.Host)
	}
	add("scheduler", p.Scheduler)
	if at := s.Allocation; at != nil {
		text := at.ID + " " + at.State
		if at.Node != "" {
			text += " on " + at.Node
		}
		if at.Reason != "" {
			text += " (" + at.Reason + ")"
		}
		add("allocation", text)
		if !at.Ends.IsZero() {
			add("its end", a.when(at.Ends))
		}
	}
	for _, r := range a.sandboxRows(s) {
		add(r[0], r[1])
	}
	for _, m := range p.Mounts {
		mode := "ro"
		if m.Writable {
			mode = "rw"
		}
		add("bind", m.Source+":"+m.Destination+":"+mode)
	}
	for _, v := range p.Env {
		add("variable", v)
	}
	if p.Resources.Memory != 0 {
		add("memory", p.Resources.Memory.String())
	}
	if p.Resources.CPUs != 0 {
		add("cpus", fmt.Sprint(p.Resources.CPUs))
	}
	for _, r := range networkRows(p.Reaches()) {
		add(r[0], r[1])
	}
	add("credentials", strings.Join(jobs.CredentialNames(p.Credentials), " "))
	for i := range keys.Fields {
		switch f := &keys.Fields[i]; {
		case f.Table() == "terminal" && f.Meaning != "":
			add(f.Key(), f.Shown(p.Place))
		case f.Table() == "caps" && f.Said(p.Place):
			add("cap", f.Key()+" "+f.Shown(p.Place))
		}
	}
	if p.Lifetime > 0 {
		add("lifetime", p.Lifetime.String())
	}
	if u := s.Usage; u != nil {
		add("models", u.String())
		if which, figures := p.Caps.Met(*u, false); which != "" {
			add("cap met", strings.TrimPrefix(figures, "cap "+which+" met: ")+": no more requests until berth env stop "+p.Name)
		}
	}
	add("made", a.when(p.Created)+" on "+p.Host)
	if st := s.State; st != nil {
		add("keeper", fmt.Sprintf("process %d on %s, since %s", st.PID, st.Host, a.when(st.Opened)))
		if since := st.NoRelay; !since.IsZero() {
			add("waits for", relaySince(since))
		}
		add("home inside", st.Guest.Home)
		add("commands", fmt.Sprint(st.Running))
		add("background", fmt.Sprint(st.BG))
		add("sessions", strings.Join(st.Sessions, " "))
		if st.Idle > 0 && st.Lifetime > 0 {
			add("ends in", (st.Lifetime - st.Idle).Round(time.Second).String())
		}
		for _, n := range st.Notes {
			add("note", n)
		}
	} else if s.Last != nil {
		add("ended", s.Last.Why)
		a.destroyedRows(s.Last.Destroyed, add)
	}
	if at := p.Expires(); !at.IsZero() {
		add("gone at", a.when(at))
	}
	for _, n := range p.Notes {
		add("note", n)
	}
	return rows
}

// destroyedRows says what was found after a place had been destroyed; nil is nothing to say.
func (a *app) destroyedRows(d *jobs.Destroyed, add func(k, v string)) {
	if d == nil {
		return
	}
	if len(d.Gone) > 0 {
		add("destroyed", "looked for and gone: "+strings.Join(d.Gone, ", "))
	}
	for _, what := range d.Left {
		add("not destroyed", what)
	}
}

func oneEnv(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs the name of one environment", Hint: "berth env ls"}
	}
	return nil
}

func someEnvs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs the name of an environment", Hint: "berth env ls"}
	}
	return nil
}

// each does something to the named environments.
func (a *app) each(ctx context.Context, names []string, do func(*engine.Environment) error) error {
	return eachOf(ctx, names, func(n string) error {
		if strings.TrimSpace(n) == "" {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "an environment's name is empty", Hint: "berth env ls"}
		}
		v, err := a.existing(n)
		if err != nil {
			return err
		}
		return do(v)
	})
}

func (a *app) envStopCmd() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "stop NAME... | --all", Short: "stop environments; their files stay",
		Long: `Stop everything that runs in environments, background processes too. Their files stay,
and the next command starts them again. --all stops every environment that runs, waits
for an allocation or may cost, on other machines too, and names each that was stopped;
one that cannot be stopped does not keep the others.
` + envExit,
		Example: `  berth env stop train
  berth env stop --all`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case all && len(args) > 0:
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "--all stops every environment, and takes no names beside it",
					Hint: "leave one of them out"}
			case all:
				return nil
			}
			return someEnvs(cmd, args)
		},
		RunE: func(cmd *cobra.Command, names []string) error {
			if all {
				return a.stopAll(cmd.Context())
			}
			return a.each(cmd.Context(), names, func(v *engine.Environment) error { return v.Stop(cmd.Context()) })
		},
	}
	c.Flags().BoolVar(&all, "all", false, "stop all environments that are up")
	return c
}

// stopAll stops the environments that are up. One that could not be asked may be, so it
// is stopped as if it were named, unless its machine is silent.
func (a *app) stopAll(ctx context.Context) error {
	e, err := a.engine()
	if err != nil {
		return err
	}
	list, err := e.Environments()
	errs := []error{err}
	up := map[string]func() error{}
	var names []string
	for i, s := range e.ShowAll(ctx, list, true) {
		v := list[i]
		defer v.Close()
		v.Progress = a.progress
		switch a.envState(s, true) {
		case "new", "stopped":
			continue
		case "no answer":
			up[s.Spec.Name] = func() error { return s.Err }
		default:
			up[s.Spec.Name] = func() error { return v.Stop(ctx) }
		}
		names = append(names, s.Spec.Name)
	}
	if len(names) == 0 && a.errTTY && err == nil {
		a.say("no environment is up")
	}
	return errors.Join(append(errs, eachOf(ctx, names, func(n string) error {
		if err := up[n](); err != nil {
			return fmt.Errorf("stop the environment %s: %w", n, err)
		}
		_, err := fmt.Fprintf(a.stdout, "stopped %s\n", n)
		return err
	}))...)
}

func (a *app) envRmCmd() *cobra.Command {
	var force, snapshots bool
	c := &cobra.Command{
		Use: "rm NAME...", Short: "remove environments with their files",
		Long: `Stop environments and remove everything that berth made for them: files, logs,
containers. Directories that were bound into them stay. One in which something runs is
refused without --force. Snapshots that a service keeps stay, and are named; where
snapshots are among the files of the environment, it takes --snapshots to remove them.
` + envExit,
		Example: `  berth env rm train
  berth env rm --force train`,
		Args: someEnvs,
		RunE: func(cmd *cobra.Command, names []string) error {
			return a.each(cmd.Context(), names, func(v *engine.Environment) error {
				kept, err := v.RemoveAll(cmd.Context(), force, snapshots)
				if err == nil && len(kept) > 0 {
					a.say("its snapshots are kept: %s; berth env snapshots --rm NAME removes one", strings.Join(kept, ", "))
				}
				return err
			})
		},
	}
	c.Flags().BoolVar(&snapshots, "snapshots", false, "also remove snapshots that are among its files")
	c.Flags().BoolVar(&force, "force", false, "also when something runs in it, or its machine cannot be reached")
	return c
}

func (a *app) envGcCmd() *cobra.Command {
	var dry bool
	c := &cobra.Command{
		Use: "gc", Short: "remove what killed environments have left behind",
		Long: `Remove what killed environments have left on this machine and at cloud services:
containers, mounts, scratch directories, sandboxes. Each is known by its label, tags,
name or owner's mark; what berth cannot prove to be its own stays. The files of
recorded environments stay too, unless their auto_destroy_after_seconds have passed:
their sandboxes are stopped.
` + envExit,
		Example: `  berth env gc --dry-run
  berth env gc`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := a.engine()
			if err != nil {
				return err
			}
			found, err := e.Collect(cmd.Context(), dry)
			rows := make([][]string, len(found))
			list := make([]map[string]any, len(found))
			for i, o := range found {
				done := "removed"
				switch {
				case dry:
					done = "found"
				case o.Stopped && o.Err == nil:
					done = "stopped"
				case o.Err != nil:
					done = "failed: " + o.Err.Error()
					err = errors.Join(err, fmt.Errorf("remove the %s %s: %w", o.What, o.Ref, o.Err))
				}
				rows[i] = []string{o.Backend, o.What, o.Ref, done, o.Why}
				list[i] = map[string]any{"found": o.Found, "result": done, "why": o.Why}
			}
			if a.json {
				if perr := a.printJSON(map[string]any{"orphans": list}); perr != nil {
					return perr
				}
				return err
			}
			if len(rows) == 0 && a.errTTY && err == nil {
				a.say("nothing was left behind")
			}
			if perr := a.table([]string{"BACKEND", "WHAT", "NAME", "RESULT", "WHY"}, rows); perr != nil {
				return perr
			}
			return err
		},
	}
	c.Flags().BoolVar(&dry, "dry-run", false, "only list what would be removed")
	a.jsonFlag(c)
	return c
}
