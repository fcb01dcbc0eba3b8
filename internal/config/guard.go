package config

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"berth/apptainer"
	"berth/internal/config/profile"
	"berth/internal/images"
	"berth/jobs"
	"berth/templates"
)

// guard is what the judges of single values (Key.Safe) know: which key, where
// the project lies, and the user's bounds.
type guard struct {
	key string // its last part
	dir string // the project's directory, no links in it
	max func(name string) any
	// templates is the directory of the user's own templates, or "".
	templates string
	// login is the variable that holds the user's login to a registry, whichever
	// is asked, or "".
	login string
}

// same: a project may say what holds anyway.
func same(_ guard, v, base any) bool { return shown(v) == shown(base) }

// offOrSame: false shuts something off.
func offOrSame(g guard, v, base any) bool { return v == false || same(g, v, base) }

// onOrSame is its opposite.
func onOrSame(g guard, v, base any) bool { return v == true || same(g, v, base) }

// subset: a list may become shorter.
func subset(_ guard, v, base any) bool {
	list, _ := v.([]string)
	have, _ := base.([]string)
	return !slices.ContainsFunc(list, func(s string) bool { return !slices.Contains(have, s) })
}

// noFewer: a list may become longer.
func noFewer(g guard, v, base any) bool { return subset(g, base, v) }

// noWider: a network may reach less, and not more.
func noWider(_ guard, v, base any) bool { return jobs.Within(shown(v), shown(base)) }

// noWiderList: a list of what can be reached may become shorter, and be set where
// everything could be reached.
func noWiderList(g guard, v, base any) bool {
	mode := g.max("network.mode")
	return base == nil && (mode == nil || mode == jobs.NetworkOpen) || subset(g, v, base)
}

// plainName: a profile's name is looked up in the user's own directories, a
// path is not.
func plainName(g guard, v, base any) bool {
	return !strings.Contains(shown(v), "/") || same(g, v, base)
}

// safeBackend: what contains, where the user has not chosen another place. Who
// has, keeps it: another backend may have an open network where the user's has
// none, or may bring commands from another host to this one.
func safeBackend(g guard, v, base any) bool {
	if same(g, v, base) {
		return true
	}
	to, from := shown(v), shown(base)
	here := jobs.CapabilitiesOf(from)
	return (to == jobs.BackendAuto || jobs.CapabilitiesOf(to).Here()) && (from == jobs.BackendAuto || here.Bare && !here.OtherHost)
}

// safeScheduler: what the user has sent to a cluster does not come to this
// machine instead.
func safeScheduler(g guard, v, base any) bool {
	return same(g, v, base) || jobs.IsCluster(shown(v)) || !jobs.IsCluster(shown(base))
}

// safeTemplate: one that passes on no variables but those that the user passes on
// anyway, and asks for no more than the user's bounds. What is in it is the
// user's own doing, or berth's.
func safeTemplate(g guard, v, base any) bool {
	if same(g, v, base) {
		return true
	}
	w, err := templates.FindWorkspace(g.templates, shown(v))
	if err != nil {
		return jobs.KindOf(err) == jobs.KindNotFound // its use says that, and what there is
	}
	r := w.Resources
	for bound, asks := range map[string]int64{"max.cpus": int64(r.CPUs),
		"max.memory": int64(r.Memory), "max.disk": int64(r.Disk), "max.time": int64(r.Time)} {
		if limit, ok := number(g.max(bound)); ok && asks > limit {
			return false
		}
	}
	return subset(g, w.Env, g.max("terminal.env_passthrough"))
}

// safeImage: a reference to a registry, or a file that is an image and nothing
// else. A directory outside of the project is not: "/" is the image of this
// machine.
func safeImage(g guard, v, base any) bool {
	s := shown(v)
	if same(g, v, base) {
		return true
	}
	if scheme, _, ok := strings.Cut(s, "://"); ok {
		return slices.Contains([]string{"docker", "oras", "library"}, scheme) && !sendsLogin(g, v, base)
	}
	real, err := filepath.EvalSymlinks(s)
	if err != nil {
		// It is not there, or only on another machine; what is no directory
		// now may become one, and what a link leads to may be there.
		return within(filepath.Clean(s), g.dir) && !throughLink(filepath.Clean(s), g.dir)
	}
	if within(real, g.dir) {
		return true
	}
	fi, err := os.Stat(real)
	return err == nil && fi.Mode().IsRegular() && strings.HasSuffix(real, ".sif")
}

// sendsLogin tells whether the login in the user's environment would go to a
// registry that the project has chosen: it is not of one registry.
func sendsLogin(g guard, v, base any) bool {
	n, err := images.ParseName(shown(v))
	if g.login == "" || err != nil || n.Scheme == "library" {
		return false
	}
	own, err := images.ParseName(cmp.Or(shown(base), "docker://debian")) // a login is Docker Hub's where nothing says otherwise
	return err != nil || n.Host != own.Host
}

// loginVariable is the variable that is set here of those that hold a login to
// whichever registry is asked.
func (c *Config) loginVariable() string {
	for _, login := range apptainer.ImageTool.Logins {
		if v, _ := c.lookupEnv(login[1]); v != "" {
			return login[1]
		}
	}
	return ""
}

// throughLink tells whether a path inside dir goes through a symbolic link.
func throughLink(path, dir string) bool {
	for ; path != dir && within(path, dir); path = filepath.Dir(path) {
		if fi, err := os.Lstat(path); err == nil && fi.Mode()&fs.ModeSymlink != 0 {
			return true
		}
	}
	return false
}

func within(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// longest is how long a project may keep an idle environment warm.
const longest = 24 * time.Hour

// bounded: a project asks for what it needs, up to the user's bound; without
// any limit it may only be where the user has none.
func bounded(g guard, v, base any) bool {
	n, ok := number(v)
	if !ok || same(g, v, base) {
		return ok
	}
	if n == 0 {
		return false
	}
	most := map[string]string{
		"container_cpu": "max.cpus", "cpus": "max.cpus", "container_memory": "max.memory",
		"memory": "max.memory", "container_disk": "max.disk", "disk": "max.disk",
		"time": "max.time", "gpus": "max.gpus", "nodes": "max.nodes",
	}[g.key]
	if g.key == "lifetime_seconds" {
		have, _ := number(base)
		return n <= max(int64(longest), have)
	}
	limit, ok := number(g.max(most))
	return !ok || n <= limit
}

// number makes values of any kind comparable; ok is false for none.
func number(v any) (n int64, ok bool) {
	switch v := v.(type) {
	case int:
		return int64(v), true
	case jobs.Bytes:
		return int64(v), true
	case time.Duration:
		return int64(v), true
	case string: // "TYPE:NUMBER"
		n, err := strconv.ParseInt(v[strings.LastIndexByte(v, ':')+1:], 10, 64)
		return n, err == nil
	}
	return 0, false
}

// checkProject refuses what a project's file may not say. The measure is what
// would hold without it; what counts is what holds with it, so that a target
// which the project chooses is held to the same.
func (c *Config) checkProject() error {
	f := c.project
	if f == nil {
		return nil
	}
	dir := filepath.Dir(f.path)
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	allowed := c.allowed(dir)
	with, without := c.withProject(), c.withoutProject()
	base := func(name string) any {
		v := c.lookup(without, name)
		if name == "scheduler" && shown(v.V) == v.Key.Default {
			if s := c.profileScheduler(without); s != "" {
				return s
			}
		}
		return v.V
	}
	type complaint struct {
		line int
		text string
	}
	var found []complaint
	var words []string
	refuse := func(line int, what, word string) {
		found = append(found,
			complaint{line, fmt.Sprintf("%s:%d: %s: a project's file may not do that, it comes with the repository", f.path, line, what)})
		if word != never && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	ownTarget := c.user != nil && c.target != nil && c.targetBy == layerProject && shown(c.user.values["target"].V) != c.target.name
	if ownTarget && c.target.login != nil && !slices.Contains(allowed, "targets") {
		refuse(f.values["target"].line,
			fmt.Sprintf("it chooses the target %s, which is on another host (%s)", c.target.name, c.target.login.Origin), "targets")
	}
	for i := range Keys() {
		k := &Keys()[i]
		if !c.projectDecides(k.Name, ownTarget) {
			continue
		}
		v := c.lookup(with, k.Name)
		by := guard{key: k.leaf(), dir: dir, max: base, templates: c.src.Templates, login: c.loginVariable()}
		if v.V == nil || k.Allow == free || same(guard{}, v.V, base(k.Name)) || k.Safe != nil && k.Safe(by, v.V, base(k.Name)) {
			continue
		}
		if v.Origin.Layer == layerProject && v.Origin.Target == "" {
			if !slices.Contains(allowed, k.Allow) {
				what := k.Name + " = " + inFile(v)
				if k.Type == Image && sendsLogin(by, v.V, base(k.Name)) {
					what += ", which would be sent your " + by.login
				}
				refuse(v.line, what, k.Allow)
			}
		} else if !slices.Contains(allowed, "targets") {
			refuse(f.values["target"].line,
				fmt.Sprintf("it chooses the target %s, and with that %s = %s (%s)", c.target.name, k.Name, inFile(v), v.Origin), "targets")
			break
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.SortStableFunc(found, func(a, b complaint) int { return a.line - b.line })
	lines := make([]string, len(found))
	for i, x := range found {
		lines[i] = x.text
	}
	e := &jobs.Error{Kind: jobs.KindConfig, Msg: strings.Join(lines, "\n"), Hint: "what it names belongs into your own " + c.userPath()}
	if len(words) > 0 {
		e.Hint = c.toAllow(dir, append(allowed, words...))
	}
	return e
}

// profileScheduler is what the profile says that would hold without the
// project; one that cannot be read is an error later.
func (c *Config) profileScheduler(without []layer) string {
	layers := slices.DeleteFunc(slices.Clone(c.layers), func(l layer) bool { return l.name != layerFlag && l.name != layerEnv })
	name := shown(c.lookup(append(layers, without...), "profile").V)
	if name == "" {
		return ""
	}
	p, _, err := profile.Load(name, c.src.Profiles...)
	if err != nil {
		return ""
	}
	return p.Scheduler
}

// projectDecides tells whether a key may hold something else because of the
// project: it stands in its file, in the target that it chooses, or in the one
// that is not chosen therefore.
func (c *Config) projectDecides(name string, ownTarget bool) bool {
	if _, ok := c.project.values[name]; ok || !ownTarget {
		return ok
	}
	if _, ok := c.target.values[name]; ok {
		return true
	}
	if t := c.user.targets[shown(c.user.values["target"].V)]; t != nil {
		_, ok := t.values[name]
		return ok
	}
	return false
}

// toAllow says how the user allows words to a directory. Its name may be as
// hostile as the file: then there is nothing to copy into a shell.
func (c *Config) toAllow(dir string, words []string) string {
	plain := strings.IndexFunc(dir, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("/._+@%=,-", r)
	}) < 0
	if !plain {
		return fmt.Sprintf("to allow it to this directory, write into %s: [projects.%s] allow = %s", c.userPath(), literal(dir), shown(words))
	}
	return fmt.Sprintf("to allow it to this directory: berth config set 'projects.%s.allow' %s", literal(dir), strings.Join(words, ","))
}

// inFile is a value as it stands in the file, short.
func inFile(v Value) string {
	if v.V == nil {
		return "nothing"
	}
	s := v.String()
	if _, isText := v.V.(string); isText {
		s = literal(s)
	}
	if len(s) > 60 {
		s = s[:57] + "..."
	}
	return s
}

// allowed are the words that the user gives to a directory.
func (c *Config) allowed(dir string) []string {
	var out []string
	if c.user == nil {
		return nil
	}
	for _, p := range c.user.projects {
		d := p.dir
		if real, err := filepath.EvalSymlinks(d); err == nil {
			d = real
		}
		if d == dir {
			out = append(out, p.allow...)
		}
	}
	return out
}
