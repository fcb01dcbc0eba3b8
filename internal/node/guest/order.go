package guest

import (
	"strconv"
	"strings"
)

// Descriptors of a warm shell besides the three standard ones. Commands do not
// have them.
const (
	callFD   = 97 // a bash waits on it for the next order
	memoFD   = 98 // it reads that from here, and writes its state behind it
	noteFD   = 99 // it says here that it has done so
	shDumpFD = 9  // an sh, which knows only one digit, writes its state here
)

// order is what a warm shell is to do for one command.
type order struct {
	text         string   // to evaluate
	env          []string // NAME=VALUE, for this text only
	dir          string   // to change to; "" is to stay
	keepOld      bool     // the change is not one of the user's: OLDPWD stays
	in, out, err string   // paths
	merge        bool     // standard error goes where standard output does
	options      string   // $- before
	status       int      // $? before
	dropTraps    string   // names of traps of the command before
}

// dialect is how a kind of shell is spoken to.
//
// Every builtin is called in a way that neither an alias nor a function of the
// same name catches, but for functions with the names in unset, which are
// removed. All of it works under set -e, -u, -f and -x and with any IFS.
type dialect struct {
	bash    bool
	builtin string // calls a builtin
	eval    string // evaluates a text, in which variables before it hold; an error in it does not end the shell
	exec    string // redirects
	unset   string // what must not be a function
	closed  string // closes what commands do not have
	dump    string // writes the state for [splitDump]; holds no single quote
}

// A POSIX shell cannot list functions: they are lost with the shell.
var (
	bashDialect = dialect{
		bash: true, builtin: `\builtin `, eval: `\eval `, exec: `\exec `, unset: "builtin eval exec", closed: " 97<&- 98<&- 99>&-",
		dump: `{ \builtin printf "%s\0" "$__berth_s"; \builtin unset -v __berth_s; \builtin pwd; \builtin printf "\0"; ` +
			`\builtin trap -p; \builtin printf "\0"; \builtin umask; \builtin printf "\0%s\0" "$BASHOPTS"; ` +
			`\builtin declare -p; \builtin printf "\0"; \builtin declare -f; \builtin printf "\0"; \builtin alias -p; ` +
			`\builtin printf "\0%s\0end\0" "$SHELLOPTS"; } >&98`,
	}
	shDialect = dialect{
		builtin: `\command `, eval: `\command eval `, exec: `\command exec `, unset: "command", closed: " 9>&-",
		dump: `{ \command printf "%s\0" "$__berth_s"; \unset __berth_s; \command pwd; \command printf "\0"; ` +
			`\trap; \command printf "\0"; \command umask; \command printf "\0\0"; \set; \command printf "\0"; ` +
			`\export -p; \command printf "\0"; \command alias; \command printf "\0"; \set +o; \command printf "\0end\0"; } >&9`,
	}
)

// bashScript makes a bash read [bashLoop]; ps(1) shows it.
const bashScript = `\builtin read -r -u97 __berth; \eval "$__berth"`

// bashLoop is what a warm bash does, on one line, so that the lines of a text
// are counted from 1. It is at the top and in no function, so that declare
// means what it means there; the loop of one round takes the effect of a break
// that stands in no loop of the text. An order has two parts, see forCommand,
// both in a file in memory: bash reads a pipe byte by byte.
var bashLoop = `while \builtin read -r -u97 __berth; do ` +
	`IFS= \builtin read -r -u98 -d "" __berth; IFS= \builtin read -r -u98 -d "" __berth_t; ` +
	`for __berth_i in 1; do \eval "$__berth"; done; ` +
	// Nothing of this is traced, by -x or a trap.
	`{ __berth_s="${__berth_s-}$? $-"; \builtin set +x; \builtin trap - DEBUG; } >/dev/null 2>&1; ` +
	`\exec </dev/null >/dev/null 2>&1; ` +
	`! { \builtin unset -v __berth __berth_t __berth_i; \builtin unset -f ` + bashDialect.unset + `; ` +
	bashDialect.dump + `; \builtin printf . >&99; } 2>/dev/null; done` + "\n"

// begin is the first order, with what restores a former state. For last see
// exitTrap.
func (d *dialect) begin(restore, last string) string {
	if d.bash {
		return "\\builtin shopt -s expand_aliases\n" + restore + d.exitTrap(last) + "\n__berth_s=\x00\x00"
	}
	return restore + d.exitTrap(last) + "\n__berth_s=\"0 $-\"\n" + d.report()
}

// exitTrap lets a shell that ends by itself leave its state. In a POSIX shell
// what was closed for the text is closed still: it writes to a FIFO with the
// path last, in a process of its own, in which a failure does not change how
// the shell ends.
func (d *dialect) exitTrap(last string) string {
	if !d.bash {
		dump := strings.TrimSuffix(d.dump, " >&9")
		return d.builtin + "trap " + quote("__berth_s=exit; ( "+dump+" ) >"+quote(last)+" 2>/dev/null") + " EXIT"
	}
	return d.builtin + "trap '__berth_s=exit; { " + d.dump + "; } 2>/dev/null' EXIT"
}

// forCommand is the order of a command. Its redirections are the shell's own
// and not those of one builtin, because a trap for its exit runs after those
// are undone.
func (d *dialect) forCommand(o order, last string) string {
	var b strings.Builder
	if o.dropTraps != "" {
		b.WriteString(d.builtin + "trap - " + o.dropTraps + "; " + d.exitTrap(last) + "; ")
	}
	b.WriteString("__berth_s=cd; ")
	if o.dir != "" {
		if o.keepOld {
			b.WriteString("__berth_i=${OLDPWD-}; ")
		}
		b.WriteString(d.builtin + "cd -- " + d.line(o.dir) + " && ")
		if o.keepOld {
			b.WriteString("OLDPWD=$__berth_i && ")
		}
	}
	b.WriteString("__berth_s=- && " + o.redirect(d) + " && __berth_s= && ")
	for _, e := range o.env {
		// As a prefix: the shell itself takes them back, and keeps no trace.
		name, value, _ := strings.Cut(e, "=")
		b.WriteString(name + "=" + d.line(value) + " ")
	}
	if d.bash {
		return b.String() + d.eval + `"$__berth_t"` + d.closed + "\x00" +
			`\builtin unset -v __berth __berth_t __berth_i __berth_s;` + d.prefix(o) + o.text + "\x00"
	}
	b.WriteString(d.eval + quote(d.prefix(o)+o.text) + d.closed + "\n")
	b.WriteString("{ __berth_s=\"${__berth_s-}$? $-\"; \\set +x; } >/dev/null 2>&1\n" + d.exec + "</dev/null >/dev/null 2>&1\n" + d.report())
	return b.String()
}

// report ends an order of a POSIX shell. The negation is for set -e.
func (d *dialect) report() string {
	return "! { " + d.builtin + "unset -f " + d.unset + "; \\unset __berth_i; " + d.dump + "; } 2>/dev/null\n"
}

// leave is the order to exit, so that the trap of a command runs with its own
// streams and status.
func (d *dialect) leave(o order) string {
	o.in = "/dev/null"
	text := o.redirect(d) + d.closed + "; " + d.builtin + "exit " + strconv.Itoa(o.status)
	if d.bash {
		return text + "\x00\x00"
	}
	return text + "\n"
}

func (o order) redirect(d *dialect) string {
	text := d.exec + "<" + quote(o.in) + " >" + quote(o.out)
	if o.merge {
		return text + " 2>&1"
	}
	return text + " 2>" + quote(o.err)
}

// prefix is what stands before the text: it switches tracing on again, which is
// off between commands, or sets $? to what the command before has left.
func (d *dialect) prefix(o order) string {
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

// line makes one word of s, on one line where the dialect can.
func (d *dialect) line(s string) string {
	if !d.bash || !strings.Contains(s, "\n") {
		return quote(s)
	}
	return "$'" + strings.NewReplacer("\\", `\\`, "'", `\'`, "\n", `\n`).Replace(s) + "'"
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
