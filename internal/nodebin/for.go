package nodebin

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"runtime"
	"sync"
)

// For returns the program for the nodes of another machine, and its SHA-256 in
// hexadecimal: the embedded one of that architecture, or this program itself
// where none is embedded and the machine is of the same kind. It is not ok
// when there is no such program. The data must not be changed.
func For(goos, goarch string) (data []byte, sum string, ok bool) {
	if goos == "linux" {
		if data, sum = embedded(goarch); data != nil {
			return data, sum, true
		}
	}
	if goos != runtime.GOOS || goarch != runtime.GOARCH {
		return nil, "", false
	}
	s, err := self()
	return s.data, s.sum, err == nil
}

type program struct {
	data []byte
	sum  string
}

// self is read once: it does not change while it runs.
var self = sync.OnceValues(func() (program, error) {
	path, err := os.Executable()
	if err != nil {
		return program{}, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return program{}, err
	}
	sum := sha256.Sum256(data)
	return program{data, hex.EncodeToString(sum[:])}, nil
})

// Name is what the program with this sum is called where it is installed.
func Name(sum string) string { return "berth-node-" + short(sum) }
