package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"berth/internal/config/profile"
	"berth/internal/config/strict"
	"berth/jobs"
)

// Sources are where values come from.
type Sources struct {
	User     string   // the user's file; it need not be there
	Dir      string   // where the search for a project's file begins; "" is none
	Home     string   // the user's home, above which it does not go
	Environ  []string // variables, "NAME=value"
	Flags    []Flag
	Profiles []string // directories of profiles
	// Templates is the directory of the user's own workspace templates; "" is
	// none.
	Templates string
}

// Flag is a flag of the command line that stands for a key.
type Flag struct {
	Key, Name, Text string
}

// Config is the configuration as it holds for one call.
type Config struct {
	// Notes are for people: a project's file that was left out.
	Notes []string

	layers   []layer // strongest first
	src      Sources
	user     *file
	project  *file
	target   *target
	targetBy string // the layer that chose it

	profile     jobs.Profile
	profileRead bool
}

type layer struct {
	name   string
	values map[string]Value
}

// Load reads all that there is but the profile, and checks it.
func Load(src Sources) (*Config, error) {
	c := &Config{src: src}
	if err := c.readUser(); err != nil {
		return nil, err
	}
	if err := c.readProject(); err != nil {
		return nil, err
	}
	flags, err := readFlags(src.Flags)
	if err != nil {
		return nil, err
	}
	env, err := readEnv(src.Environ)
	if err != nil {
		return nil, err
	}
	return c, c.settle(flags, env)
}

// settle puts the layers on each other and judges what the project says.
func (c *Config) settle(flags, env map[string]Value) error {
	c.add(layerFlag, flags)
	c.add(layerEnv, env)
	if c.project != nil {
		c.add(layerProject, c.project.values)
	}
	if c.user != nil {
		c.add(layerUser, c.user.values)
	}
	if err := c.chooseTarget(); err != nil {
		return err
	}
	return c.checkProject()
}

func (c *Config) add(name string, values map[string]Value) {
	c.layers = append(c.layers, layer{name, values})
}

func (c *Config) readUser() error {
	if c.src.User == "" {
		return nil
	}
	data, err := readSafely(c.src.User, userWhat)
	if os.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	c.user, err = parse(c.src.User, data, layerUser)
	return err
}

func (c *Config) readProject() error {
	if c.src.Dir == "" {
		return nil
	}
	path, note := findProject(c.src.Dir, c.src.Home)
	if note != "" {
		c.Notes = append(c.Notes, note)
	}
	if path == "" {
		return nil
	}
	data, err := readSafely(path, projectWhat)
	if err != nil {
		return err
	}
	c.project, err = parse(path, data, layerProject)
	return err
}

func readFlags(flags []Flag) (map[string]Value, error) {
	out := map[string]Value{}
	var errs []error
	for _, f := range flags {
		k := Find(f.Key)
		if k == nil {
			continue
		}
		var v any = "" // --target '' is no target, whatever the files say
		if f.Text != "" {
			var err error
			v, err = k.Parse(f.Text, "--"+f.Name)
			errs = append(errs, err)
		}
		if v != nil {
			out[k.Name] = Value{Key: k, V: v, Origin: Origin{Layer: layerFlag, Name: f.Name}}
		}
	}
	return out, together(errs)
}

// chooseTarget puts the target's values above those of the layer that has
// chosen it: they count as much as that, and a target is more particular.
func (c *Config) chooseTarget() error {
	for i, l := range c.layers {
		v, ok := l.values["target"]
		if !ok {
			continue
		}
		name := shown(v.V)
		if name == "" {
			return nil
		}
		if c.user != nil {
			c.target = c.user.targets[name]
		}
		if c.target == nil {
			return c.noTarget(v, name)
		}
		c.targetBy = l.name
		c.layers = slices.Insert(c.layers, i, layer{l.name, c.target.values})
		return nil
	}
	return nil
}

func (c *Config) noTarget(v Value, name string) error {
	have := c.Targets()
	by := ""
	if v.Key != nil {
		by = " (" + v.Origin.String() + ")"
	}
	e := &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("there is no target %s%s%s", literal(name), by, strict.DidYouMean(name, have)),
		Hint: fmt.Sprintf("write into %s: [targets.%s]", c.userPath(), name)}
	if len(have) > 0 {
		e.Hint = "the targets are " + strings.Join(have, ", ")
	}
	return e
}

// Targets are the names of the targets.
func (c *Config) Targets() []string {
	if c.user == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(c.user.targets))
}

// Target is the name of the target that was chosen, or "".
func (c *Config) Target() string {
	if c.target == nil {
		return ""
	}
	return c.target.name
}

// Get returns what holds for a key, with its origin.
func (c *Config) Get(name string) Value { return c.lookup(c.layers, name) }

// said is [Config.Get] without the defaults: V is nil when the key is not set.
func (c *Config) said(name string) Value {
	v := c.Get(name)
	if v.Origin.Layer == layerDefault {
		v.V = nil
	}
	return v
}

func (c *Config) lookup(layers []layer, name string) Value {
	k := Find(name)
	if k == nil {
		return Value{}
	}
	for _, l := range layers {
		if v, ok := l.values[name]; ok {
			return v
		}
	}
	if c.profileRead {
		if v := c.fromProfile(k); v != nil {
			return Value{Key: k, V: v, Origin: Origin{Layer: layerProfile, Name: c.profile.Name}}
		}
	}
	v := Value{Key: k, Origin: Origin{Layer: layerDefault}}
	if k.Default != "" && k.Refused == "" {
		if d, err := k.Parse(k.Default, k.Name); err == nil {
			v.V = d
		}
	}
	return v
}

// withProject are the layers that a project's file is part of or chooses, and
// withoutProject what would hold without it. Flags and variables are in
// neither: they come after it in any case.
func (c *Config) withProject() []layer {
	return slices.DeleteFunc(slices.Clone(c.layers), func(l layer) bool { return l.name == layerFlag || l.name == layerEnv })
}

func (c *Config) withoutProject() []layer {
	if c.user == nil {
		return nil
	}
	own := layer{layerUser, c.user.values}
	if c.targetBy == layerProject || c.targetBy == layerUser {
		if t := c.user.targets[shown(c.user.values["target"].V)]; t != nil {
			return []layer{{layerUser, t.values}, own}
		}
	}
	return []layer{own}
}

// fromProfile is what the profile that was read says of a key, or nil.
func (c *Config) fromProfile(k *Key) any {
	p := c.profile
	var v any
	switch k.Name {
	case "scheduler":
		v = p.Scheduler
	case "terminal.singularity_image":
		v = p.Image
	case "terminal.scratch_dir":
		v = p.Scratch
	case "network.via":
		v = p.Via
	case "slurm.partition":
		v = p.Slurm.Partition
	case "slurm.account":
		v = p.Slurm.Account
	case "slurm.qos":
		v = p.Slurm.QOS
	case "slurm.constraint":
		v = p.Slurm.Constraint
	case "slurm.extra":
		v = p.Slurm.Extra
	}
	if empty(v) {
		return nil
	}
	return v
}

// ReadProfile reads the profile that was chosen, if one was.
func (c *Config) ReadProfile() (jobs.Profile, error) {
	if c.profileRead {
		return c.profile, nil
	}
	v := c.said("profile")
	if name := shown(v.V); name != "" {
		p, _, err := profile.Load(name, c.src.Profiles...)
		if err != nil {
			if v.Origin.Layer == layerProject || v.Origin.Layer == layerUser {
				err = &jobs.Error{Msg: v.Origin.String(), Err: err}
			}
			return p, err
		}
		c.profile = p
	}
	c.profileRead = true
	return c.profile, nil
}

// UserPath and ProjectPath are the files; the second is "" when there is none.
func (c *Config) UserPath() string { return c.src.User }

// ProjectPath is the project's file, or "".
func (c *Config) ProjectPath() string {
	if c.project == nil {
		return ""
	}
	return c.project.path
}

func (c *Config) userPath() string {
	if c.src.User == "" {
		return filepath.Join("~", ".config", "berth", "config.toml")
	}
	return c.src.User
}
