package room

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The test program plays three parts: the process outside and the first of a room, and
// a command in it. The judge of the room allows "allowed.example" on two ports, and the
// address 192.0.2.7 on one.
const (
	roleVar   = "BERTH_ROOM_TEST"        // the part
	plainVar  = "BERTH_ROOM_TEST_PLAIN"  // as in a container: no_new_privs
	resolvVar = "BERTH_ROOM_TEST_RESOLV" // in place of /etc/resolv.conf
	coverVar  = "BERTH_ROOM_TEST_COVER"  // what is covered
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVar)
	switch {
	case role == "":
		os.Exit(m.Run())
	case strings.HasPrefix(role, "task:own "):
		f := strings.Fields(role)
		os.Exit(ownTask(f[1], f[2]))
	case strings.HasPrefix(role, "task:doors "):
		os.Exit(doorsTask(strings.TrimPrefix(role, "task:doors ")))
	case strings.HasPrefix(role, "task:"):
		os.Exit(task(strings.TrimPrefix(role, "task:")))
	case role == ownFirst:
		os.Exit(beOwnFirst())
	case strings.HasPrefix(role, ownContainer+" "):
		check(beOwnContainer(strings.HasSuffix(role, "true")))
	case role == doorsContainer:
		check(beDoorsContainer())
	default:
		os.Exit(enter(role))
	}
}

func enter(role string) int {
	if os.Args[0] != insideName {
		runtime.LockOSThread()
		check(prepare())
	}
	r, code, err := Enter(Options{})
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 78
	}
	if r == nil {
		return code
	}
	check(unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)) // as the guest does
	n, err := r.Names(Judge{
		Ask: func(name string) ([]uint16, bool) { return []uint16{443, 8080}, name == "allowed.example" },
		Flow: func(c *Conn) {
			_, _ = fmt.Fprintf(c, "%s %s %d\n", c.Name, c.Addr, c.Port)
			_, _ = io.Copy(c, c)
			_ = c.CloseWrite()
		},
	})
	check(err)
	if n.Prove() == nil {
		check(errors.New("names resolve before they are served"))
	}
	check(n.Serve())
	check(n.Prove())
	check(n.Literal(netip.MustParsePrefix("192.0.2.7/32"), []uint16{5432}))
	check(n.Literal(netip.MustParsePrefix("192.0.2.128/25"), []uint16{5433}))
	// As the guest starts commands.
	runtime.LockOSThread()
	_, err = DropCapabilities(r.CommandCapabilities(1<<unix.CAP_CHOWN | 1<<unix.CAP_SETUID | 1<<unix.CAP_KILL | 1<<unix.CAP_NET_BIND_SERVICE))
	check(err)
	check(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	check(os.Setenv(roleVar, "task:"+role))
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"task"}, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	check(err)
	return wait(pid)
}

func prepare() error {
	if os.Getenv(plainVar) != "" {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	for source, target := range map[string]string{os.Getenv(resolvVar): "/etc/resolv.conf", os.Getenv(coverVar): "/proc/keys"} {
		if source == "" {
			continue
		}
		if err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount(source, target, "", unix.MS_BIND, "")); err != nil {
			return err
		}
	}
	return nil
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// task is a command in the room, which tells what it found.
func task(what string) int {
	switch what {
	case "code":
		return 7
	case "fakeroot":
		fmt.Println(fakeroot())
		return 0
	case "stay":
		fmt.Println("here")
		select {}
	}
	seen := map[string]string{}
	try := map[string]func() (string, error){
		"go allowed":      func() (string, error) { return lookup("Allowed.Example.") },
		"go denied":       func() (string, error) { return lookup("denied.example") },
		"go odd":          func() (string, error) { return lookup("al\\lowed.example") },
		"reverse":         func() (string, error) { return reverse("198.18.0.1") },
		"reverse unknown": func() (string, error) { return reverse("198.19.0.1") },
		"connect":         func() (string, error) { return talk("tcp", "allowed.example:443") },
		"connect high":    func() (string, error) { return talk("tcp", "allowed.example:8080") },
		"unlisted port":   func() (string, error) { return talk("tcp", "allowed.example:444") },
		"never given":     func() (string, error) { return talk("tcp", "198.19.255.1:443") },
		"literal":         func() (string, error) { return talk("tcp", "192.0.2.7:5432") },
		"literal port":    func() (string, error) { return talk("tcp", "192.0.2.7:5431") },
		"network":         func() (string, error) { return talk("tcp", "192.0.2.200:5433") },
		"outside network": func() (string, error) { return talk("tcp", "192.0.2.8:5433") },
		"foreign":         func() (string, error) { return talk("tcp", "93.184.216.34:443") },
		"foreign v6":      func() (string, error) { return talk("tcp", "[2606:4700::1]:443") },
		"metadata":        func() (string, error) { return talk("tcp", "169.254.169.254:80") },
		"udp":             func() (string, error) { return talk("udp", "198.18.0.1:443") },
		"own server":      ownServer,
		"low port":        func() (string, error) { return "", listenOn("127.0.0.1:81") },
		"resolver's port": func() (string, error) { return "", listenOn(netip.AddrPortFrom(resolver(), 53).String()) },
		"route":           func() (string, error) { n, _ := openNetlink(); return "", n.local(netip.MustParsePrefix("1.1.1.1/32")) },
		"lo":              func() (string, error) { n, _ := openNetlink(); return "", n.up(loopback) },
		"mount":           func() (string, error) { return "", unix.Mount("proc", "/proc", "proc", 0, "") },
		"umount":          func() (string, error) { return "", unix.Unmount("/proc/keys", unix.MNT_DETACH) },
		"keys":            func() (string, error) { b, err := os.ReadFile("/proc/keys"); return string(b), err },
		"sysctl": func() (string, error) {
			return "", os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0)
		},
		"trace":            func() (string, error) { return "", unix.PtraceAttach(1) },
		"seize":            func() (string, error) { return "", unix.PtraceSeize(1) },
		"environ of pid 1": func() (string, error) { _, err := os.ReadFile("/proc/1/environ"); return "", err },
		"namespace":        func() (string, error) { _, err := os.Readlink("/proc/1/ns/net"); return "", err },
		"processes":        processes,
		"capabilities":     func() (string, error) { return status("CapEff") },
		"bounding":         func() (string, error) { return status("CapBnd") },
		"ambient":          func() (string, error) { return status("CapAmb") },
		"signals":          signals,
		"getent":           func() (string, error) { return program("getent", "ahostsv4", "allowed.example") },
		"getent denied":    func() (string, error) { return program("getent", "hosts", "denied.example") },
		"python": func() (string, error) {
			return program("python3", "-c", "import socket; s = socket.create_connection(('allowed.example', 443)); print(s.makefile().readline())")
		},
		"tcp question": tcpQuestion,
	}
	for name, f := range try {
		out, err := f()
		var no *net.DNSError
		var errno syscall.Errno
		switch {
		case errors.As(err, &no) && no.IsNotFound:
			out = "NXDOMAIN"
		case errors.As(err, &errno):
			out = unix.ErrnoName(errno)
		case err != nil:
			out = err.Error()
		}
		seen[name] = strings.TrimSpace(out)
	}
	_ = json.NewEncoder(os.Stdout).Encode(seen)
	return 0
}

// fakeroot gives a file to another user, who then looks at it.
func fakeroot() (string, error) {
	f, err := os.CreateTemp("/dev/shm", "room")
	if err != nil {
		return "", err
	}
	defer func() { _, _ = f.Chown(0, 0), os.Remove(f.Name()) }() // the directory is sticky
	if err := f.Chown(33, 33); err != nil {
		return "", err
	}
	c := exec.CommandContext(context.Background(), "cat", f.Name())
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 33, NoSetGroups: true}}
	if b, err := c.CombinedOutput(); err != nil {
		return string(b), err
	}
	return "as root", listenOn("127.0.0.1:81")
}

func lookup(name string) (string, error) {
	r := net.Resolver{PreferGo: true}
	got, err := r.LookupHost(context.Background(), name)
	return strings.Join(got, " "), err
}

func reverse(addr string) (string, error) {
	_, _ = lookup("allowed.example")
	r := net.Resolver{PreferGo: true}
	got, err := r.LookupAddr(context.Background(), addr)
	return strings.Join(got, " "), err
}

func talk(network, to string) (string, error) {
	d := net.Dialer{Resolver: &net.Resolver{PreferGo: true}}
	c, err := d.DialContext(context.Background(), network, to)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte("hello")); err != nil {
		return "", err
	}
	if c, ok := c.(*net.TCPConn); ok {
		_ = c.CloseWrite()
	}
	b, err := io.ReadAll(io.LimitReader(c, 100))
	return string(b), err
}

// ownServer listens where names do, on the loopback.
func ownServer() (string, error) {
	_, _ = lookup("allowed.example")
	return "", listenOn("127.0.0.1:8080")
}

func listenOn(addr string) error {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", addr)
	if err == nil {
		_ = l.Close()
	}
	return err
}

func processes() (string, error) {
	all, err := filepath.Glob("/proc/[0-9]*")
	return strconv.Itoa(len(all)), err
}

func status(word string) (string, error) {
	b, err := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, word+":"); ok {
			return rest, err
		}
	}
	return "", err
}

// signals sends each signal to the first process, and to one of its threads, in the
// two ways: kill(2), and with a sign that says it came another way.
func signals() (string, error) {
	threads, _ := os.ReadDir("/proc/1/task")
	for s := 1; s < 65; s++ {
		_ = unix.Kill(1, syscall.Signal(s))
		info := [32]int32{0: int32(s), 2: -1} // SI_QUEUE
		_, _, _ = unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, 1, uintptr(s), uintptr(unsafe.Pointer(&info)))
		for _, t := range threads {
			tid, _ := strconv.Atoi(t.Name())
			_ = unix.Tgkill(1, tid, syscall.Signal(s))
			_, _, _ = unix.Syscall6(unix.SYS_RT_TGSIGQUEUEINFO, 1, uintptr(tid), uintptr(s), uintptr(unsafe.Pointer(&info)), 0, 0)
		}
	}
	return talk("tcp", "allowed.example:443")
}

func program(argv ...string) (string, error) {
	if _, err := exec.LookPath(argv[0]); err != nil {
		return "not here", nil
	}
	b, err := exec.CommandContext(context.Background(), argv[0], argv[1:]...).CombinedOutput()
	return string(b), err
}

// tcpQuestion announces more than it sends, and more than may be; then it asks.
func tcpQuestion() (string, error) {
	server := resolver().String()
	for _, hostile := range []string{"\xff\xff", "\x00\x00", "\x00\x01x", "\x10\x00"} {
		if c, err := net.Dial("tcp", net.JoinHostPort(server, "53")); err == nil {
			_, _ = io.WriteString(c, hostile)
			_ = c.Close()
		}
	}
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, to string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", to)
	}}
	got, err := r.LookupHost(context.Background(), "allowed.example")
	return strings.Join(got, " "), err
}

func resolver() netip.Addr {
	all, _ := resolvers()
	return all[0]
}

// program of the room, as root or as in a container of a user's. Other users may not enter
// the directory of the test program: it is opened here.
func start(t *testing.T, role string, plain bool, env ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Open("/proc/self/exe")
	must(t, err)
	t.Cleanup(func() { _ = self.Close() })
	c := exec.CommandContext(t.Context(), "/proc/self/fd/3")
	c.ExtraFiles = []*os.File{self}
	c.Dir, c.Env = "/", append(os.Environ(), append(env, roleVar+"="+role)...)
	if plain {
		c.Env = append(c.Env, plainVar+"=1")
		if os.Getuid() == 0 {
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
	}
	return c
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// whoever calls f twice: as root, if it is, and as a user without capabilities.
func whoever(t *testing.T, f func(t *testing.T, plain bool)) {
	needRooms(t)
	if os.Getuid() == 0 {
		t.Run("root", func(t *testing.T) { f(t, false) })
	}
	t.Run("user", func(t *testing.T) { f(t, true) })
}

// needRooms skips a test where the system lets nobody make a room.
func needRooms(t *testing.T) {
	t.Helper()
	var out bytes.Buffer
	c := start(t, "code", true)
	c.Stderr = &out
	if _ = c.Run(); c.ProcessState.ExitCode() == 78 {
		t.Skipf("no room can be made here: %s", out.String())
	}
}

func TestRoom(t *testing.T) {
	whoever(t, func(t *testing.T, plain bool) { found(t, plain) })
}

// TestRoomResolvers: name servers on the loopback, and of IPv6.
func TestRoomResolvers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root covers a file of /etc")
	}
	needRooms(t)
	for _, text := range []string{"nameserver 127.0.0.53\noptions edns0 trust-ad\n", "nameserver fd00::53\n", "search example\n"} {
		file := filepath.Join(t.TempDir(), "resolv.conf")
		must(t, os.WriteFile(file, []byte(text), 0o644))
		found(t, false, resolvVar+"="+file)
	}
}

// found compares what a command finds in a room with what it should.
func found(t *testing.T, plain bool, env ...string) {
	t.Helper()
	c := start(t, "all", plain, env...)
	c.Stderr = os.Stderr
	out, err := c.Output()
	must(t, err)
	var seen map[string]string
	must(t, json.Unmarshal(out, &seen))
	compare(t, seen, plain)
}

func compare(t *testing.T, seen map[string]string, plain bool) {
	t.Helper()
	none, bounding := "0000000000000000", "0000000000000000"
	if !plain {
		bounding = fmt.Sprintf("%016x", 1<<unix.CAP_CHOWN|1<<unix.CAP_SETUID|1<<unix.CAP_KILL)
	}
	want := map[string]string{
		"go allowed": "198.18.0.1", "go denied": "NXDOMAIN", "go odd": "NXDOMAIN", "reverse": "allowed.example.", "reverse unknown": "NXDOMAIN",
		"connect": "allowed.example 198.18.0.1 443\nhello", "connect high": "allowed.example 198.18.0.1 8080\nhello",
		"unlisted port": "ECONNREFUSED", "never given": "ECONNREFUSED", "udp": "ECONNREFUSED",
		"literal": "192.0.2.7 5432\nhello", "literal port": "ECONNREFUSED", "network": "192.0.2.200 5433\nhello", "outside network": "ENETUNREACH",
		"foreign": "ENETUNREACH", "foreign v6": "ENETUNREACH", "metadata": "ENETUNREACH",
		"own server": "", "low port": "EACCES", "resolver's port": "EACCES", "route": "EPERM", "lo": "EPERM", "mount": "EPERM", "umount": "EPERM",
		"keys": "", "sysctl": "EROFS", "trace": "EPERM", "seize": "EPERM", "environ of pid 1": "EACCES", "namespace": "EACCES",
		"processes": "2", "capabilities": bounding, "bounding": bounding, "ambient": none,
		"signals": "allowed.example 198.18.0.1 443\nhello", "getent denied": "exit status 2",
		"python": "allowed.example 198.18.0.1 443", "tcp question": "198.18.0.1",
	}
	if seen["python"] == "not here" {
		want["python"] = "not here"
	}
	if got := seen["getent"]; !strings.HasPrefix(got, "198.18.0.1 ") && got != "not here" {
		t.Errorf("getent: %q", got)
	}
	delete(seen, "getent")
	if seen["getent denied"] == "not here" {
		want["getent denied"] = "not here"
	}
	for name, is := range seen {
		if is != want[name] {
			t.Errorf("%s: %q, want %q", name, is, want[name])
		}
	}
	if len(seen) != len(want) {
		t.Errorf("%d things were tried, %d expected", len(seen), len(want))
	}
}

// TestRoomEnds: the exit code of the first process is passed on, and none of the two
// outlives the other.
func TestRoomEnds(t *testing.T) {
	whoever(t, func(t *testing.T, plain bool) {
		c := start(t, "code", plain)
		_ = c.Run()
		if code := c.ProcessState.ExitCode(); code != 7 {
			t.Errorf("exit code %d", code)
		}
		for _, inner := range []bool{false, true} {
			c := start(t, "stay", plain)
			out, err := c.StdoutPipe()
			must(t, err)
			must(t, c.Start())
			r := bufio.NewReader(out)
			if line, err := r.ReadString('\n'); line != "here\n" {
				t.Fatalf("%q, %v", line, err)
			}
			victim := c.Process.Pid
			if inner {
				b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", victim))
				must(t, err)
				_, err = fmt.Sscan(string(b), &victim)
				must(t, err)
			}
			must(t, unix.Kill(c.Process.Pid, syscall.SIGTERM)) // is not heard
			must(t, unix.Kill(victim, syscall.SIGKILL))
			// The command has the pipe, too: this ends when it has.
			_, err = io.Copy(io.Discard, r)
			must(t, err)
			_ = c.Wait()
			if code := c.ProcessState.ExitCode(); inner && code != 137 {
				t.Errorf("exit code %d", code)
			}
		}
	})
}

// TestFakeroot: a room has all ids of a container with several extents of them.
func TestFakeroot(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root gives a namespace many ids")
	}
	needRooms(t)
	c := start(t, "fakeroot", true)
	ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 65534, Size: 1}, {ContainerID: 1, HostID: 100_000, Size: 65_536}}
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true, Credential: &syscall.Credential{},
	}
	c.Stderr = os.Stderr
	out, err := c.Output()
	must(t, err)
	if got := string(out); got != "as root listen tcp 127.0.0.1:81: bind: permission denied\n" {
		t.Errorf("%q", got)
	}
}

// TestNoRoom: where the kernel refuses one, the process goes on as it was.
func TestNoRoom(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root covers a file of /proc")
	}
	needRooms(t)
	var out bytes.Buffer
	c := start(t, "code", false, coverVar+"=/dev/null")
	c.Stderr = &out
	_ = c.Run()
	if code := c.ProcessState.ExitCode(); code != 78 || !strings.Contains(out.String(), "/proc/keys") {
		t.Errorf("%d, %s", code, out.String())
	}
}
