package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"berth/internal/sys/disk"
	"berth/jobs"
)

const (
	// dirChildren is in the directory of a job whose task may submit jobs.
	dirChildren = "children"
	// maxChild bounds a file in it: a script, of which JSON may make more.
	maxChild = 8 << 20
	// suffixRefused is that of a file beside it: why nothing was submitted.
	suffixRefused = ".refused"
	maxRefused    = 64 << 10
)

// ChildrenGit is the git directory, in that of a job, from which its children start.
func ChildrenGit(jobDir string) string { return filepath.Join(jobDir, "children.git") }

func childFile(jobDir string, n int) string {
	return filepath.Join(jobDir, dirChildren, fmt.Sprintf("%04d.json", n))
}

// AddChild records a child under its number, and returns whether this process was the
// one that took the number.
func AddChild(jobDir string, c jobs.Child) (bool, error) {
	if c.Number < 1 || c.Number > jobs.MaxChildren {
		return false, fmt.Errorf("%d is no number of a child", c.Number)
	}
	data, err := encode(c)
	if err != nil {
		return false, err
	}
	if err := makeDir(filepath.Join(jobDir, dirChildren)); err != nil {
		return false, err
	}
	return CreateOnce(childFile(jobDir, c.Number), data)
}

// LoadChild reads one.
func LoadChild(jobDir string, n int) (c jobs.Child, err error) {
	b, err := disk.ReadRegular(childFile(jobDir, n), maxChild)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err == nil && (c.Number != n || !jobs.ValidID(c.Job)) {
		err = errors.New("it is another's")
	}
	if err != nil {
		return c, fmt.Errorf("read child %d: %w", n, err)
	}
	return c, nil
}

// LoadChildren reads all of them in order behind those that are known, which do not
// change, without what they run: [LoadChild] has it. They are numbered from 1 without a
// gap. One that cannot be read is an error: what it has asked for would not be counted.
func LoadChildren(jobDir string, known []jobs.Child) ([]jobs.Child, error) {
	names, err := readNames(filepath.Join(jobDir, dirChildren))
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	}
	if err != nil {
		return nil, err
	}
	n := 0
	for _, name := range names {
		if strings.HasSuffix(name, ".json") {
			n++
		}
	}
	out := known
	for i := len(known) + 1; i <= n; i++ {
		c, err := LoadChild(jobDir, i)
		if err != nil {
			return nil, err
		}
		c.Command, c.Script = jobs.Command{}, ""
		out = append(out, c)
	}
	return out, nil
}

// SetChildRefused records why nothing was submitted for a child.
func SetChildRefused(jobDir string, n int, why string) error {
	_, err := CreateOnce(childFile(jobDir, n)+suffixRefused, []byte(jobs.Printable(why[:min(len(why), maxRefused)])))
	return err
}

// ChildRefused is that; "" is that it was not refused.
func ChildRefused(jobDir string, n int) string {
	b, err := disk.ReadRegular(childFile(jobDir, n)+suffixRefused, maxRefused)
	if err != nil {
		return ""
	}
	return string(b)
}
