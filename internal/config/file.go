package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"berth/internal/config/strict"
	"berth/jobs"
	"berth/jobs/store"
)

// file is a file of the configuration, read and checked by itself.
type file struct {
	path     string
	layer    string
	values   map[string]Value
	bounds   map[string]Value // of a project, see [Key.Bound]
	targets  map[string]*target
	projects []project
	// credentials and prices are of the user's file alone.
	credentials map[string]*jobs.Credential
	prices      jobs.Prices
}

// target is a table [targets.NAME].
type target struct {
	name   string
	line   int
	values map[string]Value
	// login is the host of a target whose scheduler is Slurm; of another one it
	// is terminal.ssh_host.
	login *Value
	key   *Value
}

// project is a table [projects.DIR]: what the user allows to a directory.
type project struct {
	dir   string
	allow []string
}

// allowWords are the words of projects.DIR.allow.
var allowWords = []string{"backend", "network", "paths", "env", "docker", "ssh", "slurm", "limits", "targets"}

// parse reads the content of a file. Its name stands in errors, and relative
// paths are relative to its directory.
func parse(path string, data []byte, layer string) (*file, error) {
	doc, err := strict.DecodeTOML(path, data)
	if err != nil {
		return nil, err
	}
	f := &file{path: path, layer: layer, bounds: map[string]Value{}, targets: map[string]*target{}}
	root := doc.Root()
	f.hints(root)
	f.values = f.keys(root, Keys())
	if layer == layerProject {
		const own = "belongs into your own config.toml: a project's file is anybody's"
		root.Refuse(own, "targets", "projects", "max", "credentials", "prices", "forbid", "allow")
	} else {
		const guarded = "is not needed: a project's file may do nothing that opens this machine, " +
			"unless [projects.\"DIR\"] allow = [...] says so; [max] bounds what it may ask for"
		root.Refuse(guarded, "forbid", "allow", "guard")
		f.readTargets(root.Table("targets"))
		f.readProjects(root.Table("projects"))
		f.readCredentials(root.Table("credentials"))
		f.readPrices(root.Table("prices"))
	}
	if err := doc.Err(); err != nil {
		return nil, err
	}
	return f, nil
}

// hints name what people look for in the wrong place.
func (f *file) hints(root *strict.Reader) {
	root.Synonyms("terminal", "env", "environment", "container")
	root.Synonyms("resources", "limits")
	root.Refuse("is a key of task files", "name", "done", "artifacts", "results", "workspace", "agent")
	root.Refuse("is a variable: set BERTH_HOME", "home", "state")
}

// keys reads the keys of the table that belong to this file.
func (f *file) keys(root *strict.Reader, list []Key) map[string]Value {
	out := map[string]Value{}
	tables := map[string]*strict.Reader{"": root}
	for i := range list {
		k := &list[i]
		name := k.table()
		if f.layer == layerProject && name == "max" {
			continue
		}
		v := k.take(tables)
		if k.Name == "target" && v.Is(strict.Table) {
			v.Failf("", "must be the name of a target, found a table: did you mean [targets.NAME]?")
			continue
		}
		if !v.Given() {
			continue
		}
		to := out
		if f.layer == layerProject && k.Bound {
			to = f.bounds
		}
		if got := k.value(v); got != nil {
			to[k.Name] = Value{Key: k, V: got, Origin: Origin{Layer: f.layer, Name: f.path, Line: v.Line()}, line: v.Line()}
		}
	}
	if t := tables["terminal"]; t != nil {
		foreign(t)
	}
	if t := tables["resources"]; t != nil {
		resourceHints(t)
	}
	return out
}

// take reads a key from its table, or by the name that it had before.
func (k *Key) take(tables map[string]*strict.Reader) strict.Value {
	v := table(tables, k.table()).Take(k.leaf())
	if k.Old == "" {
		return v
	}
	top, leaf := cutKey(k.Old)
	old := table(tables, top).Take(leaf)
	switch {
	case !old.Given():
		return v
	case v.Given():
		old.Failf("leave it out", "is said twice: here and as %s", k.Name)
	}
	return old
}

// table returns the reader of a dotted table, made once.
func table(tables map[string]*strict.Reader, name string) *strict.Reader {
	if t := tables[name]; t != nil {
		return t
	}
	parent, leaf := "", name
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		parent, leaf = name[:i], name[i+1:]
	}
	t := table(tables, parent).Table(leaf)
	tables[name] = t
	return t
}

// foreign refuses the families of names that belong to other programs.
func foreign(t *strict.Reader) {
	for _, name := range t.Names() {
		for _, p := range foreignPrefixes {
			if strings.HasPrefix(name, p[0]) {
				t.Refuse("is not supported: "+p[1], name)
			}
		}
	}
	t.Synonyms("env_passthrough", "forward_env", "passthrough")
	t.Synonyms("bind", "binds", "mounts", "volumes")
	t.Synonyms("lifetime_seconds", "lifetime")
	t.Synonyms("container_cpu", "cpus", "container_cpus", "cpu")
	t.Synonyms("container_memory", "memory")
	t.Synonyms("gpu", "gpus")
}

func resourceHints(t *strict.Reader) {
	t.Synonyms("cpus", "cpu", "cores")
	t.Synonyms("gpus", "gpu", "gres")
	t.Synonyms("nodes", "node")
	t.Synonyms("ntasks", "tasks")
	t.Synonyms("memory", "mem", "ram")
	t.Synonyms("time", "walltime")
}

// readTargets reads [targets.NAME] and the tables below each.
func (f *file) readTargets(t *strict.Reader) {
	for _, name := range t.Names() {
		v := t.Take(name)
		if !v.Is(strict.Table) {
			v.MustBe("a table: [targets." + name + "]")
			continue
		}
		r := t.Table(name)
		if store.CheckEnvName(name) != nil {
			v.Failf("", "is not the name of a target: lower-case letters, digits, dots, dashes and underscores, at most 64")
		}
		f.targets[name] = f.readTarget(name, v.Line(), r)
	}
}

func (f *file) readTarget(name string, line int, r *strict.Reader) *target {
	t := &target{name: name, line: line, values: map[string]Value{}}
	origin := func(line int) Origin { return Origin{Layer: f.layer, Target: name, Name: f.path, Line: line} }
	take := func(word, key string) *Value {
		v := r.Take(word)
		if !v.Given() {
			return nil
		}
		k := Find(key)
		got := k.value(v)
		if got == nil {
			return nil
		}
		return &Value{Key: k, V: got, Origin: origin(v.Line()), line: v.Line()}
	}
	tables := map[string]*strict.Reader{"": r}
	for i := range Keys() {
		k := &Keys()[i]
		if top := k.table(); top == "" || ofUser(top) {
			continue
		}
		v := k.take(tables)
		if !v.Given() {
			continue
		}
		if got := k.value(v); got != nil {
			t.values[k.Name] = Value{Key: k, V: got, Origin: origin(v.Line()), line: v.Line()}
		}
	}
	foreign(tables["terminal"])
	resourceHints(tables["resources"])
	for word, key := range map[string]string{"scheduler": "scheduler", "profile": "profile", "backend": "terminal.backend"} {
		v := take(word, key)
		if v == nil {
			continue
		}
		if _, twice := t.values[key]; twice {
			r.Take(word).Failf("leave one of them out", "is said twice: here and in [targets.%s.terminal]", name)
		}
		t.values[key] = *v
	}
	host, key := take("host", "terminal.ssh_host"), take("ssh_key", "terminal.ssh_key")
	scheduler := shown(t.values["scheduler"].V)
	cluster := jobs.IsCluster(scheduler)
	backend := shown(t.values["terminal.backend"].V)
	switch {
	case cluster && jobs.CapabilitiesOf(backend).NeedsHost:
		r.Take("backend").Failf(`leave backend out: host is where the scheduler's commands run`, `must not be "ssh" with the scheduler %q`, scheduler)
	case cluster:
		t.login, t.key = host, key
		if key != nil && host == nil {
			r.Take("ssh_key").Failf("", "needs a host beside it")
		}
	case (host != nil || key != nil) && !jobs.CapabilitiesOf(backend).NeedsHost:
		r.Take("host").On(r.Take("ssh_key")).Failf(
			`add scheduler = "slurm" (host is then the login node), or backend = "ssh" (host is then where commands run)`,
			"goes with the scheduler slurm or the backend ssh, and this target has neither")
	default:
		for name, v := range map[string]*Value{"terminal.ssh_host": host, "terminal.ssh_key": key} {
			if v != nil {
				t.values[name] = *v
			}
		}
	}
	return t
}

func (f *file) readProjects(t *strict.Reader) {
	for _, name := range t.Names() {
		v := t.Take(name)
		if !v.Is(strict.Table) {
			v.MustBe(fmt.Sprintf("a table: [projects.%q]", name))
			continue
		}
		r := t.Table(name)
		p := project{dir: v.Resolve(name)}
		for _, item := range r.Take("allow").Items("words") {
			if w := item.OneOf(allowWords...); w != "" {
				p.allow = append(p.allow, w)
			}
		}
		if !filepath.IsAbs(name) && !strings.HasPrefix(name, "~/") {
			v.Failf("", "must be the full path of the directory with the berth.toml")
		}
		f.projects = append(f.projects, p)
	}
}
