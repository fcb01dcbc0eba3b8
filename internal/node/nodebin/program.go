package nodebin

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"os"
	"runtime"
	"strings"
	"sync"
)

// Program is a program for the nodes. Its bytes are read only by who has to write
// it somewhere: every verb looks whether it stands there.
type Program struct {
	Name string // where it is installed; no two programs have the same
	Size int64  // in bytes
	read func() ([]byte, error)
}

// Read returns the bytes of the program. They must not be changed.
func (p Program) Read() ([]byte, error) { return p.read() }

// Of is a program of these bytes.
func Of(data []byte) Program {
	return Program{name(sum(data)), int64(len(data)), func() ([]byte, error) { return data, nil }}
}

// For returns the program for a machine: the embedded one of its architecture, or
// this program itself where none is embedded and the machine is of the same kind.
// It is not ok when there is no such program.
func For(goos, goarch string) (p Program, ok bool) {
	if goos == "linux" {
		if p, ok := packed(goarch); ok {
			return p, true
		}
	}
	if goos != runtime.GOOS || goarch != runtime.GOARCH {
		return Program{}, false
	}
	p, err := self()
	return p, err == nil
}

// This is this program itself, whatever it carries for the nodes.
func This() (Program, error) {
	p, err := self()
	p.Name = wholePrefix + strings.TrimPrefix(p.Name, Prefix)
	return p, err
}

// wholePrefix begins its name where it is put on another machine.
const wholePrefix = "berth."

// self is looked at once: it does not change while it runs.
var self = sync.OnceValues(func() (Program, error) {
	path, err := os.Executable()
	if err != nil {
		return Program{}, err
	}
	return file(path)
})

// file is the program that stands at path.
func file(path string) (Program, error) {
	read := func() ([]byte, error) { return os.ReadFile(path) }
	if id := buildID(path); id != nil {
		fi, err := os.Stat(path)
		if err != nil {
			return Program{}, err
		}
		return Program{name(sum(id)), fi.Size(), read}, nil
	}
	data, err := read()
	if err != nil {
		return Program{}, err
	}
	return Of(data), nil
}

// buildID returns what Go's linker has written into a program: its last part is a
// hash of all the rest, so that it tells programs apart, and a fraction of the file
// is read. It is nil where there is none.
func buildID(path string) []byte {
	f, err := elf.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	s := f.Section(".note.go.buildid")
	if s == nil || s.Size > 4096 {
		return nil
	}
	note, err := s.Data()
	// A note has a header of 16 bytes with Go's name, and the text.
	if err != nil || len(bytes.Trim(note[min(16, len(note)):], "\x00")) == 0 {
		return nil
	}
	return note
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// Prefix begins the name of each.
const Prefix = "berth-node-"

func name(sum string) string { return Prefix + sum[:12] }
