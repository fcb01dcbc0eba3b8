package apptainer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/internal/sys/pattern"
	"berth/internal/sys/run"
	"berth/jobs"
)

// programs are the names looked for, in order.
var programs = []string{"apptainer", "singularity"}

// FindProgram returns the path of apptainer, else singularity, on the given
// PATH. Both take the command line that [Backend.Argv] writes.
func FindProgram(pathList string) (string, error) {
	for _, name := range programs {
		for _, dir := range filepath.SplitList(pathList) {
			if !filepath.IsAbs(dir) {
				continue
			}
			p := filepath.Join(dir, name)
			if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
				return p, nil
			}
		}
	}
	host, _ := os.Hostname()
	return "", &jobs.Error{Kind: jobs.KindConfig, Msg: "neither apptainer nor singularity is on the PATH of " + host,
		Hint: `if the site has it as a module, name it in a profile: modules = ["apptainer"]; without containment: --backend local`}
}

// Version asks a program for its version, such as "1.4.5".
func Version(ctx context.Context, on jobs.Starter, program string) (string, error) {
	out, err := run.Output(ctx, on, jobs.Cmd{Argv: []string{program, "--version"}, Env: Environ(os.Getenv, "")})
	if err != nil {
		return "", err
	}
	if v := parseVersion(string(out)); v != "" {
		return v, nil
	}
	return "", fmt.Errorf("%s --version printed no version: %.100q", program, out)
}

// versionLine is "apptainer version 1.4.5" or "singularity-ce version
// 4.1.0-jammy"; sites' wrappers print more around it.
var versionLine = pattern.Lazy(`(?m)^(?:apptainer|singularity(?:-ce|-pro)?) version v?([0-9]+\.[0-9]\S*)\s*$`)

// ParseVersion reads what the program prints with --version; "" is no version.
func ParseVersion(out string) string { return parseVersion(out) }

func parseVersion(out string) string {
	m := versionLine().FindStringSubmatch(out)
	if m == nil {
		return ""
	}
	return m[1]
}

// Check looks for the program on this machine and asks its version.
func (b *Backend) Check(ctx context.Context) jobs.Checked {
	p, err := FindProgram(os.Getenv("PATH"))
	if err != nil {
		return jobs.Checked{Health: jobs.Undetected, Reason: err.Error(), Hint: jobs.HintOf(err)}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	v, err := Version(ctx, b.On, p)
	if err != nil {
		return jobs.Checked{Health: jobs.Unhealthy, Reason: p + " does not run: " + err.Error(), Hint: "try: " + p + " --version"}
	}
	return jobs.Checked{Health: jobs.Healthy, Reason: p, Version: v}
}

// Environ is the environment the container program itself is started with. It
// is made from nothing: APPTAINER_*, SINGULARITY_* (which re-add binds and
// flags), APPTAINERENV_* and proxies with passwords (which pass --cleanenv)
// do not get in. dir, when not empty, takes the program's configuration and
// cache, which it would otherwise make in the user's home.
func Environ(getenv func(string) string, dir string) []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "XDG_RUNTIME_DIR", "LD_LIBRARY_PATH"} {
		if v := getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	if dir != "" {
		env = append(env,
			"APPTAINER_CONFIGDIR="+filepath.Join(dir, "config"), "APPTAINER_CACHEDIR="+filepath.Join(dir, "cache"),
			"SINGULARITY_CACHEDIR="+filepath.Join(dir, "cache"))
	}
	return env
}

// versionAtLeast compares "MAJOR.MINOR..." with a wanted version; an unknown
// version is never enough.
func versionAtLeast(v string, major, minor int) bool {
	parts := strings.SplitN(v, ".", 3)
	if len(parts) < 2 {
		return false
	}
	maj, err1 := strconv.Atoi(parts[0])
	mnr, err2 := strconv.Atoi(parts[1])
	if err1 != nil || err2 != nil {
		return false
	}
	return maj > major || (maj == major && mnr >= minor)
}
