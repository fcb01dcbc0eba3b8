package strict

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"berth/jobs"
)

// Ext ends the name of each file of a [Shelf].
const Ext = ".toml"

// Shelf has files of one kind by name: some are built in, and users have their own in a
// directory.
type Shelf struct {
	Kind    string                // what one is called in errors: "agent"
	Noun    string                // "an agent"
	Form    func() *regexp.Regexp // of a name
	Letters string                // what Form allows, for people
	Builtin embed.FS
	In      string // the directory of Builtin that they are in
	Else    string // what helps where one does not exist, beside the list of those that do
}

// CheckName refuses what cannot name one.
func (s *Shelf) CheckName(name string) error {
	if !s.Form().MatchString(name) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%.100q cannot name %s", name, s.Noun), Hint: s.Letters}
	}
	return nil
}

// Ready returns the text of a built-in one; it is not ok when there is none of the name.
func (s *Shelf) Ready(name string) (text []byte, ok bool) {
	text, err := s.Builtin.ReadFile(path.Join(s.In, name+Ext))
	return text, err == nil
}

// Find returns the text of one and its file: the user's own in dir, where dir is not "",
// else the built-in one, whose file is "". What does not exist is of the kind not found.
func (s *Shelf) Find(dir, name string) (file string, text []byte, err error) {
	if err := s.CheckName(name); err != nil {
		return "", nil, err
	}
	if own := filepath.Join(dir, name+Ext); dir != "" {
		if _, err := os.Lstat(own); !errors.Is(err, fs.ErrNotExist) {
			text, err := ReadFile(own, s.Kind)
			return own, text, err
		}
	}
	if text, ok := s.Ready(name); ok {
		return "", text, nil
	}
	have := s.Names(dir)
	return "", nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("%s %q does not exist%s", s.Kind, name, DidYouMean(name, have)),
		Hint: "the " + s.Kind + "s are " + strings.Join(have, ", ") + "; " + s.Else}
}

// Names returns the names of the built-in ones and of those in some directories, sorted.
// The directory "" is none, and one that cannot be read has none.
func (s *Shelf) Names(dirs ...string) []string {
	var names []string
	add := func(entries []fs.DirEntry, err error) {
		for _, e := range entries {
			if name, ok := strings.CutSuffix(e.Name(), Ext); ok && err == nil && !e.IsDir() && s.Form().MatchString(name) {
				names = append(names, name)
			}
		}
	}
	if s.In != "" {
		add(s.Builtin.ReadDir(s.In))
	}
	for _, dir := range dirs {
		if dir != "" {
			add(os.ReadDir(dir))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// FindAll finds those of some names; what cannot be read is in the error.
func FindAll[T any](names []string, find func(name string) (T, error)) ([]T, error) {
	var all []T
	var bad error
	for _, name := range names {
		one, err := find(name)
		if err != nil {
			bad = errors.Join(bad, err)
			continue
		}
		all = append(all, one)
	}
	return all, bad
}
