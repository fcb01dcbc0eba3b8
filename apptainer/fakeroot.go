package apptainer

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"berth/jobs"
)

// fakerootIDs tells whether this user has ids of its own to be others inside
// (subuid(5)): then --fakeroot maps them, by newuidmap.
func (o *opener) fakerootIDs() bool { return hasOwnIDs(o.spec.User) }

func hasOwnIDs(user string) bool {
	return hasSubIDs("/etc/subuid", user, os.Getuid()) && hasSubIDs("/etc/subgid", user, os.Getuid())
}

// hasSubIDs looks for a user in a file of subordinate ids, by name or number.
func hasSubIDs(path, name string, uid int) bool {
	b, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) == 3 && (f[0] == name || f[0] == strconv.Itoa(uid)) {
			return true
		}
	}
	return false
}

// FakerootNote says which of its ways --fakeroot takes on this machine for a
// user, in a sentence.
func FakerootNote(user string) string {
	return (&opener{spec: &jobs.EnvSpec{User: user}}).fakerootNote()
}

// fakerootNote says which of its three ways --fakeroot takes here, in the order
// in which Apptainer tries them (its documentation, "Fakeroot feature"): they
// differ in what works inside.
func (o *opener) fakerootNote() string {
	if o.fakerootIDs() {
		return "fakeroot: root and all other users inside, mapped to ids of your own (/etc/subuid)"
	}
	if o.fakerootPretends() {
		return "fakeroot: root inside is you, other users are only pretended (LD_PRELOAD of the command fakeroot); you have no ids in /etc/subuid"
	}
	return "fakeroot: root inside is you and there is no other user: chown, and packages that need it, fail; " +
		"you have no ids in /etc/subuid, and there is no command fakeroot"
}

// fakerootPretends tells whether fakeroot(1) plays the other users.
func (o *opener) fakerootPretends() bool {
	return !o.fakerootIDs() && fakerootCommand(os.Getenv("PATH"))
}

// fakerootCommand tells whether fakeroot(1) is on a PATH.
func fakerootCommand(pathList string) bool {
	for _, dir := range filepath.SplitList(pathList) {
		if fi, err := os.Stat(filepath.Join(dir, "fakeroot")); err == nil && fi.Mode()&0o111 != 0 {
			return true
		}
	}
	return false
}
