package images

import (
	"path/filepath"
)

// Workplace makes a directory for making an image on a disk of this machine,
// with "w" and "apptainer" in it, and tells the environment of the container
// program that works there. forDir is what its owner is named by, should this
// process be killed: whoever needs such a place next removes it.
func (c *Cache) Workplace(tail, forDir string) (dir string, env []string, err error) {
	base, err := c.buildBase()
	if err != nil {
		return "", nil, err
	}
	if dir, err = newScratch(base, tail, forDir); err != nil {
		return "", nil, err
	}
	env = c.Environ()
	for _, p := range []string{"APPTAINER_", "SINGULARITY_"} {
		env = append(env, p+"CACHEDIR="+filepath.Join(dir, "apptainer", "cache"), p+"TMPDIR="+filepath.Join(dir, "w"))
	}
	return dir, append(env, "APPTAINER_CONFIGDIR="+filepath.Join(dir, "apptainer", "config")), nil
}
