//go:build !linux

package images

import (
	"errors"
	"os"
	"path/filepath"
)

func scratchBase(string, func(string) string) (string, error) { return os.TempDir(), nil }

func newScratch(base, tail, _ string) (dir string, err error) {
	if dir, err = os.MkdirTemp(base, "berth-"+tail+"-*"); err != nil {
		return "", err
	}
	return dir, errors.Join(os.Mkdir(filepath.Join(dir, "w"), 0o700), os.Mkdir(filepath.Join(dir, dirTool), 0o700))
}
