package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// FileEnv is the record of an environment, in its directory.
const FileEnv = "env.json"

var envName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`) })

func isEnvName(name string) bool { return len(name) <= 64 && envName().MatchString(name) }

// CheckEnvName refuses what cannot be an environment's name.
func CheckEnvName(name string) error {
	if !isEnvName(name) {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("%q cannot name an environment", name),
			Hint: "use lower-case letters, digits, dots, dashes and underscores, at most 64"}
	}
	return nil
}

// Envs is where environments are kept, by name.
func (s *Store) Envs() string { return filepath.Join(s.home, "envs") }

// EnvDir is the directory of an environment.
func (s *Store) EnvDir(name string) string { return filepath.Join(s.Envs(), name) }

// CreateEnv records an environment, unless one of this name is recorded: then
// that one is returned, and made is false.
func CreateEnv(dir string, spec jobs.EnvSpec) (got *jobs.EnvSpec, made bool, err error) {
	fail := func(err error) (*jobs.EnvSpec, bool, error) {
		return nil, false, &jobs.Error{Kind: jobs.KindInfra, Msg: "record the environment " + spec.Name, Err: err,
			Hint: "is there space left? df -h " + filepath.Dir(dir)}
	}
	data, err := encode(spec)
	if err != nil {
		return fail(err)
	}
	if err := makeDir(dir); err != nil {
		return fail(err)
	}
	if made, err = CreateOnce(filepath.Join(dir, FileEnv), data); err != nil {
		return fail(err)
	}
	if made {
		return &spec, true, nil
	}
	got, err = LoadEnv(dir)
	return got, false, err
}

// KeepEnv records an environment whose files are there from the beginning: fill puts them in
// its directory, and may complete the record. It has the first of the names that is free, and
// is there as a whole or not at all.
func (s *Store) KeepEnv(spec *jobs.EnvSpec, names []string, fill func(dir string) error) error {
	fail := func(err error) error {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "record the environment " + names[0], Err: err, Hint: "is there space left? df -h " + s.home}
	}
	if err := makeDir(s.Envs()); err != nil {
		return fail(err)
	}
	tmp, err := os.MkdirTemp(s.Envs(), prefixNew+spec.ID+"-*")
	if err != nil {
		return fail(err)
	}
	if err = fill(tmp); err == nil {
		err = disk.SyncTree(tmp)
	}
	for i := 0; err == nil && i < len(names); i++ {
		var data []byte
		spec.Name = names[i]
		if data, err = encode(*spec); err == nil {
			err = disk.Replace(filepath.Join(tmp, FileEnv), data, 0o600)
		}
		if err != nil {
			break
		}
		err = os.Rename(tmp, s.EnvDir(spec.Name))
		if err == nil {
			return disk.SyncDir(s.Envs())
		}
		if i+1 < len(names) && errors.Is(err, fs.ErrExist) {
			err = nil
		}
	}
	return errors.Join(fail(err), disk.RemoveTree(tmp))
}

// LoadEnv reads the record of the environment in dir; without one the error is
// of kind KindNotFound.
func LoadEnv(dir string) (*jobs.EnvSpec, error) {
	name := filepath.Base(dir)
	path := filepath.Join(dir, FileEnv)
	b, err := readRecord(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("there is no environment %q", name),
			Hint: "berth env ls lists them; berth exec --env " + name + " -- COMMAND makes it"}
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "read the environment " + name, Err: err}
	}
	var s jobs.EnvSpec
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "the record of the environment " + name + " cannot be read", Err: err, Hint: "see " + path}
	}
	if s.Version > jobs.EnvVersion {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: fmt.Sprintf("environment %s was made by a newer berth (schema %d)", name, s.Version),
			Hint: "use that version of berth, or another name"}
	}
	return &s, nil
}

// OwnEnvDir is the directory of an environment's record, by what the record says itself: ""
// is that there is none, and that of another environment of its name is an error.
func OwnEnvDir(s *jobs.EnvSpec) (dir string, err error) {
	dir = filepath.Join(s.Home, "envs", s.Name)
	is, err := LoadEnv(dir)
	switch {
	case jobs.KindOf(err) == jobs.KindNotFound:
		return "", nil
	case err != nil:
		return "", err
	case is.ID != s.ID:
		return "", &jobs.Error{Kind: jobs.KindAgain, Msg: "environment " + s.Name + " is another one by now", Hint: "look again: berth env ls"}
	}
	return dir, nil
}

// ListEnvs reads all environments, by name. What could not be read is in the
// error, beside the others.
func (s *Store) ListEnvs() ([]*jobs.EnvSpec, error) {
	names, err := readNames(s.Envs())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "list the environments", Err: err}
	}
	slices.Sort(names)
	var out []*jobs.EnvSpec
	var errs []error
	for _, name := range names {
		if !isEnvName(name) {
			sweep(s.Envs(), name)
			continue
		}
		e, err := LoadEnv(s.EnvDir(name))
		switch {
		case jobs.KindOf(err) == jobs.KindNotFound: // half made, or going
		case err != nil:
			errs = append(errs, err)
		default:
			out = append(out, e)
		}
	}
	return out, errors.Join(errs...)
}

// RemoveEnv deletes an environment's directory, and not that of another one
// which has its name by now. The caller has made sure that nothing uses it. The directory is renamed first, so that a crash leaves no
// half record, and remove, which is given the new name, does the rest.
func (s *Store) RemoveEnv(spec *jobs.EnvSpec, remove func(dir string) error) error {
	dir := s.EnvDir(spec.Name)
	if is, err := LoadEnv(dir); err == nil && is.ID != spec.ID {
		return &jobs.Error{Kind: jobs.KindAgain, Msg: "the environment " + spec.Name + " was removed already, and another one was made in its place",
			Hint: "look again: berth env ls"}
	}
	gone := filepath.Join(s.Envs(), prefixGone+spec.ID)
	if err := moveDir(dir, gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "remove the environment " + spec.Name, Err: err}
	}
	if err := remove(gone); err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "remove the environment " + spec.Name, Err: err, Hint: "what is left stands in " + gone}
	}
	return disk.SyncDir(s.Envs())
}
