//go:build linux

package network

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"berth/test/fakes/internet"
)

// user is an ordinary one: root's containers have other rights.
const user = 4242

// On the loopback of the node, which no task may reach.
const (
	loopPort = internet.LoopPort
	abstract = "berth-test-abstract"
)

// machine is the node of all tests.
var machine struct {
	once sync.Once
	err  error

	mu       sync.Mutex
	visitors []string // of the services that no task may reach
}

// needNode makes what stands on the node, or skips.
func needNode(t *testing.T) {
	t.Helper()
	if top == "" {
		t.Skip("only root makes a machine of its own")
	}
	if _, err := exec.LookPath("bwrap"); err != nil {
		t.Skip("bwrap is not here")
	}
	machine.once.Do(func() { machine.err = furnish() })
	must(t, machine.err)
}

func furnish() error {
	for _, dir := range []string{"home", "tmp"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(top, dir), 0o700), os.Chown(filepath.Join(top, dir), user, user)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(top, "root"), 0o700); err != nil {
		return err
	}
	for _, at := range [][2]string{{"tcp", "127.0.0.1:" + strconv.Itoa(loopPort)}, {"tcp", "[::1]:" + strconv.Itoa(loopPort)}, {"tcp",
		internet.NodeAddr + ":" + strconv.Itoa(loopPort)}, {"unix", "@" + abstract}, {"unix", socketPath()}} {
		l, err := net.Listen(at[0], at[1])
		if err != nil {
			return err
		}
		go func() {
			_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("service of the node\n")) }))
		}()
	}
	return os.Chmod(socketPath(), 0o777)
}

// socketPath is the one of a service of this user's, such as the runner's own.
func socketPath() string { return filepath.Join(top, "tmp", "service.sock") }

// command is one of the user's, on the node itself.
func command(t *testing.T, argv ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	c := exec.CommandContext(ctx, argv[0], argv[1:]...)
	c.Dir = filepath.Join(top, "home")
	c.Env = append(clientEnv(filepath.Join(top, "internet", "ca.pem")), "HOME="+c.Dir, "USER=alice", "LOGNAME=alice",
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/go/bin", "TMPDIR="+filepath.Join(top, "tmp"), "LANG=C.UTF-8")
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	return c
}

// ran is how a command ended.
type ran struct {
	out, err string
	code     int
}

func run(t *testing.T, c *exec.Cmd) ran {
	t.Helper()
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return ran{out.String(), errs.String(), c.ProcessState.ExitCode()}
}

// clientEnv has programs trust the authority whose certificate a file is.
func clientEnv(ca string) []string {
	return []string{
		"SSL_CERT_FILE=" + ca, "CURL_CA_BUNDLE=" + ca, "GIT_SSL_CAINFO=" + ca, "PIP_CERT=" + ca, "REQUESTS_CA_BUNDLE=" + ca, "NODE_EXTRA_CA_CERTS=" + ca,
		"NPM_CONFIG_CAFILE=" + ca,
		"GIT_SSH_COMMAND=ssh -F /dev/null -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR", "GIT_TERMINAL_PROMPT=0",
	}
}

// arrived is what the internet has seen since mark events, but for questions to its name server.
func arrived(t *testing.T, mark int) []internet.Event {
	t.Helper()
	all, err := internet.ReadLog(filepath.Join(top, "internet", "log.jsonl"))
	must(t, err)
	return all[min(mark, len(all)):]
}

func mark(t *testing.T) int { return len(arrived(t, 0)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
