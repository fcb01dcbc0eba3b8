package localcopy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Pages has this process run from a file of its own on the file system of dir,
// where no other process finds it, in place of the one that it was started from. The
// process stays what it is: its number, its open files, its signal handlers, its
// command line and what /proc/self/exe names. So this needs no second exec, for
// which signals would have to be held back, and no memory: the pages are read
// from the node's disk, and given back when memory is short. Only where nothing
// can be executed from there, they are memory of its own.
//
// The file is another one than [Copy] makes: that one is seen in the container,
// and what a task may have written there must never be run here.
//
// An error leaves the process with what it has.
func Pages(dir string) error {
	exe, err := os.Readlink(program)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".pages-*")
	if err != nil {
		return err
	}
	defer f.Close()
	if err := errors.Join(os.Remove(f.Name()), copyTo(f)); err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		a, ok := parse(line, exe)
		if !ok {
			continue
		}
		if strings.Contains(a.mode, "w") {
			touch(a)
		} else if err := change(a, f); err != nil {
			return fmt.Errorf("the pages at %x: %w", a.at, err)
		}
	}
	return nil
}

// area is a part of the memory that a file was mapped to.
type area struct {
	at, size uintptr
	offset   int64
	mode     string // as in /proc/PID/maps: "r-xp"
}

// parse reads a line of /proc/PID/maps (proc(5)), if it is of that file.
func parse(line, exe string) (a area, ok bool) {
	var end uintptr
	var device, inode string
	if n, err := fmt.Sscanf(line, "%x-%x %s %x %s %s", &a.at, &end, &a.mode, &a.offset, &device, &inode); n != 6 || err != nil {
		return a, false
	}
	a.size = end - a.at
	return a, strings.HasSuffix(strings.TrimSuffix(line, "\n"), " "+exe)
}

// prot is what may be done there.
func (a area) prot() (p uintptr) {
	for i, bit := range []uintptr{unix.PROT_READ, unix.PROT_WRITE, unix.PROT_EXEC} {
		if len(a.mode) > i && a.mode[i] != '-' {
			p |= bit
		}
	}
	return p
}

// change puts pages with the same content in the place of an area that no thread
// writes, in one step: what runs there meanwhile goes on.
func change(a area, f *os.File) error {
	now := memory(a.at, a.size)
	then := make([]byte, a.size) // the last page is filled up with zeros
	if _, err := f.ReadAt(then, a.offset); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	at, errno := uintptr(0), unix.EPERM
	if bytes.Equal(now, then) { // else the program was put together when it began
		at, _, errno = unix.Syscall6(unix.SYS_MMAP, 0, a.size, a.prot(), unix.MAP_PRIVATE, f.Fd(), uintptr(a.offset))
	}
	if errno != 0 {
		at, _, errno = unix.Syscall6(unix.SYS_MMAP, 0, a.size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0), 0)
		if errno != 0 {
			return errno
		}
		copy(memory(at, a.size), now)
		if _, _, errno = unix.Syscall(unix.SYS_MPROTECT, at, a.size, a.prot()); errno != 0 {
			_, _, _ = unix.Syscall(unix.SYS_MUNMAP, at, a.size, 0)
			return errno
		}
	}
	if _, _, errno = unix.Syscall6(unix.SYS_MREMAP, at, a.size, a.size, unix.MREMAP_MAYMOVE|unix.MREMAP_FIXED, a.at, 0); errno != 0 {
		_, _, _ = unix.Syscall(unix.SYS_MUNMAP, at, a.size, 0)
		return errno
	}
	return nil
}

// touch makes the pages of an area that is written this process's own: a page of
// it is the file's until the first write. Others write there at the same time, so
// nothing is changed.
//
//go:nocheckptr
func touch(a area) {
	// Linux 5.14 and newer write the pages without an access of this process.
	if unix.Madvise(memory(a.at, a.size), unix.MADV_POPULATE_WRITE) == nil {
		return
	}
	for at := a.at; at < a.at+a.size; at += uintptr(os.Getpagesize()) {
		atomic.AddUint32((*uint32)(unsafe.Add(unsafe.Pointer(nil), at)), 0)
	}
}

// memory is a part of this process's memory.
//
//go:nocheckptr
func memory(at, size uintptr) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), at)), size)
}
