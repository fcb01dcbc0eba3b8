package room

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"berth/jobs"

	"golang.org/x/sys/unix"
)

// What berth shows in a container, besides what is asked for.
const (
	berthDir = "/.berth"
	// Node is berth's own program.
	Node = berthDir + "/node"
	// ReportDir is where [Own.Report] is.
	ReportDir = berthDir + "/report"
)

// Own are files of a room's own: the image's with a layer over them, or, where there is
// none, those of the container, read-only; and in both /tmp, /var/tmp, HOME, /dev/shm, terminals
// and message queues that are empty.
type Own struct {
	// Scratch is an empty directory outside for what is written; whoever has made it
	// removes it when the room has ended.
	Scratch string
	Image   string   // directory of the unpacked image, or ""
	Home    string   // HOME
	Binds   []string // places in the container that are shared with it
	CPUs    []int    // the only ones for what runs in the room; none is any
	// Report is a directory outside that is shown at [ReportDir], read-only; "" is none.
	Report string
}

// Fits tells why no files of a room's own can be made in this container. The image is that
// with which they are to begin; "" is that nothing of the container's own can be written.
func Fits() (image string, err error) {
	if fi, err := os.Stat(jobs.RoomImage); err == nil && fi.IsDir() {
		return jobs.RoomImage, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs("/", &st); err != nil {
		return "", err
	}
	if st.Flags&unix.ST_RDONLY == 0 {
		return "", errors.New("the image is not unpacked here, and the container's own files can be written by all who run in it")
	}
	return "", nil
}

// Hides tells why what is written below a directory could be seen in rooms with such binds.
func Hides(dir string, binds []string) error {
	at := resolved(dir)
	for _, b := range binds {
		if to := resolved(b); to == "/" || under(at, to) {
			return fmt.Errorf("%s is bound into the container, and would show each what others write: bind a directory below it", b)
		}
	}
	return nil
}

// resolved is a path without links, where that is known.
func resolved(p string) string {
	if to, err := filepath.EvalSymlinks(p); err == nil {
		return to
	}
	return path.Clean(p)
}

// keepTo has this process, and what it starts, run on some processors alone.
func keepTo(cpus []int) error {
	if len(cpus) == 0 {
		return nil
	}
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(c)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("keep the room to the processors %d: %w", cpus, err)
	}
	return nil
}

// furnish makes the files of a room, and goes there. What is mounted outside is not
// reached from then on. ownNetwork is that the network namespace is the room's.
func (o *Own) furnish(ownNetwork bool) error {
	if err := keepTo(o.CPUs); err != nil {
		return err
	}
	// What is mounted here is not seen outside, and a root that is not to be bound again can be.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep the room's mounts in it: %w", err)
	}
	mounts := mountPoints() // the container's, before the room's are among them
	shared := o.shared(mounts)
	root, err := o.root(mounts)
	if err != nil {
		return err
	}
	if err := freshProc(root + "/proc"); err != nil {
		return err
	}
	if err := freshSys(root+"/sys", ownNetwork, o.Image != ""); err != nil {
		return err
	}
	if err := freshDev(root + "/dev"); err != nil {
		return err
	}
	if err := o.onlyNode(root + berthDir); err != nil {
		return err
	}
	in, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(in) }()
	if err := o.bind(in, shared); err != nil {
		return err
	}
	if err := unix.Fchdir(in); err != nil {
		return err
	}
	// The new root over the old one, which then is taken away from above (pivot_root(2)).
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("change to the room's files: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the files outside of the room: %w", err)
	}
	return unix.Chdir("/")
}

// root mounts what the files begin with; mounts are the container's.
func (o *Own) root(mounts []string) (string, error) {
	root := filepath.Join(o.Scratch, "root")
	for _, d := range []string{"root", "tmp", "var", "home"} {
		if err := os.Mkdir(filepath.Join(o.Scratch, d), 0o700); err != nil {
			return "", err
		}
	}
	for _, d := range []string{"tmp", "var"} { // as /tmp is everywhere
		if err := os.Chmod(filepath.Join(o.Scratch, d), 0o777|os.ModeSticky); err != nil {
			return "", err
		}
	}
	if o.Image == "" {
		if err := unix.Mount("/", root, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return "", fmt.Errorf("show the container's files in the room: %w", err)
		}
		return root, nil
	}
	upper, work := filepath.Join(o.Scratch, "upper"), filepath.Join(o.Scratch, "work")
	// These are directories, whatever the image has there: a link could lead anywhere.
	for _, d := range []string{upper, work, upper + "/proc", upper + "/sys", upper + "/dev", upper + "/tmp", upper + "/etc", upper + berthDir} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return "", err
		}
	}
	if err := accounts(upper, mounts); err != nil {
		return "", err
	}
	data := "userxattr,lowerdir=" + o.Image + ",upperdir=" + upper + ",workdir=" + work
	if err := unix.Mount("overlay", root, "overlay", unix.MS_NODEV|unix.MS_NOSUID, data); err != nil {
		return "", fmt.Errorf("mount a layer over the image for the room: %w", err)
	}
	return root, nil
}

// accounts copies what the container program has put in the place of the image's files: the
// names of users, and where names are looked up. They are copied because a task may write to them.
func accounts(upper string, mounts []string) error {
	for _, m := range mounts {
		if !strings.HasPrefix(m, "/etc/") {
			continue
		}
		if fi, err := os.Stat(m); err != nil || !fi.Mode().IsRegular() || fi.Size() > 1<<20 {
			continue
		}
		b, err := os.ReadFile(m)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(upper+m), 0o755)
		}
		if err == nil {
			err = os.WriteFile(upper+m, b, 0o644)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// freshSys gives the room a /sys of its own network, or leaves it what the container has.
func freshSys(at string, ownNetwork, image bool) error {
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_RDONLY
	if _, err := os.Stat("/sys/kernel"); err != nil {
		return nil // it is not there in the container
	}
	if ownNetwork && unix.Mount("sysfs", at, "sysfs", safe, "") == nil || !image {
		return nil
	}
	if err := unix.Mount("/sys", at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind /sys: %w", err)
	}
	return nil
}

// freshDev gives the room the container's devices, and its own of what one writes to.
func freshDev(at string) error {
	if err := unix.Mount("/dev", at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind /dev: %w", err)
	}
	const safe = unix.MS_NOSUID | unix.MS_NODEV
	for _, m := range []struct {
		name, kind, data string
		flags            uintptr
	}{
		{"shm", "tmpfs", "mode=1777", safe},
		{"pts", "devpts", "newinstance,ptmxmode=0666,mode=0620", unix.MS_NOSUID | unix.MS_NOEXEC},
		{"mqueue", "mqueue", "", safe | unix.MS_NOEXEC},
	} {
		if err := unix.Mount(m.kind, at+"/"+m.name, m.kind, m.flags, m.data); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("mount a /dev/%s for the room: %w", m.name, err)
		}
	}
	if err := readOnly(at); err != nil {
		return fmt.Errorf("make /dev read-only: %w", err)
	}
	return nil
}

// readOnly makes one mount read-only and leaves its other flags, which may be locked.
func readOnly(at string) error {
	return unix.MountSetattr(unix.AT_FDCWD, at, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}

// onlyNode leaves of what berth shows in the container its program alone, with what is the room's.
func (o *Own) onlyNode(at string) error {
	if _, err := os.Stat(Node); err != nil {
		return nil //nolint:nilerr // a place that does not show it
	}
	err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=64k")
	if err == nil {
		err = os.WriteFile(at+"/node", nil, 0o755)
	}
	if err == nil {
		err = unix.Mount(Node, at+"/node", "", unix.MS_BIND, "")
	}
	if err == nil && o.Report != "" {
		to := strings.Replace(ReportDir, berthDir, at, 1)
		if err = os.Mkdir(to, 0o700); err == nil {
			err = unix.Mount(o.Report, to, "", unix.MS_BIND, "")
		}
		if err == nil {
			err = readOnly(to)
		}
	}
	if err == nil {
		err = readOnly(at)
	}
	if err != nil {
		return fmt.Errorf("show %s in the room: %w", berthDir, err)
	}
	return nil
}

// bind binds what is the room's own, and then what is shared.
func (o *Own) bind(in int, shared []string) error {
	own := [][2]string{{o.Scratch + "/tmp", "/tmp"}, {o.Scratch + "/var", "/var/tmp"}}
	if o.Home != "" && !slices.ContainsFunc(o.Binds, func(b string) bool { return under(o.Home, b) }) {
		own = append(own, [2]string{o.Scratch + "/home", o.Home})
	}
	for _, b := range own {
		if err := place(in, b[0], b[1]); err != nil {
			return err
		}
	}
	last := ""
	for _, m := range shared {
		if last != "" && under(m, last) {
			continue // it has come with that
		}
		if err := place(in, m, m); err != nil {
			return err
		}
		last = m
	}
	return nil
}

// shared are the places among the container's mounts that are bound into the room, sorted.
func (o *Own) shared(mounts []string) (all []string) {
	special := []string{"/proc", "/sys", "/dev", berthDir}
	for _, m := range mounts {
		bound := slices.ContainsFunc(o.Binds, func(b string) bool { return under(m, b) })
		switch {
		case m == "/" || !there(m) || slices.ContainsFunc(special, func(s string) bool { return under(m, s) }):
		case bound, o.Image != "" && m != "/tmp" && m != "/var/tmp" && !under(m, "/etc") && m != o.Home:
			all = append(all, m)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// there tells whether a mount is to be seen: another one may be over it, or it is behind a
// directory that is closed.
func there(m string) bool {
	_, err := os.Stat(m)
	return err == nil
}

// under tells whether p is dir, or below it.
func under(p, dir string) bool {
	dir = path.Clean(dir)
	return p == dir || strings.HasPrefix(p, dir+"/")
}

// place binds a file or directory at a path in the new root, and makes that where it is not. Links
// there lead nowhere else.
func place(in int, source, to string) error {
	var st unix.Stat_t
	if err := unix.Stat(source, &st); err != nil {
		return fmt.Errorf("find %s: %w", source, err)
	}
	at, err := openIn(in, to)
	if errors.Is(err, unix.ENOENT) {
		if err = makeIn(in, to, st.Mode&unix.S_IFMT == unix.S_IFDIR); err == nil {
			at, err = openIn(in, to)
		}
	}
	if err != nil {
		return fmt.Errorf("find %s in the room: %w", to, err)
	}
	defer func() { _ = unix.Close(at) }()
	if err := unix.Mount(source, "/proc/self/fd/"+strconv.Itoa(at), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s in the room: %w", to, err)
	}
	return nil
}

// openIn finds a path in a directory that is the root for links.
func openIn(in int, name string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for {
		if fd, err := unix.Openat2(in, name, &how); !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// makeIn makes a directory or an empty file there, with the directories above it.
func makeIn(in int, name string, dir bool) error {
	above, last := path.Split(path.Clean(name))
	at, err := openIn(in, above)
	if errors.Is(err, unix.ENOENT) {
		if err = makeIn(in, above, true); err == nil {
			at, err = openIn(in, above)
		}
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(at) }()
	if dir {
		return unix.Mkdirat(at, last, 0o755)
	}
	return unix.Mknodat(at, last, unix.S_IFREG|0o644, 0)
}

// mountPoints are those of this process.
func mountPoints() (all []string) {
	b, _ := os.ReadFile("/proc/thread-self/mountinfo")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 4 {
			all = append(all, unescape.Replace(f[4]))
		}
	}
	return all
}

// unescape are what the kernel writes for characters that would end a field.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// Stay is a room that another process begins, with files of its own, in which one command runs.
type Stay struct {
	stream *os.File
	doors  *relay // nil where it has none
}

// Begin starts this program again with words, as the first process of a room, which is to call
// [Arrive]. The caller waits for a pid that is not 0, also with an error.
func Begin(o Options, words []string, a *syscall.ProcAttr, fork Fork) (pid int, s *Stay, err error) {
	s = &Stay{}
	inside := -1
	if o.Doors != nil {
		if s.doors, inside, err = newRelay(); err != nil {
			return 0, nil, err
		}
		defer func() { _ = unix.Close(inside) }()
	}
	pid, fd, err := begin(o, words, a, fork, inside)
	if err == nil {
		if err = unix.SetNonblock(fd, true); err == nil {
			s.stream = os.NewFile(uintptr(fd), "room")
			return pid, s, nil
		}
		_ = unix.Close(fd)
	}
	if s.doors != nil {
		s.doors.close()
	}
	return pid, nil, err
}

// Close gives up what the room has still to say.
func (s *Stay) Close() {
	_ = s.stream.Close()
	if s.doors != nil {
		s.doors.close()
	}
}

// Judge has what comes to the doors of the room decided, until the room has ended. A room
// without doors has nothing.
func (s *Stay) Judge(j Judge) {
	if s.doors != nil {
		s.doors.outside(j)
	}
}

// News is what the first process of a room with one command says: that it has begun, and how
// it ended.
type News struct {
	// Trouble is why the room could not be made.
	Trouble string `json:"trouble,omitempty"`
	// Code and Why are set where the command did not start.
	Code int    `json:"code,omitempty"`
	Why  string `json:"why,omitempty"`

	Ended  bool   `json:"ended,omitempty"`
	Status uint32 `json:"status,omitempty"` // as of wait(2)
	MaxRSS int64  `json:"max_rss,omitempty"`
}

// Next waits for the next one. Without one the first process has been killed.
func (s *Stay) Next() (n News, err error) {
	b := letters.Get().(*[maxLetter]byte)
	defer letters.Put(b)
	size, err := s.stream.Read(b[:])
	if err != nil {
		return n, err
	}
	return n, json.Unmarshal(b[:size], &n)
}

// letters are buffers of [Stay.Next]. They are large, and many rooms come one after the other.
var letters = sync.Pool{New: func() any { return new([maxLetter]byte) }}

// Arrive makes such a room, in its first process. Without a room that is to end with code.
func Arrive() (r *Room, code int) {
	if os.Args[0] != insideName || os.Getpid() != 1 {
		return nil, codeUnmade
	}
	r, err := furnished()
	switch {
	case r == nil:
		return nil, codeUnmade
	case err != nil:
		_ = r.Tell(News{Trouble: err.Error()})
		return nil, codeUnmade
	case attend() != nil:
		return nil, codeUnmade
	}
	return r, 0
}

// Tell says something to the process that waits for it.
func (r *Room) Tell(n News) error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return tell(string(b))
}
