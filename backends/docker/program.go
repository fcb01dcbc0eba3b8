package docker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"berth/internal/sys/run"
	"berth/jobs"
)

// How long the daemon may take to answer. A daemon that is gone, or that hangs
// on a dead file system, must not hang berth; one of a machine that has much else
// to do takes its time.
const (
	checkLimit  = 10 * time.Second
	askLimit    = time.Minute
	changeLimit = 2 * time.Minute // removing or making a container copies files with some storage drivers
)

// program is docker or podman, and how it is started.
type program struct {
	on   jobs.Starter
	path string
	env  []string
}

// names are the programs looked for, in order.
var names = []string{"docker", "podman"}

// find returns the program that is named, by its path or on the PATH, else
// docker, else podman.
func find(on jobs.Starter, named string) (*program, error) {
	for _, name := range names {
		if named != "" {
			name = named
		}
		if path, err := exec.LookPath(name); err == nil {
			return &program{on: on, path: path, env: Environ(os.Getenv)}, nil
		}
	}
	host, _ := os.Hostname()
	if named != "" {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the program " + named + " is not on " + host, Hint: "give the path of docker or podman"}
	}
	return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "neither docker nor podman is on the PATH of " + host,
		Hint: "install one of them (Debian: apt-get install docker.io, or podman); or --backend singularity"}
}

// all returns every program there is.
func all(on jobs.Starter) []*program {
	var out []*program
	for _, name := range names {
		if p, err := find(on, name); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// Environ is the environment the program itself is started with, made from
// nothing but what tells it where its daemon and its user's files are. It is
// not the container's.
func Environ(getenv func(string) string) []string {
	env := []string{}
	for _, name := range []string{
		"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "DBUS_SESSION_BUS_ADDRESS",
		"DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT", "DOCKER_CERT_PATH", "DOCKER_TLS", "DOCKER_TLS_VERIFY", "DOCKER_API_VERSION",
		"CONTAINER_HOST", "CONTAINER_CONNECTION", "CONTAINERS_CONF", "CONTAINERS_STORAGE_CONF", "REGISTRY_AUTH_FILE",
	} {
		if v := getenv(name); v != "" {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// ask runs the program to its end, at most for limit, and returns what it
// wrote, without the last line's end.
func (p *program) ask(ctx context.Context, limit time.Duration, args ...string) (string, error) {
	out, _, err := p.tell(ctx, limit, args...)
	return out, err
}

// tell is ask that also returns the warnings.
func (p *program) tell(ctx context.Context, limit time.Duration, args ...string) (out, warnings string, err error) {
	silent := errors.New("it did not answer within " + limit.String())
	ctx, cancel := context.WithTimeoutCause(ctx, limit, silent)
	defer cancel()
	var said bytes.Buffer
	b, err := run.Output(ctx, p.on, jobs.Cmd{Argv: append([]string{p.path}, args...), Dir: "/", Env: p.env, Stderr: &first{w: &said, left: 64 << 10}})
	if err != nil {
		return "", "", p.explain(err)
	}
	return strings.TrimRight(string(b), "\r\n"), said.String(), nil
}

// first passes on as many bytes as are left and drops the others.
type first struct {
	w    io.Writer
	left int
}

func (f *first) Write(b []byte) (int, error) {
	n := min(len(b), f.left)
	f.left -= n
	_, err := f.w.Write(b[:n])
	return len(b), err
}

// said is what the program wrote about its failure, without the words that
// every message of its has.
func said(err error) string {
	var failed *run.Error
	if !errors.As(err, &failed) {
		return err.Error()
	}
	text := failed.Stderr
	for _, prefix := range []string{"Error response from daemon: ", "docker: ", "Error: "} {
		text = strings.ReplaceAll(text, prefix, "")
	}
	if failed.Err != nil || text == "" {
		return failed.Error()
	}
	// Below its complaint docker repeats how to get help.
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if strings.HasPrefix(l, "See '") || strings.HasPrefix(l, "Run '") {
			lines = lines[:i]
			break
		}
	}
	text = strings.Join(strings.Fields(strings.Join(lines[max(0, len(lines)-3):], " ")), " ")
	if len(text) > 600 {
		text = strings.ToValidUTF8(text[:600], "") + "..."
	}
	return text
}

// explain gives an error of the program its kind and hint.
func (p *program) explain(err error) error {
	text := said(err)
	low := strings.ToLower(text)
	e := &jobs.Error{Kind: jobs.KindInfra, Msg: filepath.Base(p.path), Err: errors.New(text)}
	switch {
	case strings.Contains(low, "permission denied") && (strings.Contains(low, "socket") || strings.Contains(low, ".sock")):
		e.Kind = jobs.KindAuth
		e.Hint = "is your user in the group docker? sudo usermod -aG docker " + user() + ", and log in again. " +
			"Without root: dockerd-rootless-setuptool.sh install, or podman"
	case strings.Contains(low, "cannot connect to the docker daemon"),
		strings.Contains(low, "error during connect"),
		strings.Contains(low, "failed to connect to the docker api"),
		strings.Contains(low, "unable to connect to podman"):
		e.Hint = "is it running? sudo systemctl start docker"
		if sock := rootlessSocket(); sock != "" && os.Getenv("DOCKER_HOST") == "" {
			e.Hint = "a rootless daemon's socket is here: export DOCKER_HOST=unix://" + sock
		}
	case strings.Contains(low, "did not answer within"):
		e.Kind, e.Hint = jobs.KindAgain, "the daemon hangs: "+p.path+" info; sudo systemctl restart docker"
	case strings.Contains(low, "no space left on device"):
		e.Hint = "see what takes the space: " + p.path + " system df"
	case strings.Contains(low, "context") && strings.Contains(low, "not found"):
		e.Kind, e.Hint = jobs.KindConfig, "docker context ls lists the contexts; DOCKER_CONTEXT names one"
	default:
		if ctxErr := contextError(err); ctxErr != nil {
			return ctxErr
		}
	}
	return e
}

// contextError returns the end of a context as it is.
func contextError(err error) error {
	for _, c := range []error{context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, c) {
			return err
		}
	}
	return nil
}

func user() string {
	if u := os.Getenv("USER"); u != "" {
		return u
	}
	return "$USER"
}

// rootlessSocket is where dockerd-rootless listens, if it does.
func rootlessSocket() string {
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		dir = "/run/user/" + strconv.Itoa(os.Getuid())
	}
	sock := filepath.Join(dir, "docker.sock")
	if fi, err := os.Stat(sock); err != nil || fi.Mode()&os.ModeSocket == 0 {
		return ""
	}
	return sock
}

// absent tells whether the program said that there is no such container (or
// image), in Docker's words or in Podman's.
func absent(err error) bool {
	if err == nil {
		return false
	}
	low := strings.ToLower(err.Error())
	for _, w := range []string{
		"no such container", "no such object", "no such image", "no such volume",
		"no container with name or id", "image not known", "failed to find image",
	} {
		if strings.Contains(low, w) {
			return true
		}
	}
	return false
}
