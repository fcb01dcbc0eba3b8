package cli

import (
	"strings"

	"berth/jobs"

	"github.com/spf13/cobra"
)

const snapshotExit = exitHelp + `0 ok, 2 usage, 3 no such environment or snapshot, 5 the environment or its
service failed, 75 it is in use, 78 its backend has no snapshots.`

func envAndName(cmd *cobra.Command, args []string) error {
	if len(args) != 2 {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs the name of an environment and that of a snapshot",
			Hint: "berth env ls, berth env snapshots"}
	}
	return nil
}

func (a *app) envSnapshotCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "snapshot ENV NAME", Short: "keep a copy of an environment's files",
		Long: `Copy the files of an environment as they are, under a name. A cloud service makes the
copy while the environment runs, and NAME is unique among all your snapshots there;
with singularity the environment must be stopped. Other backends have no snapshots.
` + snapshotExit,
		Example: `  berth env snapshot train good`,
		Args:    envAndName,
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := a.existing(args[0])
			if err != nil {
				return err
			}
			defer v.Close()
			s, err := v.Snapshot(cmd.Context(), args[1])
			if err != nil || !a.json {
				return err
			}
			return a.printJSON(map[string]any{"snapshot": s})
		},
	}
	a.jsonFlag(c)
	return c
}

func (a *app) envRestoreCmd() *cobra.Command {
	return &cobra.Command{
		Use: "restore ENV NAME", Short: "set an environment's files back to a snapshot",
		Long: `Stop an environment and set its files back to a snapshot; its present files are lost.
One in which something runs is refused. At a cloud service the snapshot may be of
another environment, and the sandbox is made again. berth exec --from NAME begins a
new environment with a snapshot.
` + snapshotExit,
		Example: `  berth env restore train good`,
		Args:    envAndName,
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := a.existing(args[0])
			if err != nil {
				return err
			}
			defer v.Close()
			return v.Restore(cmd.Context(), args[1])
		},
	}
}

func (a *app) envSnapshotsCmd() *cobra.Command {
	var remove []string
	c := &cobra.Command{
		Use: "snapshots [ENV]", Short: "list snapshots, or remove some",
		Long: `List the snapshots of an environment, or of all, including those that were removed.
Columns: name, backend, environment, size, made.
` + snapshotExit,
		Example: `  berth env snapshots
  berth env snapshots train --rm good`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return oneEnv(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.engine()
			if err != nil {
				return err
			}
			var of *jobs.EnvSpec
			if len(args) > 0 {
				v, err := a.existing(args[0])
				if err != nil {
					return err
				}
				of = &v.Spec
			}
			list, err := e.Snapshots(of)
			if len(remove) > 0 {
				if err != nil {
					return err // the one that is meant may be what could not be read
				}
				return a.removeSnapshots(cmd, list, remove)
			}
			if list == nil {
				list = []jobs.Snapshot{}
			}
			if a.json {
				if perr := a.printJSON(map[string]any{"snapshots": list}); perr != nil {
					return perr
				}
				return err
			}
			if len(list) == 0 && a.errTTY && err == nil {
				a.say("no snapshots; berth env snapshot ENV NAME makes one")
				return nil
			}
			rows := make([][]string, len(list))
			for i, s := range list {
				size, name := "", s.Name
				if s.Bytes > 0 {
					size = jobs.Bytes(s.Bytes).String()
				}
				if s.Unclear {
					size = "unclear"
				}
				rows[i] = []string{name, s.Backend, s.Environment, dash(size), a.when(s.Created)}
			}
			if perr := a.table([]string{"NAME", "BACKEND", "ENVIRONMENT", "SIZE", "MADE"}, rows); perr != nil {
				return perr
			}
			return err
		},
	}
	c.Flags().StringArrayVar(&remove, "rm", nil, "remove the snapshot `NAME`; repeatable")
	a.jsonFlag(c)
	return c
}

// removeSnapshots removes those that are named, after it has found them all.
func (a *app) removeSnapshots(cmd *cobra.Command, list []jobs.Snapshot, names []string) error {
	e, err := a.engine()
	if err != nil {
		return err
	}
	var gone []jobs.Snapshot
	for _, name := range names {
		var of []string
		for _, s := range list {
			if s.Name == name {
				gone, of = append(gone, s), append(of, s.Environment)
			}
		}
		switch len(of) {
		case 0:
			return &jobs.Error{Kind: jobs.KindNotFound, Msg: "there is no snapshot " + name, Hint: "berth env snapshots"}
		case 1:
		default:
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "several environments have a snapshot " + name + ": " + strings.Join(of, ", "),
				Hint: "say which: berth env snapshots --rm " + name + " ENV"}
		}
	}
	for _, s := range gone {
		if err := e.RemoveSnapshot(cmd.Context(), s); err != nil {
			return err
		}
	}
	return nil
}
