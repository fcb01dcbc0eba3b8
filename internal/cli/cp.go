package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"berth/jobs"
	"berth/jobs/store"

	"github.com/spf13/cobra"
)

func (a *app) cpCmd() *cobra.Command {
	var f envFlags
	c := &cobra.Command{
		Use: "cp [flags] SOURCE DESTINATION",
		Long: `Copy a file or a directory into an environment or out of it. A path inside is written
:PATH, or NAME:PATH for the environment NAME; it is relative to the session's
directory. A file of this machine with a colon in its name is written ./NAME.

Where the destination is a directory, the source goes into it; else it gets the
destination's name. SOURCE/. means the contents of a directory. Modes, times and
symbolic links are kept; sockets, pipes and devices are left out.

` + envHelp + `
` + exitHelp + `0 ok, 2 the paths make no sense, 3 the source does not exist, 5 it could not be
copied, 78 the environment is not available here, 130 interrupted.`,
		Example: `  berth cp data.csv :data/          # into the directory data
  berth cp train:/srv/results .     # out of the environment train
  berth cp ./src/. :/srv/src        # the contents of ./src`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "berth cp needs a source and a destination",
					Hint: "berth cp data.csv :/srv/   copies into the environment"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			src, dst := endOf(args[0]), endOf(args[1])
			if src.inside == dst.inside {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "exactly one of the two paths must be inside an environment",
					Hint: "write that one :PATH, or NAME:PATH; the other one ./PATH when it has a colon"}
			}
			in := src
			if dst.inside {
				in = dst
			}
			if in.env != "" {
				if f.name != "" && cmd.Flags().Changed("env") && f.name != in.env {
					return &jobs.Error{Kind: jobs.KindUsage,
						Msg:  fmt.Sprintf("the path names the environment %s, and --env names %s", in.env, f.name),
						Hint: "leave --env out, or write the path :" + in.path}
				}
				f.name = in.env
			}
			if in.path == "" {
				in.path = "."
			}
			if err := a.copyable(cmd, src, dst, &f); err != nil {
				return err
			}
			v, s, err := a.enterOpen(cmd, &f)
			if err != nil {
				return err
			}
			defer v.Close()
			show, done := a.gauge("copying")
			var progress func(int64)
			if show != nil {
				progress = func(n int64) { show(n, 0) }
			}
			var copied jobs.Copied
			if dst.inside {
				copied, err = s.CopyIn(cmd.Context(), src.path, in.path, progress)
			} else {
				copied, err = s.CopyOut(cmd.Context(), in.path, dst.path, progress)
			}
			done()
			a.notes(copied.Notes)
			if err == nil && copied.Incomplete {
				err = &jobs.Error{Kind: jobs.KindInfra, Msg: "not all could be copied"}
			}
			return err
		},
	}
	f.add(c)
	return c
}

// copyable refuses, before an environment is made or started, what cannot be
// copied in any case.
func (a *app) copyable(cmd *cobra.Command, src, dst end, f *envFlags) error {
	if src.inside {
		// A new environment has only what its image has: the name is a mistake.
		if _, err := a.meant(cmd, jobs.EnvOptions{Name: f.name}); err != nil && !cmd.Flags().Changed("backend") && !cmd.Flags().Changed("image") {
			return err
		}
		return nil
	}
	for _, e := range []end{src, dst} {
		if err := jobs.CheckText("a path", e.path); err != nil {
			return err
		}
	}
	switch _, err := os.Lstat(src.path); {
	case src.path == "":
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the source is empty", Hint: "berth cp FILE :PATH"}
	case errors.Is(err, fs.ErrNotExist):
		e := &jobs.Error{Kind: jobs.KindNotFound, Msg: "there is no " + src.path + " on this machine", Hint: "a path inside is written :" + src.path}
		if name, _, ok := strings.Cut(src.path, ":"); ok {
			e.Hint = fmt.Sprintf("%q cannot name an environment: these have lower-case letters, digits, dots, dashes and underscores", name)
		}
		return e
	case err != nil:
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "the source cannot be copied", Err: err, Hint: "ls -ld " + src.path}
	}
	return nil
}

// end is one side of a copy.
type end struct {
	inside    bool
	env, path string
}

// endOf reads PATH, :PATH or NAME:PATH.
func endOf(word string) end {
	name, path, ok := strings.Cut(word, ":")
	if !ok || (name != "" && store.CheckEnvName(name) != nil) {
		return end{path: word}
	}
	return end{inside: true, env: name, path: path}
}
