package slurm

import (
	"io"
	"strconv"
	"sync"
)

// prepare makes a login of another machine ready for a command: what would
// change its output is taken out of the environment there, $1 variables are put
// in, and PATH is that of a login where the program is not found otherwise.
const prepare = `for v in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do case $v in ` +
	`SLURM_CONF|SLURM_CONF_SERVER|SLURM_CLUSTERS|SLURM_JWT) ;; ` +
	`SLURM_*|SBATCH_*|SRUN_*|SALLOC_*|SQUEUE_*|SACCT_*|SCANCEL_*|SINFO_*|SCONTROL_*|` +
	`SACCTMGR_*|SSTAT_*|SPRIO_*|SSHARE_*|SREPORT_*|SCRONTAB_*|LC_*|LANG) unset "$v" ;; esac; done; ` +
	`n=$1; shift; while [ "$n" -gt 0 ]; do export "$1"; shift; n=$((n-1)); done; ` +
	`command -v "$1" >/dev/null 2>&1 || { [ -r /etc/profile ] && . /etc/profile >/dev/null 2>&1; }; `

// login runs a command there.
//
// It waits for a word on its standard input. That comes when we know that it
// was started, so an error of the start means that nothing has run, even when a
// link broke in that moment.
const login = prepare +
	`IFS= read -r w && [ "$w" = ` + loginWord + ` ] || exit 125; exec "$@" </dev/null`

const loginWord = "go"

// stepInLogin is login for a step, whose streams are its own.
const stepInLogin = prepare + `exec "$@"`

// inLogin is the command line of a command with more variables there.
func inLogin(extra, argv []string) []string {
	words := append([]string{"/bin/sh", "-c", login, "sh", strconv.Itoa(len(extra))}, extra...)
	return append(words, argv...)
}

// goAhead is an input that holds the word once it is given, and is empty when it
// is dropped before.
type goAhead struct {
	*io.PipeReader
	w    *io.PipeWriter
	once sync.Once
}

func newGoAhead() *goAhead {
	r, w := io.Pipe()
	return &goAhead{PipeReader: r, w: w}
}

func (w *goAhead) give() {
	go w.once.Do(func() {
		_, _ = io.WriteString(w.w, loginWord+"\n")
		_ = w.w.Close()
	})
}

// drop ends the input whatever became of it.
func (w *goAhead) drop() {
	_ = w.w.Close()
	_ = w.Close()
}

// FindOnLogin begins a script that asks for Slurm's programs on another machine:
// PATH is that of a login where they are not found otherwise.
const FindOnLogin = `command -v sbatch >/dev/null 2>&1 || { [ -r /etc/profile ] && . /etc/profile >/dev/null 2>&1; }; `

// where ends a sentence about what is not installed.
func (s *Scheduler) where() string {
	if s.cfg.Login == "" {
		return "here"
	}
	return "on " + s.cfg.Login
}

func (s *Scheduler) missingHint() string {
	if s.cfg.Login == "" {
		return missingHint
	}
	return "Slurm's commands must be on the PATH of a login on " + s.cfg.Login + "; is it the cluster's login node?"
}
