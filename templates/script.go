package templates

import (
	_ "embed"
	"fmt"
	"path"
	"slices"
	"strings"

	program "berth/apptainer/names"
	"berth/jobs"
)

// jobText is the job script. What stands in double braces is filled in.
//
//go:embed job.sh.tmpl
var jobText string

// modulesText stands before the first line that loads a module.
//
//go:embed modules.sh
var modulesText string

// noModulesText ends a job that needs modules where there are none.
const noModulesText = `type module >/dev/null 2>&1 || {
  echo "berth: on $HOSTNAME no file defines \"module\": looked at /etc/profile, /etc/profile.d/*.sh and the init/bash of Lmod and Modules in /usr/share;" \
    "module_init in the profile names another" >&2
  exit 78
}
`

// ModuleSearch is the part of a script that finds the function "module". A file
// that the profile names is read first. The variable module_init is that file, or
// the one that was found where none is expected.
func ModuleSearch(named string) string {
	line := ""
	if named != "" {
		line = "# shellcheck source=/dev/null\n. " + Quote(named) + "\n# shellcheck disable=SC2034\nmodule_init=" + Quote(named) + "\n"
	}
	return strings.ReplaceAll(modulesText, "{{named}}", line)
}

// bracesText stands before a command line of which the runner fills in words.
const bracesText = "# What stands in braces is known on the node; the runner fills it in and changes nothing else.\n"

// Head is what one scheduler adds to the job script that all share.
type Head struct {
	// Lines stand at the head and begin with '#': directives and remarks.
	Lines []string
	// Env are NAME=VALUE, set in the script.
	Env []string
	// Unset are names removed from the environment.
	Unset []string
}

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
	var head, env, modules, unset, braces strings.Builder
	for _, line := range l.Comment {
		fmt.Fprintf(&head, "# %s\n", line)
	}
	for _, line := range h.Lines {
		fmt.Fprintln(&head, line)
	}
	for _, e := range slices.Concat([]string{
		"HOME=" + l.Identity.Home, "USER=" + l.Identity.User, "LOGNAME=" + l.Identity.User, "SHELL=" + shell, "LANG=C.UTF-8",
	}, l.Profile.Proxy.Environ(), h.Env) {
		name, value, ok := strings.Cut(e, "=")
		if !ok || !validName(name) {
			return "", fmt.Errorf("%q is not NAME=VALUE", e)
		}
		fmt.Fprintf(&env, "export %s=%s\n", name, Quote(value))
	}
	if len(l.Profile.Modules) > 0 {
		modules.WriteString("\n" + ModuleSearch(l.Profile.ModuleInit) + noModulesText)
	}
	for _, m := range l.Profile.Modules {
		fmt.Fprintf(&modules, "module load %[1]s || { echo \"berth: on $HOSTNAME this module does not load:\" %[1]s >&2; exit 78; }\n", Quote(m))
	}
	for _, name := range h.Unset {
		unset.WriteString(name + " ")
	}
	for i, prefix := range program.Reserved {
		unset.WriteString(strings.Repeat(" ", min(i, 1)) + `"${!` + prefix + `@}"`)
	}
	if slices.ContainsFunc(l.Argv, isHole) {
		braces.WriteString(bracesText)
	}
	// One pass: braces in a value stay as they are.
	return strings.NewReplacer(
		"{{head}}", head.String(), "{{env}}", env.String(), "{{modules}}", modules.String(),
		"{{unset}}", unset.String(), "{{braces}}", braces.String(), "{{exec}}", execLine(l.Argv),
	).Replace(jobText), nil
}

// isHole tells whether the runner fills a word in on the node.
func isHole(word string) bool {
	return word == jobs.PlaceholderImage || word == jobs.PlaceholderOverlay || word == jobs.PlaceholderScratch
}

// WithRemark renders the script of a launch with one remark and no directives.
func WithRemark(l jobs.Launch, remark string) (string, error) {
	return Script(l, Head{Lines: []string{remark}})
}

// checkIdentity refuses a user of whom no name or home is known: one without an entry
// in the user database, as where its service does not answer.
func checkIdentity(who jobs.Identity) error {
	unknown := func(what, variable, example string) error {
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg:  what + " of this user is not known: the user database has no entry for it, and " + variable + " is not set",
			Hint: "getent passwd $(id -u) asks the database, which LDAP or sssd may fill; meanwhile: export " + variable + "=" + example}
	}
	switch {
	case who.User == "":
		return unknown("the name", "USER", "NAME")
	case who.Home == "":
		return unknown("the home directory", "HOME", "DIRECTORY")
	case !path.IsAbs(who.Home):
		return &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("the home directory of this user is no absolute path: %q", who.Home),
			Hint: "export HOME=DIRECTORY"}
	}
	return nil
}

func check(l jobs.Launch, h Head) error {
	usage := func(format string, args ...any) error {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf(format, args...)}
	}
	if len(l.Argv) == 0 || !path.IsAbs(l.Argv[0]) {
		return usage("the launch's command does not begin with an absolute path")
	}
	if err := checkIdentity(l.Identity); err != nil {
		return err
	}
	texts := []struct {
		what   string
		values []string
	}{
		{"a comment of the job script", l.Comment}, {"a header line of the job script", h.Lines},
		{"a variable of the job script", h.Env}, {"a proxy of the profile", l.Profile.Proxy.Environ()}, {"a module of the profile", l.Profile.Modules},
		{"module_init of the profile", []string{l.Profile.ModuleInit}},
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
		start := i == 0 || (!inner && strings.HasPrefix(w, "-")) || w == jobs.PlaceholderImage
		inner = inner || w == jobs.PlaceholderImage
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
		case g == "--" || strings.HasPrefix(g, "-- ") || strings.HasPrefix(g, jobs.PlaceholderImage) || width+1+len(g) > lineWidth:
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
