package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"berth/internal/config"
	"berth/jobs"

	"github.com/spf13/cobra"
)

const configExit = exitHelp + `0 ok, 2 an unknown key, a wrong value, or a file with a mistake, 3 the key
has no value, 78 a file that others may write, or that sets what it may not.`

func (a *app) configCmd() *cobra.Command {
	return group("config",
		`Settings are in $XDG_CONFIG_HOME/berth/config.toml, and in a project's berth.toml: the
nearest one from the current directory up to the top of its repository. A flag overrides
an environment variable, that the project's file, that yours, that the site profile, that
the default. A project's file comes with the repository: settings that would give it access
to this machine are refused there (berth help configuration).`,
		`  berth config show --origin
  berth config set terminal.timeout 10m
  berth config set --project terminal.docker_image debian:12
  berth config set targets.lake.scheduler slurm
  berth config import hermes`, a.configShowCmd(), a.configGetCmd(), a.configSetCmd(), a.configUnsetCmd(),
		a.configPathCmd(), a.configRPCCmd(), a.configImportCmd())
}

// wordsFor wants as many words as it names.
func wordsFor(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != len(names) {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: cmd.CommandPath() + " needs " + strings.Join(names, " and "),
				Hint: cmd.CommandPath() + " --help"}
		}
		return nil
	}
}

func (a *app) configGetCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "get KEY", Short: "print the value of a key",
		Long: `Print the value that a key has here, and nothing else. Keys of targets are written
targets.NAME.KEY.
` + configExit,
		Example: `  berth config get terminal.backend
  berth config get targets.lake.host`,
		Args: wordsFor("a key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := a.config(cmd)
			if err != nil {
				return err
			}
			if _, err := cfg.ReadProfile(); err != nil {
				return err
			}
			v, err := cfg.Lookup(args[0])
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"key": args[0], "value": v.JSON(), "origin": v.Origin.String()})
			}
			if v.V == nil || v.String() == "" {
				return &jobs.Error{Kind: jobs.KindNotFound, Msg: args[0] + " has no value", Hint: "berth config set " + args[0] + " VALUE"}
			}
			_, err = fmt.Fprintln(a.stdout, jobs.Printable(v.String()))
			return err
		},
	}
	a.jsonFlag(c)
	return c
}

func (a *app) configSetCmd() *cobra.Command {
	var project bool
	c := &cobra.Command{
		Use: "set KEY VALUE", Short: "set a key",
		Long: `Write a key into your configuration, or into the project's with --project. Comments and
order of the file stay, and it is checked as a whole before it is written. A list is
JSON, or words between commas.
` + configExit,
		Example: `  berth config set terminal.backend docker
  berth config set resources.memory 8GiB
  berth config set terminal.env_passthrough HF_HOME,WANDB_MODE
  berth config set 'projects."/home/ada/src/lab".allow' paths`,
		Args: wordsFor("a key", "a value"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := config.Set(configSources(cmd), project, args[0], args[1])
			if err != nil {
				return err
			}
			a.written(file)
			return nil
		},
	}
	c.Flags().BoolVar(&project, "project", false, "use the project's berth.toml instead of your own file")
	return c
}

func (a *app) configUnsetCmd() *cobra.Command {
	var project bool
	c := &cobra.Command{
		Use: "unset KEY", Short: "remove a key",
		Long: `Remove a key with its line from your configuration, or from the project's.
` + configExit,
		Example: `  berth config unset terminal.backend`,
		Args:    wordsFor("a key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, was, err := config.Unset(configSources(cmd), project, args[0])
			if err != nil {
				return err
			}
			if !was {
				return &jobs.Error{Kind: jobs.KindNotFound, Msg: args[0] + " does not stand in " + file,
					Hint: "berth config show --origin tells where values come from"}
			}
			a.written(file)
			return nil
		},
	}
	c.Flags().BoolVar(&project, "project", false, "use the project's berth.toml instead of your own file")
	return c
}

func (a *app) written(file string) {
	if a.errTTY {
		a.say("written: %s", file)
	}
}

func (a *app) configShowCmd() *cobra.Command {
	var origin bool
	var target, profile string
	c := &cobra.Command{
		Use: "show", Short: "show every key with its value",
		Long: `Show every key with the value that it has here, defaults too; "-" is no value. Secrets and
the values of variables are not shown. What a project's file and the profile say of the
network comes last: it holds beside your own values.
` + configExit,
		Example: `  berth config show
  berth config show --origin      # also the file, variable or profile it comes from`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.config(cmd)
			if err != nil {
				return err
			}
			if _, err := cfg.ReadProfile(); err != nil {
				return err
			}
			var rows [][]string
			var list []map[string]any
			show := func(key string, v config.Value) {
				row := []string{key, dash(v.String())}
				if origin {
					row = append(row, v.Origin.String())
				}
				rows = append(rows, row)
				list = append(list, map[string]any{"key": key, "value": v.JSON(), "origin": v.Origin.String(), "layer": v.Origin.Layer})
			}
			for i := range config.Keys() {
				if k := &config.Keys()[i]; k.Refused == "" {
					show(k.Name, cfg.Get(k.Name))
				}
			}
			for _, word := range []string{"host", "ssh_key"} { // of the login node: no key outside of a target
				key := "targets." + cfg.Target() + "." + word
				if v, err := cfg.Lookup(key); err == nil && v.V != nil && v.Origin != cfg.Get(v.Key.Name).Origin {
					show(key, v)
				}
			}
			bounds := cfg.NetworkBounds()
			for _, b := range bounds {
				row := []string{"network, within", dash(networkWords(b.Mode, b.Allow, b.Deny, b.Opaque))}
				if origin {
					row = append(row, b.Origin)
				}
				rows = append(rows, row)
			}
			if a.json {
				return a.printJSON(map[string]any{
					"network_bounds": append([]jobs.NetworkBound{}, bounds...),
					"values":         list,
					"target":         cfg.Target(),
					"targets":        append([]string{}, cfg.Targets()...),
					"user_file":      cfg.UserPath(),
					"project_file":   cfg.ProjectPath(),
				})
			}
			header := []string{"KEY", "VALUE"}
			if origin {
				header = append(header, "FROM")
			}
			return a.table(header, rows)
		},
	}
	c.Flags().BoolVar(&origin, "origin", false, "also show where each value comes from")
	c.Flags().StringVar(&target, "target", "", "show what holds with the target `NAME`")
	c.Flags().StringVar(&profile, "profile", "", "show what holds with this site profile: a `NAME` or a path")
	a.jsonFlag(c)
	return c
}

func (a *app) configPathCmd() *cobra.Command {
	var project bool
	c := &cobra.Command{
		Use: "path", Short: "print the path of the configuration file",
		Long: `Print the path of your configuration file, whether it exists or not, or, with --project,
that of the project's file.
` + configExit,
		Example: `  berth config path`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := configSources(cmd).User
			if path == "" && !project {
				_, err := config.Dir()
				return err
			}
			if project {
				cfg, err := a.config(cmd)
				if err != nil {
					return err
				}
				if path = cfg.ProjectPath(); path == "" {
					return &jobs.Error{Kind: jobs.KindNotFound, Msg: "there is no " + config.ProjectFile + " here",
						Hint: "berth config set --project KEY VALUE makes one"}
				}
			}
			_, err := fmt.Fprintln(a.stdout, path)
			return err
		},
	}
	c.Flags().BoolVar(&project, "project", false, "use the project's berth.toml instead of your own file")
	return c
}

func (a *app) configImportCmd() *cobra.Command {
	c := group("import", `Import the settings of another program into your configuration.`, `  berth config import hermes`, a.importHermesCmd())
	c.Short = "import the settings of another program"
	return c
}

func (a *app) importHermesCmd() *cobra.Command {
	var dir string
	var force, dry bool
	c := &cobra.Command{
		Use: "hermes", Short: "import the terminal settings of Hermes",
		Long: `Read the section terminal of Hermes' config.yaml, and its .env, and write the settings
that berth has too into your configuration. One line for each key says what became of it.
Secrets are not written: the lines name the variables that hold them.
` + configExit,
		Example: `  berth config import hermes --dry-run
  berth config import hermes`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				h, err := os.UserHomeDir()
				if err != nil {
					return &jobs.Error{Kind: jobs.KindConfig, Msg: "your home is not known", Err: err, Hint: "--dir DIR"}
				}
				if dir = os.Getenv("HERMES_HOME"); dir == "" {
					dir = filepath.Join(h, ".hermes")
				}
			}
			file, list, err := config.ImportHermes(configSources(cmd), dir, force, dry)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"file": file, "written": !dry, "keys": append([]config.Imported{}, list...)})
			}
			rows := make([][]string, 0, len(list))
			for _, i := range list {
				state := "left out"
				if i.Carried {
					state = "carried over"
				}
				rows = append(rows, []string{state, i.Key, dash(i.Value), dash(i.Why)})
			}
			if err := a.table([]string{"WHAT", "KEY", "VALUE", "WHY"}, rows); err != nil {
				return err
			}
			if !dry {
				a.written(file)
			}
			return nil
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "`DIR` with config.yaml and .env (default $HERMES_HOME, else ~/.hermes)")
	c.Flags().BoolVar(&force, "force", false, "overwrite keys that have other values")
	c.Flags().BoolVar(&dry, "dry-run", false, "only show what would be written")
	a.jsonFlag(c)
	return c
}
