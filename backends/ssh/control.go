package ssh

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"berth/internal/sys/socket"
	"berth/jobs"
)

// maxControl bounds the path of a control socket. The address of a socket holds
// 104 bytes on some systems, and ssh binds it with 17 more characters first.
const maxControl = 104 - 1 - 17

// controlDir is where control sockets and what is known of hosts stand:
// $XDG_RUNTIME_DIR/berth, or the directory for sockets in tmp where there is none, or where its
// path is too long or would need quotes in an option of ssh.
func controlDir(getenv func(string) string, tmp string) string {
	if run := getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(run) {
		dir := filepath.Join(run, "berth")
		fi, err := os.Stat(run)
		if err == nil && fi.IsDir() && len(dir)+1+hashLen+len(".ssh") <= maxControl &&
			strings.IndexFunc(dir, func(r rune) bool { return !plain(r) }) < 0 {
			return dir
		}
	}
	dir, err := socket.In(tmp)
	if err != nil {
		return filepath.Join(tmp, "berth-"+strconv.Itoa(os.Getuid())) // makePrivate says what is wrong there
	}
	return dir
}

// makePrivate makes the directory, and refuses one that others could have put
// there or can write to.
func makePrivate(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, os.ErrExist) {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "make the directory for ssh's control sockets", Err: err}
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "look at the directory for ssh's control sockets", Err: err}
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !fi.IsDir() || !ok || int(st.Uid) != os.Getuid() || fi.Mode().Perm()&0o077 != 0 {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("%s is not a private directory of this user (%v)", dir, fi.Mode()),
			Hint: "another user may have made it; remove it, or set XDG_RUNTIME_DIR to a directory of your own"}
	}
	return nil
}

const hashLen = 16

// socketName is the same for the same destination reached in the same way.
func socketName(s jobs.SSHSpec, program string) string {
	h := sha256.New()
	for _, w := range append([]string{"1", program, s.Host}, own(s)...) {
		_, _ = fmt.Fprintf(h, "%d:%s,", len(w), w)
	}
	return hex.EncodeToString(h.Sum(nil))[:hashLen]
}
