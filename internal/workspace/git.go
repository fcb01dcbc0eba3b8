package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Cmd is one run of git.
type Cmd struct {
	Args   []string // argv; Args[0] is "git"
	Dir    string
	Env    []string  // the whole environment, nothing is to be added
	Stdin  io.Reader // nil is empty
	Stdout io.Writer // nil is discarded
	Stderr io.Writer
}

// Git drives the git program.
type Git struct {
	// Run runs one command to its end. The error of a command that ran and
	// failed has, somewhere in its chain, a method ExitCode() int, as
	// [*exec.ExitError] has. Run must end the command when ctx is done.
	Run func(ctx context.Context, c Cmd) error
	// Work is where the work tree stands; "" is [WorkDir] in the attempt's
	// directory.
	Work string
	// Below is the directory in there that is the work tree, where it is a further one
	// ([jobs.WorkspaceDir]), and Others are those that stand in this one: their files are
	// no part of its result. All are slash-separated and relative to Work.
	Below  string
	Others []string
	// Progress takes lines of how far a clone is, many of them; nil asks git for none.
	Progress func(line string)
}

// topOf is where the work tree stands, or the one that it stands in.
func (g *Git) topOf(attemptDir string) string {
	if g.Work != "" {
		return g.Work
	}
	return filepath.Join(attemptDir, WorkDir)
}

func (g *Git) workOf(attemptDir string) string {
	return filepath.Join(g.topOf(attemptDir), filepath.FromSlash(g.Below))
}

// fixedConfig overrides what any repository's own configuration says. Options
// given here outrank every configuration file.
var fixedConfig = []string{
	"core.hooksPath=/dev/null",
	"core.fsmonitor=false",
	"core.untrackedCache=false",
	"core.attributesFile=/dev/null",
	"core.excludesFile=/dev/null",
	"core.autocrlf=false",
	"core.logAllRefUpdates=false",
	"core.quotePath=true",
	"protocol.allow=never",
	"protocol.file.allow=always",
	"gc.auto=0",
	"maintenance.auto=false",
	"submodule.recurse=false",
	"diff.ignoreSubmodules=all",
	"commit.gpgSign=false",
	"log.showSignature=false",
	"fetch.writeCommitGraph=false",
	"advice.detachedHead=false",
}

// userConfig is what holds over the user's own configuration in their work tree, where
// their filters run: no hook, no monitor, no work aside.
var userConfig = []string{
	"core.hooksPath=/dev/null",
	"core.fsmonitor=false",
	"gc.auto=0",
	"maintenance.auto=false",
	"submodule.recurse=false",
	"advice.detachedHead=false",
}

// userPassed are the variables of the user's that their own git has there.
var userPassed = []string{"HOME", "XDG_CONFIG_HOME", "USER", "LOGNAME", "GIT_CONFIG_GLOBAL"}

// passedOn are the only variables taken from berth's own environment: where
// programs and their libraries are found, and where temporary files go.
var passedOn = []string{"PATH", "LD_LIBRARY_PATH", "TMPDIR"}

func gitEnv() []string {
	env := []string{
		"HOME=/dev/null",
		"XDG_CONFIG_HOME=/dev/null",
		"LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_OPTIONAL_LOCKS=0",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_NO_LAZY_FETCH=1",
		// What the container's git may be too old for must not be the
		// default of a newer git on the host.
		"GIT_DEFAULT_REF_FORMAT=files",
	}
	for _, name := range passedOn {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// call is one git command before the fixed parts are added.
type call struct {
	args   []string
	gitDir string // given with --git-dir; empty lets git search from dir
	dir    string // empty is gitDir
	env    []string
	stdin  io.Reader
	stdout io.Writer
	told   func(line string)           // takes git's own progress from its standard error; may be nil
	user   func(string) (string, bool) // the user's environment, whose configuration holds; nil is none of it
}

// userEnv is the environment of git in the user's own work tree.
func userEnv(getenv func(string) (string, bool)) []string {
	env := []string{"LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_NO_LAZY_FETCH=1"}
	for _, name := range slices.Concat(userPassed, passedOn) {
		if v, ok := getenv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// run runs git and turns a failure into a GitError.
func (g *Git) run(ctx context.Context, c call) error {
	argv, config, env := []string{"git"}, fixedConfig, []string(nil)
	if c.user != nil {
		config, env = userConfig, userEnv(c.user)
	} else {
		env = gitEnv()
	}
	for _, kv := range config {
		argv = append(argv, "-c", kv)
	}
	if c.gitDir != "" {
		argv = append(argv, "--git-dir="+c.gitDir)
	}
	argv = append(argv, c.args...)
	dir := c.dir
	if dir == "" {
		dir = c.gitDir
	}
	stderr := &tail{limit: 64 << 10}
	said := io.Writer(stderr)
	if c.told != nil {
		said = &progress{tell: c.told, rest: stderr}
	}
	err := g.Run(ctx, Cmd{
		Args: argv, Dir: dir, Env: append(env, c.env...),
		Stdin: c.stdin, Stdout: c.stdout, Stderr: said,
	})
	if c, is := said.(*progress); is {
		_ = c.Close() // to a buffer
	}
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if errors.Is(err, exec.ErrNotFound) {
		return &Error{Kind: err, Msg: "git is not on PATH",
			Tip: "install git, or load its module on this machine", Err: err}
	}
	if _, serr := os.Stat(dir); dir != "" && serr != nil && exitCode(err) < 0 {
		return fmt.Errorf("git %s: its directory %q cannot be used: %w", subcommand(c.args), dir, serr)
	}
	return &GitError{Command: "git " + subcommand(c.args), Stderr: stderr.String(), Err: err}
}

// output runs git and gives what it wrote.
func (g *Git) output(ctx context.Context, c call) ([]byte, error) {
	var out bytes.Buffer
	c.stdout = &out
	err := g.run(ctx, c)
	return out.Bytes(), err
}

// line is output for commands that answer with one line, which may itself
// contain newlines when it is a path: only the last one is git's.
func (g *Git) line(ctx context.Context, c call) (string, error) {
	out, err := g.output(ctx, c)
	return strings.TrimSuffix(string(out), "\n"), err
}

func subcommand(args []string) string {
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "-c" || args[i] == "-C":
			i++
		case !strings.HasPrefix(args[i], "-"):
			return args[i]
		}
	}
	return strings.Join(args, " ")
}

// exitCode gives the exit code of a command that ran and failed, else -1.
func exitCode(err error) int {
	var coded interface{ ExitCode() int }
	if errors.As(err, &coded) {
		return coded.ExitCode()
	}
	return -1
}

// tail keeps the last bytes written to it.
type tail struct {
	limit int
	buf   []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - t.limit; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.buf) }
