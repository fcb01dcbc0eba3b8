package guest

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// dump is the state of a shell as it has written it. Its parts are texts that
// a shell evaluates; they hold what the task has put there, and nothing in
// here relies on them.
type dump struct {
	status  string // of the command: a number; "-..." it did not run, "cd..." nor could its directory be entered, "exit" the shell ends by itself
	options string // $-
	dir     string
	traps   string
	umask   string
	shopt   string // BASHOPTS
	vars    string // declare -p, or what set says
	funcs   string // declare -f, or export -p
	aliases string
	set     string // SHELLOPTS, or set +o
}

// errDump is a dump that no order of the guest has written.
var errDump = errors.New("the shell's state cannot be read")

// splitDump reads what a shell has written. A shell's words hold no NUL.
func splitDump(b []byte) (*dump, error) {
	f := strings.Split(string(b), "\x00")
	if len(f) != 11 || f[9] != "end" || f[10] != "" {
		return nil, errDump
	}
	dir := strings.TrimSuffix(f[1], "\n")
	if !strings.HasPrefix(dir, "/") {
		return nil, errDump
	}
	status, options, _ := strings.Cut(f[0], " ")
	return &dump{
		status: status, options: options, dir: dir, traps: f[2], umask: strings.TrimSpace(f[3]),
		shopt: f[4], vars: f[5], funcs: f[6], aliases: f[7], set: f[8],
	}, nil
}

// ownTrap stands in the trap that the guest itself sets.
const ownTrap = "__berth_s=exit"

// trapNames lists the signals for which a command has set traps, and tells
// whether one of them is for the shell's exit.
func (d *dump) trapNames() (names string, exit bool) {
	var out []string
	for _, t := range entries(d.traps, "trap -- ") {
		i := strings.LastIndexByte(strings.TrimSuffix(t, "\n"), ' ')
		name := strings.TrimSpace(t[i+1:])
		if !isName(name) || strings.Contains(t, ownTrap) {
			continue
		}
		exit = exit || name == "EXIT"
		out = append(out, name)
	}
	return strings.Join(out, " "), exit
}

// isName tells whether a shell takes s as the name of a variable.
func isName(s string) bool {
	for i, c := range []byte(s) {
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// entries splits a listing into its entries, each of which begins with a word
// at the beginning of a line outside of quotes.
func entries(text, word string) (out []string) {
	for text != "" {
		n := entryEnd(text)
		if strings.HasPrefix(text, word) {
			out = append(out, text[:n])
		}
		text = text[n:]
	}
	return out
}

// entryEnd finds the end of the line that begins a text, past what is quoted
// as bash and POSIX shells quote in listings: '...', "..." with backslashes,
// $'...' with backslashes, and a backslash alone.
func entryEnd(text string) int {
	quoted, escapes := byte(0), false
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quoted == 0:
			switch c {
			case '\n':
				return i + 1
			case '\\':
				i++
			case '"':
				quoted, escapes = c, true
			case '\'':
				quoted, escapes = c, i > 0 && text[i-1] == '$'
			}
		case c == '\\' && escapes:
			i++
		case c == quoted:
			quoted = 0
		}
	}
	return len(text)
}

// A shell's own variables, which mean nothing in another one, or say there what
// they should not.
var (
	shellsOwn = []string{"BASH", "BASHOPTS", "BASHPID", "DIRSTACK", "EPOCHREALTIME", "EPOCHSECONDS", "EUID", "FUNCNAME", "GROUPS", "HISTCMD",
		"LINENO", "PIPESTATUS", "PPID", "RANDOM", "SECONDS", "SHELLOPTS", "SHLVL", "SRANDOM", "UID", "_", "BERTH_COMMAND", "BERTH_PROMPT_FILE"}
	shellsOwnPrefix = []string{"BASH_", "__berth"}
)

func own(name string) bool {
	return slices.Contains(shellsOwn, name) ||
		slices.ContainsFunc(shellsOwnPrefix, func(p string) bool { return strings.HasPrefix(name, p) })
}

// declared returns the name that an entry of declare -p, export -p or set is
// about.
func declared(entry string) string {
	entry = strings.TrimPrefix(entry, "export ")
	if rest, ok := strings.CutPrefix(entry, "declare -"); ok {
		if i := strings.IndexByte(rest, ' '); i >= 0 {
			entry = rest[i+1:]
		}
	}
	n := strings.IndexAny(entry, "=\n")
	if n < 0 {
		n = len(entry)
	}
	return entry[:n]
}

// variables returns the listing without a shell's own variables and without
// names.
func variables(listing, word string, without map[string]bool) string {
	var b strings.Builder
	for _, e := range entries(listing, word) {
		if n := declared(e); isName(n) && !own(n) && !without[n] {
			b.WriteString(e)
		}
	}
	return b.String()
}

// merge takes the variables of names from an earlier state: those of this one
// were for one command only.
func (d *dump) merge(before *dump, l *dialect, names map[string]bool) {
	if len(names) == 0 {
		return
	}
	others := func(listing, word string) string {
		var b strings.Builder
		for _, e := range entries(listing, word) {
			if names[declared(e)] {
				b.WriteString(e)
			}
		}
		return b.String()
	}
	word := "declare -"
	if !l.bash {
		word = ""
		d.funcs = variables(d.funcs, "export ", names) + others(before.funcs, "export ")
	}
	d.vars = variables(d.vars, word, names) + others(before.vars, word)
}

// optionNames reads a list as BASHOPTS and SHELLOPTS have it.
func optionNames(list string) []string {
	return slices.DeleteFunc(strings.Split(list, ":"), func(o string) bool { return !isName(strings.ReplaceAll(o, "-", "_")) })
}

// restore is the text by which a fresh shell takes a state over; interactive
// leaves options as a person has them. Options come last: some of them would
// end it. Functions come before aliases, which would be expanded in them.
func (d *dump) restore(l *dialect, interactive bool) string {
	var b strings.Builder
	part := func(text string) {
		if text != "" {
			b.WriteString(l.eval + quote(text) + "\n")
		}
	}
	part(l.builtin + "cd -- " + quote(d.dir))
	if l.bash {
		if !interactive {
			part(l.builtin + "shopt -u ${BASHOPTS//:/ }")
			part(l.builtin + "shopt -s " + strings.Join(optionNames(d.shopt), " "))
		}
		part(variables(d.vars, "declare -", nil))
		part(d.funcs)
		part(d.aliases)
	} else {
		part(variables(d.vars, "", nil))
		part(variables(d.funcs, "export ", nil))
		for _, a := range entries(d.aliases, "") {
			part("alias " + strings.TrimPrefix(a, "alias "))
		}
	}
	if _, err := strconv.ParseUint(d.umask, 8, 16); err == nil {
		part("umask " + d.umask)
	}
	switch {
	case interactive:
	case l.bash:
		part("for __berth_i in ${SHELLOPTS//:/ }; do " + l.builtin + "set +o $__berth_i; done")
		for _, o := range optionNames(d.set) {
			part(l.builtin + "set -o " + o)
		}
	default:
		part(d.set)
	}
	return b.String()
}
