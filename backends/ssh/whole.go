package ssh

import (
	"context"
	"fmt"
	"runtime"
	"strings"

	"berth/internal/node/nodebin"
	"berth/jobs"
)

// findWhole sets p to a whole berth there: the one with the name $1 that was put there, else one that is
// installed and says that it is $2. berth's name and version stand before " OS/ARCH GO". "" is none.
const findWhole = `umask 077; p=$HOME/` + binDir + `/$1; v=$2; shift 2; if [ ! -x "$p" ]; then p=; ` +
	`command -v berth >/dev/null 2>&1 || { [ -r /etc/profile ] && . /etc/profile >/dev/null 2>&1; }; ` +
	`b=$(berth version </dev/null 2>/dev/null); b=${b% */* *}; [ -z "$v" ] || [ "$b" != "$v" ] || p=berth; fi; `

// lookWhole says what the host is, and what it has.
const lookWhole = findWhole + `uname -sm; echo "${p:+there}"; echo "$b"; exit 0`

// runWhole runs that with the words behind $2.
const runWhole = `[ -n "$p" ] || { echo "berth is missing" >&2; exit 127; }; exec "$p" "$@"`

// Whole is a whole berth, with all its verbs, on a host.
type Whole struct {
	name, version string
}

// Words is the command line that runs it there with words as its arguments. prepare is a script that
// comes first, such as what puts the programs of a scheduler on PATH.
func (w Whole) Words(prepare string, words ...string) []string {
	return append([]string{"/bin/sh", "-c", prepare + findWhole + runWhole, "sh", w.name, w.version}, words...)
}

// Whole makes sure that a whole berth of the caller's version is on the host. version is what `berth version`
// says before the system, or "" where that does not tell programs apart; then only a copy of this program will
// do. Where there is none, this program is copied, by its hash, if it can run there.
func (h *Host) Whole(ctx context.Context, version string, progress func(string)) (Whole, error) {
	p, err := nodebin.This()
	if err != nil {
		return Whole{}, &jobs.Error{Kind: jobs.KindInfra, Msg: "read this program, for " + h.String(), Err: err}
	}
	w := Whole{p.Name, version}
	out, err := h.sh(ctx, nil, lookWhole, w.name, w.version)
	if err != nil {
		return w, err
	}
	lines := strings.Split(string(out)+"\n\n", "\n")
	if lines[1] == "there" {
		return w, nil
	}
	system, arch, _ := strings.Cut(lines[0], " ")
	if systems[system] != runtime.GOOS || machines[arch] != runtime.GOARCH {
		has := "has no berth"
		if lines[2] != "" {
			has = "has " + jobs.Printable(lines[2])
		}
		this := version
		if this == "" {
			this = "this build of berth"
		}
		return w, &jobs.Error{Kind: jobs.KindConfig,
			Msg: fmt.Sprintf("%s has to be on %s, which %s; it is %q, and this program is for %s on %s and cannot be copied there",
				this, h, has, jobs.Printable(lines[0]), runtime.GOOS, runtime.GOARCH),
			Hint: "install " + this + " there, so that a login finds it: " + byHand(h.spec) + " 'berth version'"}
	}
	progress(fmt.Sprintf("copying berth to %s (%v)", h, jobs.Bytes(p.Size&^(1<<20-1))))
	return w, h.upload(ctx, p)
}
