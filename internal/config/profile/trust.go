package profile

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"berth/jobs"
)

// trusted refuses a profile that anybody could have written: it names the
// image and the modules of jobs, and so what runs with the user's rights. Who
// may write for a group, and whoever owns a directory that only they may
// write, are taken to be trusted: laboratories share profiles that way.
func trusted(file string) error {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return nil // reading it says what is wrong
	}
	fi, err := os.Stat(real)
	if err != nil {
		return nil
	}
	dir, err := os.Stat(filepath.Dir(real))
	if err != nil {
		return nil
	}
	const everybody = 0o002
	refuse := func(why, hint string) error {
		return &jobs.Error{Kind: jobs.KindConfig, Msg: "the profile " + file + " is not used: " + why, Hint: hint}
	}
	switch open := dir.Mode().Perm()&everybody != 0; {
	case fi.Mode().Perm()&everybody != 0 && fi.Mode().IsRegular():
		return refuse("everybody may write it", "look at what it says, then: chmod o-w "+real)
	case open && dir.Mode()&os.ModeSticky == 0:
		return refuse("everybody may write its directory, and so replace it", "chmod o-w "+filepath.Dir(real)+", or copy it to a directory of your own")
	case open:
		if st, ok := fi.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
			return refuse("it belongs to user "+strconv.Itoa(int(st.Uid))+" and stands where everybody may put files",
				"copy it to a directory of your own, if you know whose it is")
		}
	}
	return nil
}
