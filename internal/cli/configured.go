package cli

import (
	"errors"
	"os"
	"path/filepath"

	"berth/internal/config"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// configDir is where the user's configuration is.
func configDir() (string, error) {
	if c := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(c) {
		return filepath.Join(c, "berth"), nil
	}
	h, err := os.UserHomeDir()
	if err == nil && !filepath.IsAbs(h) { // else it would be read from where we happen to be
		err = errors.New("HOME is not an absolute path")
	}
	if err != nil {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "there is no place for the configuration", Err: err, Hint: "set HOME or XDG_CONFIG_HOME"}
	}
	return filepath.Join(h, ".config", "berth"), nil
}

// configSources are where the configuration of this call comes from.
func configSources(cmd *cobra.Command) config.Sources {
	s := config.Sources{Environ: os.Environ(), Profiles: profileDirs(), Templates: templatesDir()}
	if dir, err := configDir(); err == nil {
		s.User = filepath.Join(dir, "config.toml")
	}
	if dir, err := os.Getwd(); err == nil {
		s.Dir = noLinks(dir)
	}
	if h, err := os.UserHomeDir(); err == nil {
		s.Home = noLinks(h)
	}
	// The other flags pass the checks of task files.
	for _, f := range []config.Flag{
		{Key: "target", Name: "target"},
		{Key: "profile", Name: "profile"},
		{Key: "scheduler", Name: "scheduler"},
		{Key: "offline", Name: "offline"},
	} {
		if fl := cmd.Flags().Lookup(f.Name); fl != nil && fl.Changed {
			f.Text = fl.Value.String()
			s.Flags = append(s.Flags, f)
		}
	}
	return s
}

func noLinks(dir string) string {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return real
	}
	return dir
}

// keys are the variables that the configuration has for programs of backends,
// secrets among them.
func (a *app) keys() []string {
	if c := a.configured(); c != nil {
		return c.Keys()
	}
	return nil
}

// options are those that it has for the program of a backend.
func (a *app) options(backend string) map[string]string {
	if c := a.configured(); c != nil {
		return c.Options(backend)
	}
	return nil
}

// configured is the configuration for a verb that needs nothing of it but what
// programs of backends do, and so may not have read it: what is wrong with it is
// said, and keeps the verb from nothing. Nil is that there is none.
func (a *app) configured() *config.Config {
	if a.cfg != nil {
		return a.cfg
	}
	a.unasked.Do(func() {
		c, err := config.Load(configSources(a.verb))
		if err != nil {
			a.say("note: what the configuration has for backends that are programs is not used: %v", err)
			return
		}
		a.read = c
	})
	return a.read
}

// config reads the configuration, once.
func (a *app) config(cmd *cobra.Command) (*config.Config, error) {
	if a.cfg != nil {
		return a.cfg, nil
	}
	c, err := config.Load(configSources(cmd))
	if err != nil {
		return nil, err
	}
	a.notes(c.Notes)
	a.cfg = c
	return c, nil
}
