package cli

import (
	"os"

	"berth/internal/config"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// configSources are where the configuration of this call comes from.
func configSources(cmd *cobra.Command) config.Sources {
	dir, err := os.Getwd()
	if err != nil {
		dir = ""
	}
	s := config.Here(dir)
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

// keys are the variables that the configuration has for programs of backends,
// secrets among them.
func (a *app) keys() []string {
	if c := a.configured(); c != nil {
		return c.Keys()
	}
	return nil
}

// credentials are those that it has.
func (a *app) credentials() []jobs.Credential {
	if c := a.configured(); c != nil {
		return c.Credentials()
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

// profile is the site's in a verb that has read the configuration, else nil.
func (a *app) profile() (*jobs.Profile, error) {
	if a.cfg == nil {
		return nil, nil
	}
	p, err := a.cfg.ReadProfile()
	return &p, err
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
