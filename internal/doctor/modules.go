package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"

	boxes "berth/apptainer/examine"
)

// modules is the module system of this machine.
type modules struct {
	kind  string   // "Lmod 8.7", "Environment Modules 5.2"
	boxes []string // modules that look like a container program
}

var errNoModules = errors.New("there is no module system")

// findModules asks a shell for the function "module", which is read from where
// the job script reads it from too, and for what it has of containers.
const moduleScript = `if ! type module >/dev/null 2>&1; then
  for init in /etc/profile.d/00-modulepath.sh /etc/profile.d/z00_lmod.sh /etc/profile.d/lmod.sh /etc/profile.d/modules.sh \
    /usr/share/lmod/lmod/init/bash /usr/share/modules/init/bash /usr/share/Modules/init/bash; do
    if [ -r "$init" ]; then . "$init" >/dev/null 2>&1; fi
    if type module >/dev/null 2>&1; then break; fi
  done
fi
type module >/dev/null 2>&1 || { echo berth-none; exit 0; }
if [ -n "$LMOD_VERSION" ]; then echo "berth-kind Lmod $LMOD_VERSION"
else echo "berth-kind Environment Modules $(module --version 2>&1 | sed -n 's/.*[Rr]elease \([0-9.]*\).*/\1/p' | head -n 1)"; fi
module -t avail 2>&1`

func (l *look) findModules(ctx context.Context) (modules, error) {
	bash := l.look("bash")
	if bash == "" {
		return modules{}, errNoModules
	}
	out, err := l.ask(ctx, nil, bash, "--noprofile", "--norc", "-c", moduleScript)
	if err != nil && !strings.Contains(out, "berth-kind") {
		return modules{}, err
	}
	return parseModules(out)
}

// parseModules reads what moduleScript prints.
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
	f := with(Finding{Status: OK, Why: m.kind}, "kind", m.kind, "containers", strings.Join(m.boxes, ","))
	if len(m.boxes) > 0 {
		f.Why += "; it has " + strings.Join(m.boxes, ", ")
	}
	return []Finding{f}
}
