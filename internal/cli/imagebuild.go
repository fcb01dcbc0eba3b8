package cli

import (
	"fmt"
	"path/filepath"
	"strings"

	"berth/engine"
	"berth/internal/config"
	"berth/internal/config/secrets"
	"berth/internal/config/strict"
	"berth/internal/config/task"
	"berth/internal/images"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// buildKeys are the flags of a build's network.
var buildKeys = []string{"network", "allow", "deny"}

func (a *app) imageBuildCmd() *cobra.Command {
	var f taskFlags
	var name string
	var local bool
	c := &cobra.Command{
		Use: "build FILE.def", Short: "build an image from a definition file, in a job; prints its path",
		Long: `Build an image from an Apptainer definition file, in a job of the scheduler, and keep it
in the cache with the definition beside it. From then on build:NAME is a reference to
it, for jobs and environments. Without --name the name is that of the file; the same
name again builds a new image, which the name then means.

The job has no container: it runs apptainer build on the node's own disk. %post is root
there in whichever way the node allows: your range of ids in /etc/subuid, the command
fakeroot, or a user namespace with root alone.

The build reaches what its node does. With --network allow and --allow it reaches what is
named, bases of registries among it, and with --network none nothing: then it begins with a
file. berth network show JOB lists what was reached and refused.

Definitions are recorded, and are part of the image: one with what looks like a secret is
refused. Relative paths in it begin at its own directory, which the node must see then.
Logins to registries are taken as by berth image pull.
` + exitHelp + `0 ok, 1 a script of the definition failed, 2 the definition or an option
is wrong, 3 something that it names does not exist, 4 the registry wants a login, 5 the
registry, the network or the disk failed, 75 try again, 78 root is not available there,
or there is no apptainer, 124 its time limit passed, 130 it was cancelled, or ctrl-C
left it running.`,
		Example: `  berth image build tools.def
  berth image build tools.def --name tools-2 --time 1h --memory 8GiB
  berth image build tools.def --allow @apt --allow '*.docker.io' --allow '*.docker.com'
  berth run --image build:tools-2 -- make`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs a definition file",
					Hint: cmd.CommandPath() + " tools.def"}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if local {
				if err := cmd.Flags().Set("scheduler", jobs.SchedulerLocal); err != nil {
					return err
				}
			}
			b, err := readDefinition(args[0], name)
			if err != nil {
				return err
			}
			cfg, err := a.config(cmd)
			if err != nil {
				return err
			}
			e, rec, err := a.submitBuild(cmd, &f, cfg, b)
			if err != nil {
				return err
			}
			if err := a.watch(cmd.Context(), e, rec, false, false); err != nil {
				return buildCode(e, rec, err)
			}
			c, err := a.cache(e.Store.Home())
			if err != nil {
				return err
			}
			img, err := c.Known(b.Ref)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"image": asJSON(img, nil)})
			}
			_, err = fmt.Fprintln(a.stdout, jobs.Printable(img.Path))
			return err
		},
	}
	f.addPlace(c)
	addKeyFlags(c, keyFlags(), buildKeys)
	c.Flags().StringVar(&name, "name", "", "`NAME` of the image (default: the name of the file)")
	c.Flags().BoolVar(&local, "local", false, "build on this machine, as with --scheduler local")
	a.jsonFlag(c)
	return c
}

// readDefinition reads and checks a definition file.
func readDefinition(path, name string) (engine.Build, error) {
	if err := jobs.CheckText("the definition's name", path); err != nil {
		return engine.Build{}, err
	}
	text, err := strict.ReadFile(path, "definition")
	if err != nil {
		return engine.Build{}, err
	}
	if name == "" {
		name = strings.ToLower(strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)))
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return engine.Build{}, err
	}
	b := engine.Build{Definition: string(text), Dir: filepath.Dir(abs)}
	if b.Ref, err = images.BuildRef(strings.TrimPrefix(name, "build:")); err != nil {
		return engine.Build{}, err
	}
	if images.ReadHeader(text).Bootstrap == "" {
		return engine.Build{}, &jobs.Error{Kind: jobs.KindUsage, Msg: path + " is no definition: it does not say what to begin with",
			Hint: "its first lines are such as: Bootstrap: docker, From: debian:12"}
	}
	return b, secrets.Refuse(path, b.Definition, "definitions are recorded, and stand in the image")
}

// submitBuild hands a job to the scheduler that builds an image.
func (a *app) submitBuild(cmd *cobra.Command, f *taskFlags, cfg *config.Config, b engine.Build) (*engine.Engine, *jobs.Record, error) {
	e, err := a.engine()
	if err != nil {
		return nil, nil, err
	}
	said := jobs.Task{}
	if err := task.Override(&said, keysGiven(cmd, keyFlags(), buildKeys)); err != nil {
		return nil, nil, err
	}
	t, choice, notes, err := f.place(cmd, cfg, strings.ReplaceAll(b.Ref, ":", " "))
	if err != nil {
		return nil, nil, err
	}
	if n := said.Network; n.Mode != "" || n.Allow != nil || n.Deny != nil {
		t.Network.Phases.Build = jobs.NetworkPhase{Mode: n.Mode, Allow: n.Allow, Deny: n.Deny}
	}
	rec, more, err := e.SubmitBuild(cmd.Context(), b, t, choice)
	if rec != nil {
		a.notes(append(notes, more...))
	}
	return e, rec, err
}

// buildCode is the exit code of a build that has failed by itself, which is
// berth's own.
func buildCode(e *engine.Engine, rec *jobs.Record, err error) error {
	got, lerr := e.Store.Load(rec.Spec.ID)
	if lerr != nil || jobs.StateOf(got) != jobs.StateFailed {
		return err
	}
	if x := got.Current().Exit; x != nil && x.Exit.Code != 0 {
		return exitCode(x.Exit.Code)
	}
	return err
}

// definition is where the definition of an image stands, or "".
func definition(c *images.Cache, img images.Image) string {
	if img.Definition == "" {
		return ""
	}
	return c.DefinitionPath(img.Sum)
}
