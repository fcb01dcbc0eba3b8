package guest

import (
	"strconv"
	"strings"
)

// Descriptors of a warm shell besides the three standard ones. Commands do not
// have them.
const (
	memoFD   = 98 // bash reads its orders from it, and writes its dumps to it
	noteFD   = 99 // bash says on it that a dump is complete
	shDumpFD = 9  // sh, which knows only one digit, writes its dumps to it
)

// order is what a warm shell is to do for one command.
type order struct {
	text         string   // to evaluate
	env          []string // NAME=VALUE, for this text only
	dir          string   // to change to; "" is to stay
	keepOld      bool     // the change is not one of the user's: OLDPWD stays
	in, out, err string   // paths
	options      string   // $- before
	status       int      // $? before
	dropTraps    string   // names of traps of the command before
}

// dialect is how a kind of shell is spoken to. Every builtin is called in a way
// that neither an alias nor a function of the same name catches, but for
// functions named as the words in unset, which are removed. All of it must work
// under set -e, -u, -f and -x and with any IFS.
type dialect struct {
	bash    bool
	builtin string // calls a builtin
	eval    string // evaluates a text; an error in it does not end the shell
	exec    string // redirects
	unset   string // what must not be a function
	closed  string // closes what commands do not have
	dump    string // writes the state for [splitDump]; holds no single quote
	note    string
}

// A bash gets orders as the content of a file in memory, because it reads its
// script from a pipe byte by byte; it writes its state behind the order. A
// POSIX shell reads a pipe in blocks, and its read has no -u and no -d: there
// the order itself goes through the pipe. It cannot list functions.
var (
	bashDialect = dialect{
		bash: true, builtin: `\builtin `, eval: `\builtin eval `, exec: `\exec `, unset: "builtin exec", closed: " 98<&- 99>&-",
		dump: `{ \builtin printf "%s\0" "$__berth_s"; \builtin unset -v __berth_s __berth; \builtin pwd; \builtin printf "\0"; ` +
			`\builtin trap -p; \builtin printf "\0"; \builtin umask; \builtin printf "\0"; \builtin shopt -p; \builtin printf "\0"; ` +
			`\builtin declare -p; \builtin printf "\0"; \builtin declare -f; \builtin printf "\0"; \builtin alias -p; \builtin printf "\0"; ` +
			`\builtin set +o; \builtin printf "\0end\0"; } >&98`,
		note: `; \builtin printf . >&99`,
	}
	shDialect = dialect{
		builtin: `\command `, eval: `\command eval `, exec: `\command exec `, unset: "command", closed: " 9>&-",
		dump: `{ \command printf "%s\0" "$__berth_s"; \unset __berth_s __berth; \command pwd; \command printf "\0"; ` +
			`\trap; \command printf "\0"; \command umask; \command printf "\0\0"; \set; \command printf "\0"; ` +
			`\export -p; \command printf "\0"; \command alias; \command printf "\0"; \set +o; \command printf "\0end\0"; } >&9`,
	}
)

// bashLine is the line on which a bash reads an order. It is not in a loop or a
// function, so that break, return and declare mean what they mean at the top,
// and lines are counted from there.
const bashLine = `\builtin read -r -u98 -d "" __berth;LINENO=0;\builtin eval "$__berth"` + "\n"

// finish ends an order: with success, for the sake of set -e; and for bash, in
// which it is read as a variable, with a comment that takes what IFS may cut
// off, and a NUL.
func (d *dialect) finish(text string) string {
	if d.bash {
		return text + "\n[[ 1 ]]\n#\x00"
	}
	return text + "\n"
}

// exitTrap lets a shell that ends by itself leave its state.
func (d *dialect) exitTrap() string {
	return d.builtin + "trap '__berth_s=exit; " + d.dump + " 2>/dev/null' EXIT"
}

// begin is the first order, with what restores a former state.
func (d *dialect) begin(restore string) string {
	text := ""
	if d.bash {
		text = "\\builtin unset -v __berth\n\\builtin shopt -s expand_aliases\n"
	}
	return d.finish(text + restore + d.exitTrap() + "\n__berth_s=\"0 $-\"\n" + d.report())
}

func (d *dialect) report() string {
	return "! { " + d.builtin + "unset -f " + d.unset + "; " + d.dump + d.note + "; } 2>/dev/null"
}

// inDialect is the order as a shell reads it. The redirections are the shell's
// own and not those of one command, because a trap for its exit runs after
// those are undone. The text is in no compound command, so that its lines are
// counted from the first.
func (o order) inDialect(d *dialect) string {
	var b strings.Builder
	if d.bash {
		b.WriteString("\\builtin unset -v __berth; ")
	}
	if o.dropTraps != "" {
		b.WriteString(d.builtin + "trap - " + o.dropTraps + "; " + d.exitTrap() + "; ")
	}
	b.WriteString("__berth_s=cd; ")
	if o.dir != "" {
		if o.keepOld {
			b.WriteString("__berth=${OLDPWD-}; ")
		}
		b.WriteString(d.builtin + "cd -- " + quote(o.dir) + " && ")
		if o.keepOld {
			b.WriteString("OLDPWD=$__berth && ")
		}
	}
	b.WriteString("__berth_s=- && " + o.redirect(d) + " && __berth_s= && " + o.assignments() + d.eval + quote(o.prefix(d)+o.text) + d.closed + "\n")
	// Nothing of what follows is traced, by -x or a trap.
	b.WriteString("{ __berth_s=\"$__berth_s$? $-\"; " + d.builtin + "set +x; ")
	if d.bash {
		b.WriteString(`\builtin trap - DEBUG; `)
	}
	b.WriteString("} >/dev/null 2>&1\n")
	b.WriteString(d.exec + "</dev/null >/dev/null 2>&1\n" + d.report())
	return d.finish(b.String())
}

// leave is the order to exit, so that the trap of a command runs with its own
// streams and status.
func (o order) leave(d *dialect) string {
	o.in = "/dev/null"
	return d.finish(o.redirect(d) + d.closed + "\n" + d.builtin + "exit " + strconv.Itoa(o.status))
}

func (o order) redirect(d *dialect) string {
	return d.exec + "<" + quote(o.in) + " >" + quote(o.out) + " 2>" + quote(o.err)
}

// prefix is what stands before the text: it switches tracing on again, which is
// off between commands, or sets $? to what the command before has left.
func (o order) prefix(d *dialect) string {
	switch {
	case strings.Contains(o.options, "x"):
		return d.builtin + "set -x;"
	case o.status == 0:
		return ""
	case o.status == 1 && d.bash:
		return "! [[ 1 ]];" // no fork, and no end under set -e
	case strings.Contains(o.options, "e"):
		return ""
	}
	return "(" + d.builtin + "exit " + strconv.Itoa(o.status) + ");"
}

// assignments are the variables of one command, as a prefix: the shell itself
// takes them back after it, and keeps no trace.
func (o order) assignments() string {
	var b strings.Builder
	for _, e := range o.env {
		name, value, _ := strings.Cut(e, "=")
		b.WriteString(name + "=" + quote(value) + " ")
	}
	return b.String()
}

// quote makes one word of s, which holds no NUL.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// quoteWords makes a command line of an argv.
func quoteWords(argv []string) string {
	q := make([]string, len(argv))
	for i, a := range argv {
		q[i] = quote(a)
	}
	return strings.Join(q, " ")
}
