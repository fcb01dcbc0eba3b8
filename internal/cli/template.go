package cli

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"berth/engine"
	"berth/internal/config"
	"berth/jobs"
	"berth/templates"

	"github.com/spf13/cobra"
)

const templateExit = exitHelp + `0 ok, 2 the template or an option is wrong, or it holds a secret, 3 no such
template.`

func (a *app) templateCmd() *cobra.Command {
	return group("template",
		`A template describes a place to work in: the image it begins with, a script that is run in
it once as root, limits, and the names of variables that commands get. Its image is built
when it is first used, in a job, and cached until the script or the image it begins with
changes.`,
		`  berth template ls
  berth run --template default -- 'python3 --version'
  berth exec --template minimal -- git --version
  berth template show default >mine.toml     # change it, then:
  berth template add mine.toml`, a.templateLsCmd(), a.templateShowCmd(), a.templateAddCmd(), a.templateRmCmd(), a.templateBuildCmd())
}

// templateJSON is a template in every --json output. Fields are only ever
// added.
type templateJSON struct {
	Name        string         `json:"name"`
	Origin      string         `json:"origin"`
	Description string         `json:"description,omitempty"`
	Image       string         `json:"image"`
	Bootstrap   string         `json:"bootstrap,omitempty"`
	Env         []string       `json:"env,omitempty"`
	Resources   jobs.Resources `json:"resources,omitzero"`
	Reference   string         `json:"reference,omitempty"` // of its image, when that is built
}

// described is a template with the reference of its image, if there is one now.
func (a *app) described(cmd *cobra.Command, e *engine.Engine, w *templates.Workspace) templateJSON {
	j := templateJSON{Name: w.Name, Origin: w.Origin(), Description: w.Description, Image: w.Image,
		Bootstrap: w.Bootstrap, Env: w.Env, Resources: w.Resources}
	if ref, err := e.TemplateImage(cmd.Context(), w, jobs.Task{}, engine.Choice{}, engine.TemplateOptions{Known: true}); err == nil {
		j.Reference = ref
	}
	return j
}

func oneTemplate(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs one template", Hint: "berth template ls"}
	}
	return nil
}

func (a *app) templateLsCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "ls", Short: "list the templates",
		Long: `List the built-in templates and your own, which are in $XDG_CONFIG_HOME/berth/templates.
Columns: name, whether its image is built, the image it begins with, where it comes from,
description.
` + templateExit,
		Example: `  berth template ls`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			e, err := a.cacheEngine(cmd)
			if err != nil {
				return err
			}
			list, bad := templates.Workspaces(config.TemplatesDir())
			out := make([]templateJSON, len(list))
			rows := make([][]string, len(list))
			for i, w := range list {
				out[i] = a.described(cmd, e.Engine, w)
				built := "no"
				if out[i].Reference != "" {
					built = "yes"
				}
				rows[i] = []string{w.Name, built, w.Image, w.Origin(), dash(w.Description)}
			}
			if a.json {
				return errors.Join(a.printJSON(map[string]any{"templates": out}), bad)
			}
			return errors.Join(a.table([]string{"TEMPLATE", "BUILT", "IMAGE", "FROM", "DESCRIPTION"}, rows), bad)
		},
	}
	a.jsonFlag(c)
	return c
}

func (a *app) templateShowCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "show NAME", Short: "print a template",
		Long: `Print a template as it is in its file. On stderr: where that is, and the reference of its
image, when it is built.
` + templateExit,
		Example: `  berth template show default`,
		Args:    oneTemplate,
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := templates.FindWorkspace(config.TemplatesDir(), args[0])
			if err != nil {
				return err
			}
			e, err := a.cacheEngine(cmd)
			if err != nil {
				return err
			}
			j := a.described(cmd, e.Engine, w)
			if a.json {
				return a.printJSON(map[string]any{"template": j})
			}
			image := "not built yet"
			if j.Reference != "" {
				image = j.Reference
			}
			a.say("template %s (%s); its image: %s", w.Name, w.Origin(), image)
			_, err = a.stdout.Write(w.Text)
			return err
		},
	}
	a.jsonFlag(c)
	return c
}

func (a *app) templateAddCmd() *cobra.Command {
	var name string
	var force bool
	c := &cobra.Command{
		Use: "add FILE.toml", Short: "check a template and keep it under a name",
		Long: `Check a template, and copy it to $XDG_CONFIG_HOME/berth/templates. Its image is built when
it is first used, or by berth template build. A template with the name of a built-in one
takes its place.

A template is recorded, and is part of the image that is made from it: one with what looks
like a secret is refused. Name variables instead: their values are passed in.
` + templateExit,
		Example: `  berth template add mine.toml
  berth template add --name lab --force mine.toml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs a file",
					Hint: "berth template show default >mine.toml gives one to begin with"}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := jobs.CheckText("the template's file", args[0]); err != nil {
				return err
			}
			if name == "" {
				name = strings.TrimSuffix(filepath.Base(args[0]), ".toml")
			}
			dir, err := config.Dir()
			if err != nil {
				return err
			}
			w, err := templates.ReadWorkspace(args[0], name)
			if jobs.KindOf(err) == jobs.KindNotFound {
				return &jobs.Error{Kind: jobs.KindNotFound, Msg: "template add: there is no file " + args[0],
					Hint: "berth template show default >mine.toml gives one to begin with"}
			}
			if err != nil {
				return err
			}
			file, err := templates.AddWorkspace(filepath.Join(dir, "templates"), w, force)
			if err == nil {
				a.say("added %s", file)
			}
			return err
		},
	}
	c.Flags().StringVar(&name, "name", "", "`NAME` of the template (default: the name of the file)")
	c.Flags().BoolVar(&force, "force", false, "replace a template of the same name")
	return c
}

func (a *app) templateRmCmd() *cobra.Command {
	return &cobra.Command{
		Use: "rm NAME", Short: "remove a template of your own",
		Long: `Remove a template of your own. Images that were built from it stay: berth image gc removes
them when they have not been used for long.
` + templateExit,
		Example: `  berth template rm mine`,
		Args:    oneTemplate,
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := config.Dir()
			if err != nil {
				return err
			}
			return templates.RemoveWorkspace(filepath.Join(dir, "templates"), args[0])
		},
	}
}

func (a *app) templateBuildCmd() *cobra.Command {
	var f taskFlags
	var fresh bool
	c := &cobra.Command{
		Use: "build NAME", Short: "build the image of a template now; prints its reference",
		Long: `Build the image of a template in a job, as its first use would. An image that is there is
not built again without --fresh, which also looks up in the registry the image that it
begins with.
` + exitHelp + `0 ok, 2 the template or an option is wrong, or its script failed, 3 no such
template, 4, 5, 75 as for berth image pull, 78 root is not available there, or there is no
apptainer, 130 ctrl-C left the job running.`,
		Example: `  berth template build default
  berth template build mine --partition build --time 30m`,
		Args: oneTemplate,
		RunE: func(cmd *cobra.Command, args []string) error {
			w, err := templates.FindWorkspace(config.TemplatesDir(), args[0])
			if err != nil {
				return err
			}
			cfg, err := a.config(cmd)
			if err != nil {
				return err
			}
			t, choice, notes, err := f.place(cmd, cfg, "template "+w.Name)
			if err != nil {
				return err
			}
			e, err := a.engine()
			if err != nil {
				return err
			}
			a.notes(notes)
			ref, err := e.TemplateImage(cmd.Context(), w, t, choice, engine.TemplateOptions{Fresh: fresh})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.stdout, jobs.Printable(ref))
			return err
		},
	}
	f.addPlace(c)
	c.Flags().BoolVar(&fresh, "fresh", false, "build it again, from the present image in the registry")
	return c
}
