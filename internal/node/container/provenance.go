package container

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"berth/internal/link/session"
	"berth/internal/sys/run"
	"berth/jobs"
)

// ownProgram is the file that this process runs; the guest is a copy of it.
const ownProgram = "/proc/self/exe"

// provenance says whether what answered in a container is berth's guest, as
// seen from outside: what a program of the image says of itself proves nothing.
type provenance struct {
	compared bool
	streams  bool   // it holds its streams: asked of the kernel, which not all tell
	why      string // it could not be compared
	stranger string // a process that is none of berth's, or what shows that there is one
	guest    int    // the process that holds its streams; 0 is not known
}

// compare looks at the programs of all processes of a container before a command
// or a value is sent to it. Nothing of the task runs at that time, so there are
// the container program's init and the guest, and no other process: a program that
// answers in the guest's place, or starts it and stands between, is one more.
// One of them has to hold the two ends of pipes that the container was given, or
// the guest talks with a program that hides. init is the container's first process
// where it is not below this one, else 0; it has pipes of others then.
func compare(root, init int, ends ...*os.File) provenance {
	inside, why := inhabitants(root, init)
	if why != "" {
		return provenance{why: why}
	}
	var p provenance
	held, asked := false, false
	for _, pid := range inside {
		same, err := runsOwnProgram(pid)
		switch {
		case err == nil && same:
			p.compared = true
			holds, known := holdsAll(pid, ends)
			held, asked = held || holds, asked || known
			if holds && depth(pid) > depth(p.guest) { // the room's, whose first process may not have closed them yet
				p.guest = pid
			}
		case err == nil:
			return provenance{stranger: describe(pid)}
		case gone(err) && ended(pid):
		case gone(err): // its first thread has ended, and others go on: a guest's never does
			return provenance{stranger: describe(pid)}
		case errors.Is(err, fs.ErrPermission) && init <= 0 && otherUserNamespace(pid):
			// In a user namespace that this user has made only a program that the
			// user may not read is not seen, and berth's own can be read.
			return provenance{stranger: describe(pid)}
		case errors.Is(err, fs.ErrPermission):
			p.why = "the system does not let this user see which program runs there"
		default:
			p.why = "which program runs there could not be read: " + err.Error()
		}
	}
	switch {
	case p.why != "":
		p.compared = false
	case !p.compared:
		return provenance{stranger: "nothing that can be seen"}
	case init <= 0 && asked && held:
		p.streams = true
	case init <= 0 && asked:
		return provenance{stranger: "something else that holds the guest's streams"}
	}
	return p
}

// depth is in how many PID namespaces a process is; 0 is none.
func depth(pid int) int {
	p, _ := run.ReadProc(pid)
	return len(p.NSPID)
}

// gone tells whether an error of /proc says that a process has no program.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

func ended(pid int) bool {
	p, ok := run.ReadProc(pid)
	return !ok || p.Zombie
}

// otherUserNamespace tells whether a process is in a user namespace other than this
// process's, by its mapping of ids: anybody may read that.
func otherUserNamespace(pid int) bool {
	const name = "uid_map"
	own, err := os.ReadFile("/proc/self/" + name)
	if err != nil {
		return false
	}
	theirs, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), name))
	return err == nil && !bytes.Equal(own, theirs)
}

// inhabitants lists the processes of the container but for its init, which is the
// container program's: berth's command line names the guest, so that no program of
// the image becomes the first process. An init that is alone is the guest itself.
func inhabitants(root, init int) (inside []int, why string) {
	self, ok := run.ReadProc(os.Getpid())
	if !ok {
		return nil, "/proc cannot be read"
	}
	first, below := init, init
	if init > 0 {
		p, ok := run.ReadProc(init)
		if !ok || len(p.NSPID) <= len(self.NSPID) || p.NSPID[len(p.NSPID)-1] != 1 {
			return nil, "its first process is not one that this machine's numbers name"
		}
	} else {
		if first, _, ok = Init(root); !ok {
			return nil, "its processes are not below the one that has opened it"
		}
		below = root
	}
	for _, p := range run.Below(below) {
		if p.PID != first && len(p.NSPID) > len(self.NSPID) && !p.Zombie {
			inside = append(inside, p.PID)
		}
	}
	if len(inside) == 0 {
		inside = []int{first}
	}
	return inside, ""
}

// runsOwnProgram tells whether a process runs the program that this one runs, byte
// for byte. The link is the kernel's, and leads to the file whatever is mounted
// over its name inside.
func runsOwnProgram(pid int) (bool, error) {
	name := filepath.Join("/proc", strconv.Itoa(pid), "exe")
	a, err := os.Stat(name)
	if err != nil {
		return false, err
	}
	b, err := os.Stat(ownProgram)
	if err != nil {
		return false, err
	}
	if os.SameFile(a, b) {
		return true, nil
	}
	if !a.Mode().IsRegular() || a.Size() != b.Size() {
		return false, nil
	}
	theirs, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer theirs.Close()
	own, err := os.Open(ownProgram)
	if err != nil {
		return false, err
	}
	defer own.Close()
	return sameContent(theirs, own)
}

func sameContent(a, b io.Reader) (bool, error) {
	const size = 1 << 18
	x, y := bufio.NewReaderSize(a, size), bufio.NewReaderSize(b, size)
	for {
		p, aerr := x.Peek(size)
		q, berr := y.Peek(size)
		if !bytes.Equal(p, q) {
			return false, nil
		}
		if len(p) < size {
			if aerr != io.EOF || berr != io.EOF {
				return false, errors.Join(aerr, berr)
			}
			return true, nil
		}
		_, _ = x.Discard(size)
		_, _ = y.Discard(size)
	}
}

// describe names a process for people. What it says of itself is the image's word.
func describe(pid int) string {
	path, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "exe"))
	if err != nil {
		p, _ := run.ReadProc(pid)
		path = p.Name
	}
	return fmt.Sprintf("%q", path)
}

// guestEnds is how long the end of a guest may take to show on its streams.
const guestEnds = time.Second

// whoAnswered says who has answered in an open container. An answer that is
// not the guest's is an error, but where a program of the image has to run before
// the guest.
func (c *Container) whoAnswered(ctx context.Context, ends ...*os.File) (provenance, error) {
	op := c.o.Opening
	switch {
	case op.Level == "" || op.Level == jobs.LevelNone:
		return provenance{}, nil // there is no container
	case op.Answer != nil:
		return provenance{why: "it runs on another machine"}, nil
	}
	init := 0
	if op.Init != nil {
		if init = op.Init(ctx); init <= 0 {
			return provenance{why: "its first process is not known"}, nil
		}
	}
	p := compare(os.Getpid(), init, ends...)
	switch {
	case p.stranger == "":
		return p, nil
	case op.RunsFirst != "":
		return provenance{why: op.RunsFirst}, nil
	}
	select { // a guest that has just been killed leaves the init alone
	case <-c.ended:
		return p, session.ErrGuestGone
	case <-c.session.Gone():
		return p, session.ErrGuestGone
	case <-time.After(guestEnds):
	}
	return p, &jobs.Error{Kind: jobs.KindConfig,
		Msg: "what answered in the container is not berth's own program, or not alone: " + p.stranger + " runs there",
		Hint: "the image or its layer has put a program in the guest's place, or the container program runs something of the image first: " +
			"try another image, and a new layer; no command and no value was sent to it"}
}

// words say it for the receipt.
func (p provenance) words() string {
	switch {
	case p.compared && p.streams:
		return "the program that answered is berth's own file, compared from outside before a command or a value was sent to it"
	case p.compared:
		return "no program but berth's own file was there when it answered, compared from outside before a command or a value was sent to it; " +
			"that the answer came from it was not asked"
	case p.why != "":
		return "the program that answered was not compared with berth's own: " + strings.TrimSpace(p.why) + "; " +
			"an image that runs a program of its own first could forge what was seen from inside, " +
			"the exit codes and the output, and could read the values that are passed"
	}
	return ""
}
