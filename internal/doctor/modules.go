package doctor

import (
	"context"
	"errors"
	"slices"
	"strings"

	"berth/jobs/finding"
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
		if isBox(strings.ToLower(name)) && !slices.Contains(m.boxes, strings.TrimSuffix(name, "/")) {
			m.boxes = append(m.boxes, strings.TrimSuffix(name, "/"))
		}
	}
	if m.kind == "" {
		return m, errNoModules
	}
	slices.SortFunc(m.boxes, compareModules)
	return m, nil
}

// isBox tells whether a module's name is, or ends in, that of a container
// program: apptainer/1.4, tools/apptainer/1.4, singularity-ce/4.1.
func isBox(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "apptainer" || part == "singularity" || part == "singularity-ce" || part == "singularityce" {
			return true
		}
	}
	return false
}

// compareModules orders by kind, apptainer last, then by version.
func compareModules(a, b string) int {
	rank := func(s string) int {
		if strings.Contains(strings.ToLower(s), "apptainer") {
			return 1
		}
		return 0
	}
	if d := rank(a) - rank(b); d != 0 {
		return d
	}
	va, oka := finding.Numbers(a[strings.LastIndexByte(a, '/')+1:])
	vb, okb := finding.Numbers(b[strings.LastIndexByte(b, '/')+1:])
	switch {
	case oka && okb && finding.Less(va, vb), !oka && okb:
		return -1
	case oka && okb && finding.Less(vb, va), oka && !okb:
		return 1
	}
	return strings.Compare(a, b)
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
