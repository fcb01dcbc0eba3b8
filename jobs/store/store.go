package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"berth/jobs"
)

var errInvalid = syscall.EINVAL

// Store is a ledger in a directory, $BERTH_HOME.
type Store struct {
	home string
}

// Open returns the ledger at home and makes the directory when it is missing.
// A directory that others may enter, or that belongs to somebody else, is
// refused: job records hold what tasks do, and job scripts in it are run.
func Open(home string) (*Store, error) {
	s, err := At(home)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(home, "jobs"), 0o700); err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "make the state directory", Err: err, Hint: "set BERTH_HOME to a directory that you may write and the compute nodes see"}
	}
	fi, err := os.Stat(home)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "look at the state directory", Err: err}
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the state directory " + home + " is open to other users",
			Hint: "chmod 700 " + home}
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the state directory " + home + " belongs to another user",
			Hint: "set BERTH_HOME to a directory of your own"}
	}
	return s, nil
}

// At returns the ledger at home without looking at the disk; only paths can be
// asked of it before [Open] has made it.
func At(home string) (*Store, error) {
	if !filepath.IsAbs(home) {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "BERTH_HOME is not an absolute path: " + home, Hint: "export BERTH_HOME=$PWD/" + home}
	}
	if err := jobs.CheckText("BERTH_HOME", home); err != nil {
		return nil, err
	}
	if strings.ContainsAny(home, ":,") {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "the state directory " + home + " has a ':' or ',' in its path, which container overlays cannot take",
			Hint: "set BERTH_HOME to a directory without them"}
	}
	return &Store{home: home}, nil
}

// Home returns the ledger's directory.
func (s *Store) Home() string { return s.home }

// Bin is where programs for the nodes are kept, by hash.
func (s *Store) Bin() string { return filepath.Join(s.home, "bin") }

// Overlays is where persistent overlays are kept, by name.
func (s *Store) Overlays() string { return filepath.Join(s.home, "overlays") }

// Queue is where the local scheduler of a host keeps its entries.
func (s *Store) Queue() string { return filepath.Join(s.home, "queue") }

// JobDir is the directory of a job: sharded by the last two digits of its id,
// which are random, so that no directory grows past 1,000 entries before
// there are a quarter of a million jobs.
func (s *Store) JobDir(id string) string {
	return filepath.Join(s.home, "jobs", id[len(id)-2:], id)
}

// Find returns the one job that a prefix or suffix of an id names.
func (s *Store) Find(word string) (*jobs.Record, error) {
	ids, err := s.ids(word)
	if err != nil {
		return nil, err
	}
	switch len(ids) {
	case 0:
		return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: "no job " + word, Hint: "berth ps --all lists the jobs"}
	case 1:
		return s.Load(ids[0])
	}
	short := make([]string, 0, 4)
	for i, id := range ids {
		if i == 4 {
			short = append(short, "...")
			break
		}
		short = append(short, id)
	}
	return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "job id " + word + " is ambiguous: " + strings.Join(short, " "), Hint: "give more of the id"}
}

// ids lists the ids of all jobs, or of those that word names.
func (s *Store) ids(word string) ([]string, error) {
	root := filepath.Join(s.home, "jobs")
	shards, err := os.ReadDir(root)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "list the jobs", Err: err}
	}
	var out []string
	for _, sh := range shards {
		entries, err := readNames(filepath.Join(root, sh.Name()))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			continue
		}
		if err != nil {
			return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "list the jobs", Err: err}
		}
		for _, name := range entries {
			if jobs.ValidID(name) && (word == "" || jobs.MatchID(name, word)) {
				out = append(out, name)
			}
		}
	}
	return out, nil
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	return d.Readdirnames(-1)
}
