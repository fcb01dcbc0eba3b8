package container

import (
	"bufio"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"berth/jobs"

	"golang.org/x/sys/unix"
)

// stranger has this binary listen as another user, in a user namespace of its own
// or not, until the test ends.
func stranger(t *testing.T, name string, attr *syscall.SysProcAttr) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = []string{"CONTAINER_LISTEN=" + name}
	cmd.SysProcAttr = attr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
}

// listenForever is that binary.
func listenForever(name string) int {
	if rest, ok := strings.CutPrefix(name, "full:"); ok { // it takes no one any more
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: rest}), unix.Listen(fd, 0))
		}
		c, derr := net.Dial("unix", rest)
		if err = errors.Join(err, derr); err != nil {
			return 1
		}
		defer func() { _ = c.Close() }()
		_, _ = os.Stdout.WriteString("listening\n")
		select {}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return 1
	}
	_, _ = os.Stdout.WriteString("listening\n")
	for {
		c, err := l.Accept()
		if err != nil {
			return 0
		}
		_ = c.Close()
	}
}

// No one stops other people's jobs with the name of a daemon; a daemon's, and
// what is the user's own, does.
func TestJudge(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be somebody else")
	}
	tail := strconv.Itoa(os.Getpid())
	as := func(uid int) *syscall.SysProcAttr {
		return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	}
	apart := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}}}
	stranger(t, "@munge-bob-"+tail, as(12345))
	stranger(t, "@munge-daemon-"+tail, as(105))
	stranger(t, "full:@munge-bob-full-"+tail, as(12345))
	stranger(t, "full:@munge-daemon-full-"+tail, as(105))
	open := t.TempDir()
	if err := errors.Join(os.Chmod(open, 0o777), os.Chmod(filepath.Dir(open), 0o755)); err != nil {
		t.Fatal(err)
	}
	stranger(t, "full:"+filepath.Join(open, "agent.1"), as(12345))
	stranger(t, "@munge-task-"+tail, apart)
	stranger(t, "@dbus-mine-"+tail, nil)
	stranger(t, "@dbus-daemon-"+tail, as(105))
	dir := t.TempDir()
	path := filepath.Join(dir, "munge.socket.2")
	stranger(t, path, nil)
	binds := []jobs.Mount{{Source: "/", Destination: "/host"}, {Source: dir, Destination: "/host/run/munge"}, {Source: open, Destination: "/host/open"}}
	for _, c := range []struct {
		s     jobs.Socket
		allow string
		bad   bool
	}{
		{s: jobs.Socket{Path: "@munge-bob-" + tail, What: "munge"}},
		{s: jobs.Socket{Path: "@munge-bob-full-" + tail, What: "munge"}},
		{s: jobs.Socket{Path: "@munge-daemon-full-" + tail, What: "munge"}, bad: true},
		{s: jobs.Socket{Path: "/host/open/agent.1", What: "an ssh agent", Mount: "/host/open"}},
		{s: jobs.Socket{Path: "@munge-daemon-" + tail, What: "munge"}, bad: true},
		{s: jobs.Socket{Path: "@munge-daemon-" + tail, What: "munge"}, allow: "munge"},
		{s: jobs.Socket{Path: "@munge-daemon-" + tail, What: "munge"}, allow: "@munge-daemon-*"},
		{s: jobs.Socket{Path: "@munge-daemon-" + tail, What: "munge"}, allow: "tmux", bad: true},
		{s: jobs.Socket{Path: "@munge-task-" + tail, What: "munge"}},
		{s: jobs.Socket{Path: "@dbus-mine-" + tail, What: "D-Bus", Own: true}, bad: true},
		{s: jobs.Socket{Path: "@dbus-daemon-" + tail, What: "D-Bus", Own: true}},
		{s: jobs.Socket{Path: "/host/run/munge/munge.socket.2", What: "munge", Mount: "/host/run/munge"}, bad: true},
		{s: jobs.Socket{Path: "/host/run/munge/munge.socket.2", What: "munge"}, allow: path},
		// No one can say who listens there.
		{s: jobs.Socket{Path: "/elsewhere/munge.socket.2", What: "munge", Mount: "/elsewhere"}, bad: true},
		{s: jobs.Socket{Path: "@munge-nobody-" + tail, What: "munge"}, bad: true},
	} {
		o := &Options{Opening: &jobs.Opening{}, Binds: binds, Log: slog.New(slog.DiscardHandler)}
		if c.allow != "" {
			o.Allow = []string{c.allow}
		}
		err := o.judge(&jobs.Seen{Sockets: []jobs.Socket{c.s}})
		if bad := jobs.KindOf(err) == jobs.KindConfig; bad != c.bad || bad && !strings.Contains(jobs.HintOf(err), "terminal.host_sockets") {
			t.Errorf("%+v, allow %q: %v", c.s, c.allow, err)
		}
	}
	many := make([]jobs.Socket, jobs.MostSockets+1)
	for i := range many {
		many[i] = jobs.Socket{Path: "@munge-bob-" + tail, What: "munge"}
	}
	o := &Options{Opening: &jobs.Opening{}, Log: slog.New(slog.DiscardHandler)}
	if err := o.judge(&jobs.Seen{Sockets: many}); jobs.KindOf(err) != jobs.KindInfra || jobs.BlameOf(err) != jobs.BlameNode {
		t.Errorf("of very many: %v", err)
	}
	for i := range many {
		many[i] = jobs.Socket{Path: path, What: "munge"}
	}
	if err := o.judge(&jobs.Seen{Sockets: many}); jobs.KindOf(err) != jobs.KindConfig {
		t.Errorf("of very many with a path: %v", err)
	}
}
