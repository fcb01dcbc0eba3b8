package socket

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"berth/jobs"
)

// Dir is where sockets are made: short enough for an address (108 bytes,
// unix(7)), on this machine's own disk, closed to other users.
func Dir() (string, error) {
	if run := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(run) && len(run) < 70 && Own(run, false) {
		dir := filepath.Join(run, "berth")
		if err := os.Mkdir(dir, 0o700); (err == nil || errors.Is(err, fs.ErrExist)) && Own(dir, true) {
			return dir, nil
		}
	}
	return In("/tmp")
}

// In is such a directory in one where every user may make names, and so may have
// made this user's first: then another name, which no user can predict, takes
// its place, and is found again by its owner.
func In(tmp string) (string, error) {
	dir := filepath.Join(tmp, "berth-"+strconv.Itoa(os.Getuid()))
	err := os.Mkdir(dir, 0o700)
	if (err == nil || errors.Is(err, fs.ErrExist)) && Own(dir, true) {
		return dir, nil
	}
	if err == nil || errors.Is(err, fs.ErrExist) {
		// Scratch directories of jobs and environments begin in the same way, and
		// go with these: it has a word of its own.
		others, _ := filepath.Glob(dir + "-private-*") // sorted
		for _, other := range others {
			if Own(other, true) {
				return other, nil
			}
		}
		if dir, err = os.MkdirTemp(tmp, filepath.Base(dir)+"-private-"); err == nil {
			return dir, nil
		}
	}
	return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "make a private directory for sockets in " + tmp, Err: err, Hint: "ls -ld " + dir}
}

// Name is the file of a socket of the environment id in dir: "keep" is its
// keeper's, "hold" that of a connection holder. The id is hashed because it may
// be longer than an address, and with its directory, because a copy of a state
// directory has the same ids.
func Name(what, id, dir string) string {
	sum := sha256.Sum256([]byte(id + "\x00" + dir))
	name := hex.EncodeToString(sum[:8])
	if what != "keep" {
		name += "-" + what
	}
	return name + ".sock"
}

// Own tells whether dir is a directory of this user, and with private that
// no other user can enter it.
func Own(dir string, private bool) bool {
	fi, err := os.Lstat(dir)
	if err != nil || !fi.IsDir() {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid() && (!private || fi.Mode().Perm()&0o077 == 0)
}
