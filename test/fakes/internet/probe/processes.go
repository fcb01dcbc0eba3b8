//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

var processes = []probe{
	{"an abstract socket of the node", func() (open bool, seen string) {
		for _, kind := range []string{"unix", "unixgram", "unixpacket"} {
			c, err := net.DialTimeout(kind, "@"+world.abstract, time.Second)
			if err == nil {
				_ = c.Close()
				open = true
			}
			seen += fmt.Sprint(err) + " "
		}
		return open, seen
	}},
	{"sockets in the file system", sockets},
	{"tracing the first process", func() (open bool, seen string) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for _, pid := range guests() {
			err := unix.PtraceSeize(pid)
			if err == nil { // and goes on
				_ = unix.PtraceInterrupt(pid)
				_, _ = unix.Wait4(pid, nil, unix.WALL, nil)
				err, open = unix.PtraceDetach(pid), true
				seen += "traced, detached "
			}
			seen += fmt.Sprintf("%d: %v ", pid, err)
		}
		return open, seen
	}},
	{"the first process in /proc", func() (open bool, seen string) {
		for _, pid := range guests() {
			for _, file := range []string{"mem", "environ", "maps", "auxv", "stack", "syscall", "fd/0", "fd/1", "fd/3", "fd/4", "fd/5", "root/etc/passwd",
				"cwd/.", "map_files"} {
				f, err := os.OpenFile(fmt.Sprintf("/proc/%d/%s", pid, file), os.O_RDONLY|unix.O_NONBLOCK, 0)
				if err != nil {
					continue
				}
				// Who reads of its streams takes from the guest.
				switch {
				case file == "map_files":
					_, err = f.Readdirnames(1)
				case !strings.HasPrefix(file, "fd/") && file != "cwd/.":
					_, err = f.Read(make([]byte, 1))
				}
				if _ = f.Close(); err == nil {
					open, seen = true, seen+fmt.Sprintf("%d/%s ", pid, file)
				}
			}
		}
		return open, seen
	}},
	{"memory and files of the first process", func() (open bool, seen string) {
		for _, pid := range guests() {
			b := make([]byte, 8)
			local := []unix.Iovec{{Base: &b[0], Len: 8}}
			_, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
			open = open || err == nil
			seen += fmt.Sprintf("%d: %v", pid, err)
			fd, err := unix.PidfdOpen(pid, 0)
			if err == nil {
				for n := range 8 {
					got, _, errno := unix.Syscall(unix.SYS_PIDFD_GETFD, uintptr(fd), uintptr(n), 0)
					if open = open || errno == 0; errno == 0 {
						_ = unix.Close(int(got))
					}
					err = errno
				}
				_ = unix.Close(fd)
			}
			seen += fmt.Sprintf(", %v ", err)
		}
		return open, seen
	}},
	{"limits of the first process", func() (open bool, seen string) {
		for _, pid := range guests() {
			var old unix.Rlimit
			if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &old); err != nil {
				seen += fmt.Sprintf("%d: %v ", pid, err)
				continue
			}
			err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &old, nil) // the same again
			open = open || err == nil
			seen += fmt.Sprintf("%d: read, set: %v ", pid, err)
		}
		return open, seen
	}},
	{"signals to the first process", func() (open bool, seen string) {
		for _, s := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGTERM, syscall.SIGQUIT} {
			_ = unix.Kill(1, s)
		}
		time.Sleep(100 * time.Millisecond)
		_, err := resolved("allowed.test") // it must answer still
		return err != nil, fmt.Sprint(err)
	}},
	{"namespaces of the first process", func() (open bool, seen string) { return entered(fmt.Sprintf("/proc/%d/ns/", 1)) }},
	{"namespaces of any process", func() (open bool, seen string) {
		all, _ := filepath.Glob("/proc/[0-9]*/ns")
		for _, dir := range all {
			o, s := entered(dir + "/")
			if open = open || o; o {
				seen += dir + ": " + s + " "
			}
		}
		return open, seen
	}},
	{"root of a new user namespace", func() (open bool, seen string) {
		const script = `
for pid in /proc/[0-9]*; do nsenter --net=$pid/ns/net true 2>/dev/null && [ "$(readlink $pid/ns/net)" != "$(readlink /proc/self/ns/net)" ] && echo "entered $pid"; done
nsenter -t 1 -n -m true 2>/dev/null && echo "entered 1"
mount -t sysfs sysfs /sys 2>/dev/null && ls /sys/class/net | grep -vx lo
true`
		out, err := exec.Command("unshare", "-Urnm", "sh", "-c", script).CombinedOutput()
		if errors.Is(err, exec.ErrNotFound) {
			return false, "no unshare here"
		}
		text := strings.TrimSpace(string(out))
		return strings.Contains(text, "entered") || err == nil && text != "", text + " " + fmt.Sprint(err)
	}},
	{"a new network namespace", func() (open bool, seen string) { // its loopback may be set up, and leads nowhere
		self, err := os.Executable()
		if err != nil {
			return true, err.Error()
		}
		out, err := exec.Command("unshare", "-Urn", self, "-only", "an address,the node,the metadata service,a private address,datagrams",
			"-base", world.base.String(), "-node", world.node.String(), "-port", fmt.Sprint(world.port)).CombinedOutput()
		if errors.Is(err, exec.ErrNotFound) {
			return false, "no unshare here"
		}
		return strings.Contains(string(out), "\topen\t"), string(out)
	}},
	{"routes and devices", func() (open bool, seen string) {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_ROUTE)
		if err != nil {
			return false, err.Error()
		}
		defer func() { _ = unix.Close(fd) }()
		for _, m := range [][]byte{
			// A device of the type dummy, and lo set down.
			append([]byte{16 + 16 + 16, 0, 0, 0, unix.RTM_NEWLINK, 0, 5, 6, 1, 0, 0, 0, 0, 0, 0, 0}, append(make([]byte, 16), 16, 0, 18, 0, 10, 0, 1, 0, 'd',
				'u', 'm', 'm', 'y', 0, 0, 0)...),
			append([]byte{16 + 16, 0, 0, 0, unix.RTM_NEWLINK, 0, 5, 0, 2, 0, 0, 0, 0, 0, 0, 0}, []byte{0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0}...),
		} {
			_ = unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
			b := make([]byte, 4096)
			n, err := unix.Read(fd, b)
			if err != nil || n < 20 {
				return true, fmt.Sprint("no answer: ", err)
			}
			code := *(*int32)(unsafe.Pointer(&b[16]))
			open = open || code == 0
			seen += syscall.Errno(-code).Error() + " "
		}
		return open, seen
	}},
	{"io_uring", func() (bool, string) {
		var params [120]byte
		fd, _, errno := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
		if errno == 0 {
			_ = unix.Close(int(fd))
		}
		return errno == 0, errno.Error()
	}},
	{"devices of other networks", func() (open bool, seen string) {
		_ = filepath.WalkDir("/dev", func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return nil
			}
			for _, part := range []string{"infiniband", "vsock", "vhost", "/net/", "/ppp", "hfi1", "cxi", "efa", "knem", "xpmem", "kvm", "/mem", "/kmem", "/port"} {
				if d.IsDir() || !strings.Contains(path, part) {
					continue
				}
				if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
					_ = f.Close()
					open, seen = true, seen+path+" "
				}
			}
			return nil
		})
		return open, seen
	}},
}

// guests are the processes that are not the task's: the first, and those of its program.
func guests() []int {
	out := []int{1}
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		b, _ := os.ReadFile(file)
		var pid int
		if _, err := fmt.Sscanf(file, "/proc/%d/", &pid); err == nil && pid != 1 && strings.HasPrefix(string(b), "/.berth/node\x00guest") {
			out = append(out, pid)
		}
	}
	return out
}

// entered tries to enter namespaces that are not this process's.
func entered(dir string) (open bool, seen string) {
	for _, ns := range []string{"net", "mnt", "pid", "user"} {
		own, _ := os.Readlink("/proc/self/ns/" + ns)
		if there, err := os.Readlink(dir + ns); err == nil && there == own {
			continue
		}
		f, err := os.Open(dir + ns)
		if err == nil {
			done := make(chan error)
			go func() {
				runtime.LockOSThread() // and the thread ends with this function
				done <- unix.Setns(int(f.Fd()), 0)
			}()
			err = <-done
			_ = f.Close()
		}
		open = open || err == nil
		seen += ns + ": " + fmt.Sprint(err) + " "
	}
	return open, seen
}

// sockets connects to all of the file system that may be seen: none must be there.
func sockets() (open bool, seen string) {
	try := func(path string) {
		c, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			_ = c.Close()
			open, seen = true, seen+path+" "
		}
	}
	if world.socket != "" {
		try(world.socket)
	}
	until := time.Now().Add(10 * time.Second)
	_ = filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		switch {
		case time.Now().After(until):
			seen += "not all was looked at"
			return fs.SkipAll
		case err != nil:
			return nil
		case d.IsDir() && (path == "/proc" || path == "/sys" || path == "/usr/share" || path == "/usr/lib" || path == "/usr/include"):
			return fs.SkipDir
		case d.Type()&fs.ModeSocket != 0:
			try(path)
		}
		return nil
	})
	return open, seen
}
