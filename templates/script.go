package templates

import (
	_ "embed"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"text/template"

	"berth/jobs"
)

//go:embed job.sh.tmpl
var jobText string

// jobTemplate is parsed when it is needed, and not at every start.
var jobTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("job.sh").
		Option("missingkey=error").
		Funcs(template.FuncMap{"quote": Quote}).
		Parse(jobText))
})

// Head is what one scheduler adds to the job script that all share.
type Head struct {
	// Lines stand at the head and begin with '#': directives and remarks.
	Lines []string
	// Env are NAME=VALUE, set in the script.
	Env []string
	// Unset are names removed from the environment.
	Unset []string
}

type variable struct{ Name, Value string }

// Script renders the job script of a launch. It checks every value that
// enters the text; its errors are [jobs.Error] of kind usage.
func Script(l jobs.Launch, h Head) (string, error) {
	if err := check(l, h); err != nil {
		return "", err
	}
	shell := l.Identity.Shell
	if shell == "" {
		shell = "/bin/bash"
	}
	env := []variable{
		{"HOME", l.Identity.Home}, {"USER", l.Identity.User}, {"LOGNAME", l.Identity.User},
		{"SHELL", shell}, {"LANG", "C.UTF-8"},
	}
	for _, e := range append(l.Profile.Proxy.Environ(), h.Env...) {
		name, value, ok := strings.Cut(e, "=")
		if !ok || !validName(name) {
			return "", fmt.Errorf("%q is not NAME=VALUE", e)
		}
		env = append(env, variable{name, value})
	}
	var b strings.Builder
	err := jobTemplate().Execute(&b, map[string]any{
		"Comment": l.Comment,
		"Header":  h.Lines,
		"Env":     env,
		"Unset":   h.Unset,
		"Modules": l.Profile.Modules,
		"Exec":    execLine(l.Argv),
		"Holes":   slices.ContainsFunc(l.Argv, isHole),
	})
	if err != nil {
		return "", fmt.Errorf("render the job script: %w", err)
	}
	return b.String(), nil
}

// isHole tells whether the runner fills a word in on the node.
func isHole(word string) bool {
	return word == jobs.HoleImage || word == jobs.HoleOverlay || word == jobs.HoleScratch
}

// WithRemark renders the script of a launch with one remark and no directives.
func WithRemark(l jobs.Launch, remark string) (string, error) {
	return Script(l, Head{Lines: []string{remark}})
}

func check(l jobs.Launch, h Head) error {
	usage := func(format string, args ...any) error {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf(format, args...)}
	}
	if len(l.Argv) == 0 || !path.IsAbs(l.Argv[0]) {
		return usage("the launch's command does not begin with an absolute path")
	}
	if l.Identity.User == "" || !path.IsAbs(l.Identity.Home) {
		return usage("the launch does not say whom the job runs as")
	}
	texts := []struct {
		what   string
		values []string
	}{
		{"a comment of the job script", l.Comment}, {"a header line of the job script", h.Lines},
		{"a variable of the job script", h.Env}, {"a proxy of the profile", l.Profile.Proxy.Environ()}, {"a module of the profile", l.Profile.Modules},
		{"a word of the job's command line", l.Argv},
		{"the user's name", []string{l.Identity.User}}, {"the home directory", []string{l.Identity.Home}},
		{"the login shell", []string{l.Identity.Shell}},
	}
	for _, t := range texts {
		for _, v := range t.values {
			if err := jobs.CheckText(t.what, v); err != nil {
				return err
			}
		}
	}
	for _, line := range h.Lines {
		if !strings.HasPrefix(line, "#") {
			return usage("header line %q is not a comment of the shell", line)
		}
	}
	for _, name := range h.Unset {
		if !validName(name) {
			return usage("%q is not the name of a variable", name)
		}
	}
	for _, m := range l.Profile.Modules {
		if m == "" || strings.HasPrefix(m, "-") {
			return usage("%q is not the name of a module", m)
		}
	}
	return nil
}

func validName(s string) bool {
	for i, r := range s {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

// lineWidth is where the command line is continued on the next line.
const lineWidth = 100

// execLine writes argv as one command that an admin can read: options stay
// with their values, and a new line begins at "--" and where the width is
// used up.
func execLine(argv []string) string {
	var groups []string
	inner := false // behind "{image}" the words are the guest's
	for i, w := range argv {
		q := Quote(w)
		start := i == 0 || (!inner && strings.HasPrefix(w, "-")) || w == jobs.HoleImage
		inner = inner || w == jobs.HoleImage
		if start {
			groups = append(groups, q)
		} else {
			groups[len(groups)-1] += " " + q
		}
	}
	var b strings.Builder
	width := len("exec ")
	for i, g := range groups {
		switch {
		case i == 0:
		case g == "--" || strings.HasPrefix(g, "-- ") || strings.HasPrefix(g, jobs.HoleImage) || width+1+len(g) > lineWidth:
			b.WriteString(" \\\n  ")
			width = 2
		default:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(g)
		width += len(g)
	}
	return b.String()
}
