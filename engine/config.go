//go:build !berthnode

package engine

import (
	"berth/internal/config"
	"berth/jobs"
)

// Config is the user's configuration, which the command berth reads at each call: what
// it says where a task, or who wants an environment, says nothing.
type Config struct{ c *config.Config }

// ReadConfig reads it: config.toml of the user with profiles and targets, the variables of
// this process, and the berth.toml of the project that the directory dir is in; "" is in
// none.
func ReadConfig(dir string) (*Config, error) {
	c, err := config.Load(config.Here(dir))
	if err != nil {
		return nil, err
	}
	return &Config{c}, nil
}

// Task puts into a task what the configuration says and the task does not. The choice is
// for [Engine.Plan], the notes are for people.
func (c *Config) Task(t *jobs.Task) (choice Choice, notes []string, err error) {
	choice = Choice{Offline: c.c.Offline(), Auto: c.c.Auto()}
	choice.MaxWaiting, choice.WaitingBy = c.c.MaxWaiting()
	if choice.Notify, err = c.c.Notify(); err != nil {
		return choice, nil, err
	}
	// A template that the task names wins over the configuration; one that the
	// configuration names stands below it.
	dir, named := config.TemplatesDir(), t.Template != ""
	if named {
		if err := TaskTemplate(dir, t); err != nil {
			return choice, nil, err
		}
	}
	notes, err = c.c.Task(t)
	if err == nil && !named {
		err = TaskTemplate(dir, t)
	}
	return choice, append(c.c.Notes, notes...), err
}

// Environment puts into options what the configuration says of environments. What the
// options name themselves stays.
func (c *Config) Environment(o *jobs.EnvOptions) error { return c.c.Environment(o) }
