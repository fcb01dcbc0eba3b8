//go:build linux

package internet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// Parts of a program that runs beside an internet, by roleVar.
const (
	roleVar  = "BERTH_TEST_INTERNET"
	roleNode = "node"
	roleNet  = "internet"
	roleRun  = "run"
)

// What [Around] makes. The node's own addresses are of another network than those of sites:
// a judge refuses addresses of its own machine.
const (
	Sites    = "11.22.33.0/24"
	NodeAddr = "11.22.34.2"
	nodeVia  = "11.22.34.1"
	Resolver = "11.22.33.53"
	Other    = "11.22.33.11" // other.test
	Metadata = "169.254.169.254"
	Private  = "10.99.0.1"
	nodeV6   = "2602:fc11:34::2"
	nodeVia6 = "2602:fc11:34::1"
)

// ErrNoNamespaces is that of a process that may make none.
var ErrNoNamespaces = errors.New("only root makes network namespaces")

// Around has this program started again on a machine of its own, of namespaces, whose only
// way out is a small internet in another network namespace; run is called there. The name server of that machine
// is the internet's. All of it ends with this process, and nothing of the machine changes.
// Dir has ca.pem and log.jsonl in it. It is to be called first of all, and with the same
// arguments; the environment says which part a process plays.
func Around(dir string, run func() int) (code int, err error) {
	switch role := os.Getenv(roleVar); role {
	case roleNet:
		return 1, beInternet(dir)
	case roleNode:
		return beNode(dir)
	case roleRun:
		if err := os.Unsetenv(roleVar); err != nil {
			return 0, err
		}
		return run(), nil
	}
	if os.Getuid() != 0 {
		return 0, ErrNoNamespaces
	}
	c := again(roleNode, syscall.CLONE_NEWNET|syscall.CLONE_NEWNS|syscall.CLONE_NEWPID)
	c.Stdin = os.Stdin
	err = c.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return ended.ExitCode(), nil
	}
	return 0, err
}

func again(role string, flags uintptr) *exec.Cmd {
	c := exec.Command("/proc/self/exe", os.Args[1:]...)
	c.Args[0] = os.Args[0]
	c.Env = append(os.Environ(), roleVar+"="+role)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
	return c
}

// beNode is the first process of the node: with it ends all that the tests have left.
func beNode(dir string) (code int, err error) {
	if err := errors.Join(syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""), syscall.Mount("proc", "/proc", "proc", 0, "")); err != nil {
		return 0, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	resolv := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver "+Resolver+"\noptions timeout:1 attempts:1\n"), 0o644); err != nil {
		return 0, err
	}
	target, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if err != nil {
		return 0, err
	}
	if err := syscall.Mount(resolv, target, "", syscall.MS_BIND, ""); err != nil {
		return 0, fmt.Errorf("bind %s: %w", target, err)
	}
	c := again(roleNet, syscall.CLONE_NEWNET)
	in, err := c.StdinPipe()
	if err != nil {
		return 0, err
	}
	c.Stdout = nil
	out, err := c.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := c.Start(); err != nil {
		return 0, err
	}
	if err := ip("link set lo up",
		"link add net type veth peer name node netns "+strconv.Itoa(c.Process.Pid),
		"addr add "+NodeAddr+"/24 dev net", "-6 addr add "+nodeV6+"/64 dev net nodad", "link set net up",
		"route add default via "+nodeVia, "-6 route add default via "+nodeVia6+" dev net"); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(in, "go\n"); err != nil {
		return 0, err
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		return 0, fmt.Errorf("the internet did not start: %q, %w", line, err)
	}
	tests := again(roleRun, 0)
	tests.Stdin = os.Stdin
	if err := tests.Start(); err != nil {
		return 0, err
	}
	for {
		var status syscall.WaitStatus
		switch pid, err := syscall.Wait4(-1, &status, 0, nil); {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 0, err
		case pid == tests.Process.Pid && status.Signaled():
			return 128 + int(status.Signal()), nil
		case pid == tests.Process.Pid:
			return status.ExitStatus(), nil
		case pid == c.Process.Pid:
			return 0, errors.New("the internet has ended")
		}
	}
}

// beInternet is the other side of the node's only link. It has the address of every
// host that a test might reach.
func beInternet(dir string) error {
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil { // until the link is there
		return err
	}
	if err := ip("link set lo up", "addr add "+nodeVia+"/24 dev node", "-6 addr add "+nodeVia6+"/64 dev node nodad", "link set node up",
		"route add local "+Sites+" dev lo", "route add local 10.99.0.0/24 dev lo", "route add local "+Metadata+"/32 dev lo"); err != nil {
		return err
	}
	i, err := Start(Options{Base: netip.MustParsePrefix(Sites), Node: netip.MustParseAddr(NodeAddr), Dir: dir, Device: "node"})
	if err != nil {
		return err
	}
	defer i.Close()
	if _, err := io.WriteString(os.Stdout, "ready\n"); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, in)
	return err
}

// ip gives orders to the program of iproute2.
func ip(orders ...string) error {
	for _, o := range orders {
		if out, err := exec.Command("sh", "-c", "PATH=$PATH:/usr/sbin:/sbin exec ip "+o).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", o, err, out)
		}
	}
	return nil
}
