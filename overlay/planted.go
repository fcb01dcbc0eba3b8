package overlay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"berth/jobs"
)

// plainDir refuses what stands where berth makes a directory and is something
// else: a link leads to files that are not berth's. What is missing is fine.
// what says what it should be.
func plainDir(path, what string) error {
	fi, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "look at " + what, Err: err}
	case !fi.IsDir():
		return &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("%s: %s is no directory of berth's making but a %s", what, path, kindOf(fi)),
			Hint: "look at it, and remove it by hand"}
	}
	return nil
}
