package profile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"berth/internal/config/strict"
	"berth/jobs"
)

// Load reads a profile and returns it with the path it was read from. A word
// with a slash is a path; another is looked for as NAME.toml in the
// directories, the first one first.
func Load(name string, dirs ...string) (jobs.Profile, string, error) {
	file := name
	if !strings.ContainsRune(name, '/') {
		var err error
		if file, err = find(name, dirs); err != nil {
			return jobs.Profile{}, "", err
		}
	}
	if err := trusted(file); err != nil {
		return jobs.Profile{}, "", err
	}
	data, err := strict.ReadFile(file, "profile")
	if err != nil {
		return jobs.Profile{}, "", err
	}
	p, err := Parse(file, data)
	if err != nil {
		return jobs.Profile{}, "", err
	}
	return p, file, nil
}

func find(name string, dirs []string) (string, error) {
	name = strings.TrimSuffix(name, strict.Ext)
	if len(name) > 64 || !nameForm().MatchString(name) {
		return "", badName(name)
	}
	for _, dir := range dirs {
		file := filepath.Join(dir, name+strict.Ext)
		switch _, err := os.Stat(file); {
		case err == nil:
			return file, nil
		case !errors.Is(err, os.ErrNotExist):
			return "", &jobs.Error{Kind: jobs.KindUsage, Msg: "read the profile " + strconv.Quote(name), Err: err}
		}
	}
	have := Names(dirs...)
	msg := fmt.Sprintf("profile %q does not exist%s", name, strict.DidYouMean(name, have))
	hint := "write " + filepath.Join(append(slices.Clone(dirs[:min(len(dirs), 1)]), name+strict.Ext)...)
	if len(have) > 0 {
		hint = "the profiles are " + strings.Join(have, ", ")
	}
	return "", &jobs.Error{Kind: jobs.KindNotFound, Msg: msg, Hint: hint}
}

// Names returns the names of the profiles in some directories, sorted.
func Names(dirs ...string) []string {
	return (&strict.Shelf{Form: nameForm}).Names(dirs...)
}
