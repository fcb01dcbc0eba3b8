package images

import (
	"path/filepath"
)

// Workplace makes a directory for making an image on a disk of this machine,
// with "w" and "program" in it, and tells the environment of the container
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
	return dir, append(c.Environ(), c.Tool.Work("", workIn(dir))...), nil
}

// workIn is where the container program works in such a directory.
func workIn(dir string) Work {
	own := filepath.Join(dir, dirTool)
	return Work{Cache: filepath.Join(own, "cache"), Temp: filepath.Join(dir, "w"), Config: filepath.Join(own, "config")}
}
