package external

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"berth/jobs"
)

// prefix is how the programs are called.
const prefix = "berth-backend-"

// Find returns the command line of a backend's program: the one beside berth,
// else the first on the PATH, else builtin, if there is one. A program that is
// there and is not to be started is returned with the error that says so.
func Find(name string, builtin []string) ([]string, error) {
	if self, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(self), prefix+name); runs(beside) {
			return []string{beside}, guarded(beside)
		}
	}
	if path, err := exec.LookPath(prefix + name); err == nil {
		if path, err = filepath.Abs(path); err == nil {
			return []string{path}, guarded(path)
		}
	}
	if len(builtin) > 0 {
		return builtin, nil
	}
	host, _ := os.Hostname()
	if name != "modal" && name != "daytona" { // a slip, more likely than a program that is missing
		return nil, &jobs.Error{Kind: jobs.KindUsage,
			Msg:  "unknown backend " + name + ": there is no program " + prefix + name + " beside berth, or on the PATH of " + host,
			Hint: "the backends are auto, singularity, docker, bwrap, ssh, local, modal, daytona, and others: berth help backend-protocol"}
	}
	return nil, &jobs.Error{Kind: jobs.KindConfig,
		Msg:  "the backend " + name + " needs the program " + prefix + name + ", which is neither beside berth nor on the PATH of " + host,
		Hint: "install it there; or name another --backend: singularity, docker, bwrap, ssh, local"}
}

// guarded refuses a program that everybody on this machine could have put in its
// place: it would be given this user's keys, by any command that looks for
// backends. A group may share its programs.
func guarded(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	for _, p := range []string{real, filepath.Dir(real), filepath.Dir(path)} {
		fi, err := os.Stat(p)
		if err != nil {
			return err
		}
		if fi.Mode()&0o002 == 0 {
			continue
		}
		if fi.Mode()&fs.ModeSticky != 0 && mine(path) && mine(real) {
			continue // in such a directory only its owner can replace it
		}
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the program " + path + " is not started with your keys: everybody can write to " + p,
			Hint: "take that right away: chmod o-w " + p + "; or put the program elsewhere on your PATH"}
	}
	return nil
}

// mine tells whether a file, or a link, is this user's or root's.
func mine(path string) bool {
	fi, err := os.Lstat(path)
	if err != nil {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && (st.Uid == 0 || int(st.Uid) == os.Getuid())
}

func runs(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}

// Names finds the names of the backends whose programs are beside berth or on
// the PATH.
func Names() []string {
	dirs := filepath.SplitList(os.Getenv("PATH"))
	if self, err := os.Executable(); err == nil {
		dirs = append(dirs, filepath.Dir(self))
	}
	var out []string
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) {
			continue // as exec.LookPath: not what lies in the current directory
		}
		found, err := filepath.Glob(filepath.Join(quoteGlob(dir), prefix+"*"))
		if err != nil {
			continue
		}
		for _, path := range found {
			name := strings.TrimPrefix(filepath.Base(path), prefix)
			if jobs.IsProgram(name) && runs(path) && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// quoteGlob writes a directory so that it stands for itself in a pattern.
func quoteGlob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}
