package keeper

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

// socketDir is where sockets are made: short enough for an address (108 bytes,
// unix(7)), on this machine's own disk, and nobody else's.
func socketDir() (string, error) {
	if run := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(run) && len(run) < 70 && ownDir(run, false) {
		dir := filepath.Join(run, "berth")
		if err := os.Mkdir(dir, 0o700); (err == nil || errors.Is(err, fs.ErrExist)) && ownDir(dir, true) {
			return dir, nil
		}
	}
	dir := "/tmp/berth-" + strconv.Itoa(os.Getuid())
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", &jobs.Error{Kind: jobs.KindInfra, Msg: "make " + dir + " for sockets", Err: err}
	}
	if !ownDir(dir, true) {
		return "", &jobs.Error{Kind: jobs.KindConfig, Msg: dir + " is not a private directory of this user, so no socket can be in it", Hint: "ls -ld " + dir + "; remove it, or ask whoever owns it"}
	}
	return dir, nil
}

// socketName is the file of an environment's socket. Its id is hashed because
// it may be longer than an address, and with its directory, because a copy of a
// state directory has the same ids.
func socketName(id, dir string) string {
	sum := sha256.Sum256([]byte(id + "\x00" + dir))
	return hex.EncodeToString(sum[:8]) + ".sock"
}

// ownDir tells whether dir is a directory of this user, and with private that
// nobody else can enter it.
func ownDir(dir string, private bool) bool {
	fi, err := os.Lstat(dir)
	if err != nil || !fi.IsDir() {
		return false
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid() && (!private || fi.Mode().Perm()&0o077 == 0)
}
