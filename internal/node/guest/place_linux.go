package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/apptainer/names"
)

// place is what every command gets: the environment and the shell.
type place struct {
	env   []string
	shell string // path of bash, or of sh where there is no bash
	login bool   // sessions begin as login shells do
	dir   string // where sessions begin; "" is HOME
}

// dialect is how the shell is spoken to.
func (p *place) dialect() *dialect {
	if filepath.Base(p.shell) == "bash" {
		return &bashDialect
	}
	return &shDialect
}

// startDir is where sessions begin.
func (p *place) startDir() string {
	if p.dir != "" {
		return p.dir
	}
	return p.get("HOME")
}

// inHome makes the path below HOME of ~ and ~/PATH, as a shell would: nothing has
// evaluated the name of a working directory before.
func (p *place) inHome(dir string) string {
	if rest, ok := strings.CutPrefix(dir, "~"); ok && (rest == "" || rest[0] == '/') {
		return filepath.Clean(p.get("HOME") + rest)
	}
	return dir
}

// Shells are the places where a bash may be, the first that can be executed is
// taken; without one it is /bin/sh. Only tests change it.
var Shells = []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// newPlace makes a HOME and completes the environment that the guest was
// started with.
func newPlace(env, homes []string, user string) (place, error) {
	p := place{env: cleanEnv(env), shell: "/bin/sh"}
	for _, sh := range Shells {
		if executable(sh) == nil {
			p.shell = sh
			break
		}
	}
	wanted := slices.Clone(homes)
	if len(wanted) == 0 || wanted[0] == "" {
		// No home was asked for: what HOME says already is tried first.
		wanted = append([]string{p.get("HOME")}, wanted...)
	}
	home, err := makeHome(append(wanted, fallbackHome()))
	if err != nil {
		return place{}, err
	}
	p.set("HOME", home)
	if user == "" {
		user = userName(os.Getuid())
	}
	for _, v := range [][2]string{{"USER", user}, {"LOGNAME", user}, {"SHELL", p.shell}, {"LANG", "C.UTF-8"}, {"PATH", defaultPath}} {
		if p.get(v[0]) == "" {
			p.set(v[0], v[1])
		}
	}
	// The container program sets LANG=C: no user chose it, and with it tools
	// garble every name that is not ASCII.
	if p.get("LANG") == "C" && p.get("LC_ALL") == "" && inContainer(env) {
		p.set("LANG", "C.UTF-8")
	}
	// What the host calls its directory for temporary files need not be here.
	if fi, err := os.Stat(p.get("TMPDIR")); err != nil || !fi.IsDir() {
		p.set("TMPDIR", "/tmp")
	}
	return p, nil
}

// inContainer tells whether a container program made this environment.
func inContainer(env []string) bool {
	return slices.ContainsFunc(env, names.IsOwn)
}

func (p *place) get(name string) string { return getEnv(p.env, name) }

func (p *place) set(name, value string) { p.env = setEnv(p.env, name, value) }

// getEnv returns the last value of a name, as exec(3) programs mostly do.
func getEnv(env []string, name string) string {
	for _, e := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			return v
		}
	}
	return ""
}

// setEnv returns env with exactly one value for name.
func setEnv(env []string, name, value string) []string {
	env = slices.DeleteFunc(slices.Clone(env), func(e string) bool { return strings.HasPrefix(e, name+"=") })
	return append(env, name+"="+value)
}

// cleanEnv removes what the container program and berth left in the guest's
// environment, what makes a shell read files before its text, and what is of
// the shell that was there before.
func cleanEnv(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(e string) bool {
		name, _, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			return true
		}
		return names.OfContainers(name) || strings.HasPrefix(name, "BERTH_") ||
			slices.Contains([]string{"BASH_ENV", "ENV", "PWD", "OLDPWD", "SHLVL", "_", "PS1", "PROMPT_COMMAND"}, name)
	})
}

// addEnv puts a command's own variables over the place's.
func addEnv(env, more []string) ([]string, error) {
	for i, e := range more {
		name, value, ok := strings.Cut(e, "=")
		if !ok || name == "" || strings.ContainsRune(e, 0) {
			// The text may be a secret: only its number is told.
			return nil, fmt.Errorf("variable %d of the environment is not NAME=VALUE without NUL bytes", i+1)
		}
		env = setEnv(env, name, value)
	}
	return env, nil
}

func fallbackHome() string { return "/tmp/home-" + strconv.Itoa(os.Getuid()) }

// makeHome returns the first of the wanted directories that exists and can be
// written, or can be made. In a container HOME may name a directory that does
// not exist, and much fails without it: git config --global, pip, npm.
func makeHome(wanted []string) (string, error) {
	var errs []error
	for _, dir := range wanted {
		if !filepath.IsAbs(dir) || dir == "/" {
			continue
		}
		err := useHome(filepath.Clean(dir))
		if err == nil {
			return filepath.Clean(dir), nil
		}
		errs = append(errs, err)
	}
	return "", fmt.Errorf("no directory can be HOME: %w", errors.Join(errs...))
}

func useHome(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, os.ErrNotExist) {
		err = os.MkdirAll(filepath.Dir(dir), 0o755)
		if err == nil {
			err = os.Mkdir(dir, 0o700)
		}
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if filepath.Dir(dir) == "/tmp" {
		// Where /tmp is shared, another user may have made it first.
		if err := private(dir); err != nil {
			return err
		}
	}
	f, err := os.CreateTemp(dir, ".berth-*")
	if err != nil {
		return err
	}
	_ = f.Close()
	return os.Remove(f.Name())
}

// userName is the user's name as the environment's own files tell it.
func userName(uid int) string {
	b, _ := os.ReadFile("/etc/passwd")
	for line := range strings.Lines(string(b)) {
		if f := strings.Split(line, ":"); len(f) > 3 && f[2] == strconv.Itoa(uid) {
			return f[0]
		}
	}
	return strconv.Itoa(uid)
}
