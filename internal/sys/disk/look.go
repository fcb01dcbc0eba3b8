package disk

import (
	"errors"
	"io/fs"
	"os"

	"berth/jobs"
)

// LookFor looks whether what was destroyed is gone from a path, and adds what it finds.
func LookFor(d *jobs.Destroyed, what, path string) {
	switch _, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
		d.Gone = append(d.Gone, what+" "+path)
	case err != nil:
		d.Left = append(d.Left, what+" "+path+", which cannot be looked at: "+jobs.Printable(err.Error()))
	default:
		d.Left = append(d.Left, what+" "+path)
	}
}
