package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"

	boxes "berth/apptainer/examine"
	"berth/templates"
)

// modules is the module system of this machine.
type modules struct {
	kind  string   // "Lmod 8.7", "Environment Modules 5.2"
	init  string   // the file that defines "module", where it is none of the usual ones
	boxes []string // modules that look like a container program
}

var errNoModules = errors.New("there is no module system")

// What a shell is asked about the function "module", which it finds as the job
// script does. What this shell was started with is put aside first: a node's has
// only the files.
const (
	modulesBefore = `had=$(declare -f module); unset -f module
`
	modulesAfter = `if ! type module >/dev/null 2>&1; then eval "$had"; fi
type module >/dev/null 2>&1 || { echo berth-none; exit 0; }
if [ -n "$LMOD_VERSION" ]; then echo "berth-kind Lmod $LMOD_VERSION"
else echo "berth-kind Environment Modules $(module --version 2>&1 | sed -n 's/.*[Rr]elease \([0-9.]*\).*/\1/p' | head -n 1)"; fi
if [ -n "$module_init" ]; then echo "berth-init $module_init"; fi
module -t avail 2>&1`
)

func (l *look) findModules(ctx context.Context) (modules, error) {
	bash := l.look("bash")
	if bash == "" {
		return modules{}, errNoModules
	}
	search := templates.ModuleSearch(l.Profile.ModuleInit)
	if l.Root != "" {
		search = strings.NewReplacer(" /etc/profile", " "+l.path("/etc/profile"), " /usr/share", " "+l.path("/usr/share")).Replace(search)
	}
	out, err := l.ask(ctx, nil, bash, "--noprofile", "--norc", "-c", modulesBefore+search+modulesAfter)
	if err != nil && !strings.Contains(out, "berth-kind") {
		return modules{}, err
	}
	return parseModules(out)
}

// parseModules reads what the shell prints; a site's files may print before it.
func parseModules(out string) (modules, error) {
	var m modules
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		if line == "berth-none" {
			return m, errNoModules
		}
		if kind, ok := strings.CutPrefix(line, "berth-kind "); ok {
			m.kind = strings.TrimSpace(kind)
			continue
		}
		if init, ok := strings.CutPrefix(line, "berth-init "); ok {
			m.init = init
			continue
		}
		if m.kind == "" {
			continue
		}
		name, _, _ := strings.Cut(line, "(") // (default), (D)
		name = strings.TrimSpace(name)
		if name == "" || strings.ContainsAny(name, " :\"'$`;") {
			continue // a directory's heading
		}
		if boxes.IsModule(strings.ToLower(name)) && !slices.Contains(m.boxes, strings.TrimSuffix(name, "/")) {
			m.boxes = append(m.boxes, strings.TrimSuffix(name, "/"))
		}
	}
	if m.kind == "" {
		return m, errNoModules
	}
	slices.SortFunc(m.boxes, boxes.CompareModules)
	return m, nil
}

// checkModules names the module system, and what it has of containers.
func checkModules(_ context.Context, l *look) []Finding {
	m, err := l.mods()
	if errors.Is(err, errNoModules) {
		if len(l.Profile.Modules) > 0 && l.submits() {
			return one(Warn, "the profile names modules, and this machine has no module system", "the nodes may have one: berth doctor --on-node")
		}
		if len(l.Profile.Modules) > 0 {
			return []Finding{{Status: Fail, Configured: true, Why: "the profile names modules, and this machine has no module system",
				Do: "remove modules from the profile, or run it where there is one"}}
		}
		return one(Skip, errNoModules.Error(), "")
	}
	if err != nil {
		return one(Warn, "the module system does not answer: "+err.Error(), "try: module avail")
	}
	f := with(Finding{Status: OK, Why: m.kind}, "kind", m.kind, "containers", strings.Join(m.boxes, ","), "init", m.init)
	if len(m.boxes) > 0 {
		f.Why += "; it has " + strings.Join(m.boxes, ", ")
	}
	if m.init != "" {
		f.Why += "; " + m.init + " defines it"
	}
	return []Finding{f}
}
