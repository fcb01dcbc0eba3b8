package strict

import (
	"os"
	"path/filepath"
	"strings"

	"berth/internal/sys/pattern"
	"berth/jobs"
)

// variable is a use of an environment variable.
var variable = pattern.Lazy(`\$[A-Za-z_{]`)

// Path returns the absolute path that a string names: relative to the
// directory of the file, with ~ for the user's home.
func (v Value) Path() string {
	s := v.Text()
	if s == "" {
		return ""
	}
	return v.Resolve(s)
}

// clean complains about a resolved path with control characters, which can
// come from the names of the directories above the file.
func (v Value) clean(path string) string {
	if err := jobs.CheckText("the path "+quote(path), path); err != nil {
		v.Fail(err)
		return ""
	}
	return path
}

// Resolve is [Value.Path] for a path that is a part of the value.
func (v Value) Resolve(s string) string {
	if variable().MatchString(s) {
		v.Failf("write ~ for your home, or the path in full", "names an environment variable, which is not expanded here: %s", quote(s))
		return ""
	}
	switch {
	case s == "~" || strings.HasPrefix(s, "~/"):
		home, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(home) {
			v.Failf("set HOME, or write the path in full", "begins with ~, and your home is not known")
			return ""
		}
		return v.clean(filepath.Join(home, s[1:]))
	case strings.HasPrefix(s, "~"):
		v.Failf("", "begins with ~USER, which is not expanded: write the path in full")
		return ""
	case filepath.IsAbs(s):
		return filepath.Clean(s)
	}
	file, err := filepath.Abs(v.doc.file)
	if err != nil {
		v.Failf("write the path in full", "is relative, and the working directory is not known")
		return ""
	}
	return v.clean(filepath.Join(filepath.Dir(file), s))
}
