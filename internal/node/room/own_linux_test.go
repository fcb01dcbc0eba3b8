package room

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"berth/internal/sys/run"

	"golang.org/x/sys/unix"
)

// Parts of the test program in a container with rooms of their own.
const (
	ownContainer = "own"      // the container, which begins two rooms
	ownFirst     = "own-room" // the first process of each
)

// ownImage is an image with a link in the place of each directory that a room mounts
// something at.
func ownImage(dir string) error {
	for _, d := range []string{"/opt/old", "/etc", "/data", "/var"} {
		if err := os.MkdirAll(dir+d, 0o755); err != nil {
			return err
		}
	}
	for _, l := range []string{"/proc", "/sys", "/dev", "/tmp", "/.berth", "/home", "/var/tmp"} {
		if err := os.Symlink("/data", dir+l); err != nil {
			return err
		}
	}
	return errors.Join(os.WriteFile(dir+"/opt/old/file", []byte("old"), 0o644), os.WriteFile(dir+"/etc/passwd", []byte("image"), 0o644))
}

// beOwnContainer is a container of which all files can be written, with an image or, read-only,
// without. It begins two rooms, the first of which leaves something at every place, and stays.
func beOwnContainer(image bool) error {
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), unix.Mount("tmpfs", "/tmp", "tmpfs", 0, ""), unix.Mount("proc", "/proc", "proc", 0, ""),
		os.MkdirAll("/tmp/out", 0o755), unix.Mount("/tmp/out", "/tmp/out", "", unix.MS_BIND, "")); err != nil {
		return err
	}
	o := Own{Home: "/home/a", Binds: []string{"/tmp/out"}}
	if image {
		if err := ownImage("/tmp/image"); err != nil {
			return err
		}
		for _, d := range []string{"/usr", "/lib", "/lib64", "/bin"} { // with which the programs of this machine are found
			fi, err := os.Lstat(d)
			switch {
			case err != nil:
			case fi.Mode()&os.ModeSymlink != 0:
				to, _ := os.Readlink(d)
				err = os.Symlink(to, "/tmp/image"+d)
			default:
				err = unix.Mount(d, d, "", unix.MS_BIND|unix.MS_REC, "")
			}
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		o.Image = "/tmp/image"
	} else {
		o.Home = "/var/tmp/home" // the root cannot be written
	}
	if err := os.Setenv(roleVar, ownFirst); err != nil {
		return err
	}
	seen := map[string]map[string]string{}
	for _, name := range []string{"first", "second"} {
		mine := o
		mine.Scratch = "/tmp/scratch-" + name
		if err := os.Mkdir(mine.Scratch, 0o700); err != nil {
			return err
		}
		s, pid, found, err := beginOwn(Options{Own: &mine}, Judge{}, "own", name, mine.Home)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		seen[name] = found
		if name == "second" {
			if err := endOwn(s, pid); err != nil {
				return err
			}
		}
		defer s.Close()
	}
	out, _ := filepath.Glob("/tmp/out/*")
	seen["left"] = map[string]string{"out": strings.Join(out, " ")}
	if image {
		b, err := os.ReadFile("/tmp/image/opt/old/file")
		data, _ := os.ReadDir("/tmp/image/data")
		seen["left"]["image"] = fmt.Sprintf("%s %v %d", b, err, len(data))
	}
	return json.NewEncoder(os.Stdout).Encode(seen)
}

// beginOwn begins a room whose command is a part of the test program, and returns what that
// has found.
func beginOwn(o Options, j Judge, words ...string) (s *Stay, pid int, found map[string]string, err error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, 0, nil, err
	}
	pid, s, err = Begin(o, words, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, out.Fd(), 2}, Sys: &syscall.SysProcAttr{}}, run.Fork)
	_ = out.Close()
	if err != nil {
		return nil, pid, nil, err
	}
	go s.Judge(j)
	if n, err := s.Next(); err != nil || n.Trouble != "" || n.Why != "" {
		return s, pid, nil, fmt.Errorf("%+v, %w", n, err)
	}
	err = json.NewDecoder(in).Decode(&found)
	return s, pid, found, err
}

// endOwn waits until the command has ended with 5, and with it the room.
func endOwn(s *Stay, pid int) error {
	if n, err := s.Next(); err != nil || !n.Ended || unix.WaitStatus(n.Status).ExitStatus() != 5 {
		return fmt.Errorf("its end: %+v, %w", n, err)
	}
	if code := wait(pid); code != 0 {
		return fmt.Errorf("the first process ended with %d", code)
	}
	return nil
}

// beOwnFirst is the first process of a room; it starts the command.
func beOwnFirst() int {
	runtime.LockOSThread() // the thread that has less starts the command
	r, code := Arrive()
	if r == nil {
		return code
	}
	check(unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
	_, err := DropCapabilities(r.CommandCapabilities(0))
	check(err)
	check(os.Setenv(roleVar, "task:"+strings.Join(os.Args[1:], " ")))
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"task"}, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	check(err)
	check(r.Tell(News{}))
	var status unix.WaitStatus
	_, err = retry(func() (int, error) { return unix.Wait4(pid, &status, 0, nil) })
	check(err)
	check(r.Tell(News{Ended: true, Status: uint32(status)}))
	return 0
}

// ownTask tells what a command finds that another room could have left, and leaves all of that.
func ownTask(name, home string) int {
	seen := map[string]string{}
	note := func(what string, err error) {
		var errno syscall.Errno
		switch {
		case err == nil:
			seen[what] = "yes"
		case errors.As(err, &errno):
			seen[what] = unix.ErrnoName(errno)
		default:
			seen[what] = err.Error()
		}
	}
	for _, d := range []string{"/tmp", "/var/tmp", home, "/dev/shm", "/opt", "/etc", "/dev"} {
		_, err := os.Stat(d + "/f")
		name := strings.Replace(d, home, "home", 1)
		note("see "+name, err)
		note("leave "+name, os.WriteFile(d+"/f", nil, 0o600))
	}
	note("leave out", os.WriteFile("/tmp/out/"+name, nil, 0o600))
	if _, err := os.Stat("/opt/old/file"); err == nil {
		note("replace a directory", errors.Join(os.RemoveAll("/opt/old"), os.Mkdir("/opt/old", 0o755)))
		b, _ := os.ReadFile("/opt/old/file")
		seen["of the old one"] = string(b)
	}
	tmp, err := os.ReadDir("/tmp") // what is shared, and what was written above
	seen["in /tmp"] = fmt.Sprint(tmp, err)
	_, err = net.Dial("tcp", "127.0.0.1:8765")
	note("see a server", err)
	_, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:8765")
	note("leave a server", err)
	_, err = net.Dial("unix", "@berth-own-test")
	note("see an abstract socket", err)
	_, err = (&net.ListenConfig{}).Listen(context.Background(), "unix", "@berth-own-test")
	note("leave an abstract socket", err)
	_, _, errno := unix.Syscall(unix.SYS_SHMGET, 0x5eed, 4096, 0o600)
	note("see System V memory", orNil(errno))
	_, _, errno = unix.Syscall(unix.SYS_SHMGET, 0x5eed, 4096, 0o1600)
	note("leave System V memory", orNil(errno))
	seen["processes"], _ = processes()
	note("kill 1", unix.Kill(1, syscall.SIGKILL))
	note("trace 1", unix.PtraceSeize(1))
	note("mount", unix.Mount("tmpfs", "/tmp", "tmpfs", 0, ""))
	note("umount", unix.Unmount("/proc/keys", unix.MNT_DETACH))
	_, err = os.Stat("/proc/1/root/tmp/scratch-first")
	note("outside", err)
	_, err = os.Stat("/tmp/image")
	note("the container's image", err)
	seen["capabilities"], _ = status("CapEff")
	check(json.NewEncoder(os.Stdout).Encode(seen))
	if name == "first" {
		select {} // with its servers
	}
	// What is left behind ends with the room.
	c := exec.Command("/proc/self/exe")
	c.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, roleVar+"=") }), roleVar+"=task:stay")
	_ = c.Start()
	return 5
}

func orNil(errno syscall.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// TestOwn: two rooms with files of their own see nothing of each other, whatever the image
// has, and what they write is nowhere but where it is shared.
func TestOwn(t *testing.T) {
	needRooms(t)
	for _, image := range []bool{true, false} {
		t.Run("image "+strconv.FormatBool(image), func(t *testing.T) {
			c := start(t, fmt.Sprintf("%s %t", ownContainer, image), true)
			uid := os.Getuid()
			if uid == 0 {
				uid = 65534
			}
			ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
			c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID, UidMappings: ids, GidMappings: ids,
				Credential: &syscall.Credential{NoSetGroups: true}, Pdeathsig: syscall.SIGKILL}
			c.Stderr = os.Stderr
			out, err := c.Output()
			must(t, err)
			var seen map[string]map[string]string
			must(t, json.Unmarshal(out, &seen))
			want := map[string]string{
				"see /tmp": "ENOENT", "leave /tmp": "yes", "see /var/tmp": "ENOENT", "leave /var/tmp": "yes", "see home": "ENOENT", "leave home": "yes",
				"see /dev/shm": "ENOENT", "leave /dev/shm": "yes", "see /dev": "ENOENT", "leave /dev": "EROFS", "leave out": "yes",
				"in /tmp":      "[- f d out/] <nil>",
				"see a server": "ECONNREFUSED", "leave a server": "yes", "see an abstract socket": "ECONNREFUSED", "leave an abstract socket": "yes",
				"see System V memory": "ENOENT", "leave System V memory": "yes", "processes": "2", "kill 1": "yes", "trace 1": "EPERM", "mount": "EPERM", "umount": "EPERM",
				"outside": "EACCES", "the container's image": "ENOENT", "capabilities": "\t0000000000000000\n",
			}
			if image { // else these are this machine's
				maps.Copy(want, map[string]string{"see /opt": "ENOENT", "leave /opt": "yes", "see /etc": "ENOENT", "leave /etc": "yes",
					"replace a directory": "yes", "of the old one": ""})
			}
			for _, room := range []string{"first", "second"} {
				for what, is := range want {
					got, tried := seen[room][what]
					if !tried || got != is {
						t.Errorf("%s: %s: %q, want %q", room, what, got, is)
					}
				}
			}
			if got := seen["left"]["out"]; got != "/tmp/out/first /tmp/out/second" {
				t.Errorf("what is shared has %q", got)
			}
			if got := seen["left"]["image"]; image && got != "old <nil> 0" {
				t.Errorf("the image has become %q", got)
			}
		})
	}
}

// A bind in which the rooms' scratch directory is, also by links, is refused.
func TestHides(t *testing.T) {
	dir := t.TempDir()
	scratch, link := filepath.Join(dir, "tmp"), filepath.Join(dir, "link")
	for _, err := range []error{os.Mkdir(scratch, 0o700), os.Mkdir(filepath.Join(scratch, "mine"), 0o700), os.Symlink(scratch, link)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for bind, hidden := range map[string]bool{scratch: false, dir: false, "/": false, link: false, scratch + "/": false,
		filepath.Join(scratch, "mine"): true, dir + "/tm": true, "/none": true} {
		for _, at := range []string{scratch, link} {
			if err := Hides(at, []string{"/data", bind}); (err == nil) != hidden {
				t.Errorf("%s with %s: %v", at, bind, err)
			}
		}
	}
}
