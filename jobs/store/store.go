package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"

	"berth/jobs"
)

// Store is a ledger in a directory, $BERTH_HOME.
type Store struct {
	home  string
	index string // file of the index, or ""
}

// Open returns the ledger at home and makes the directory when it is missing.
// A directory that others may enter, or that belongs to somebody else, is
// refused: job records hold what tasks do, and job scripts in it are run.
func Open(home string) (*Store, error) {
	s, err := At(home)
	if err != nil {
		return nil, err
	}
	if err := makeDir(s.home); err != nil {
		return nil, openError(err)
	}
	// Looked at before anything is made in it: it may not be ours.
	fi, err := os.Stat(s.home)
	if err != nil {
		return nil, openError(err)
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the state directory " + s.home + " belongs to another user",
			Hint: "set BERTH_HOME to a directory of your own"}
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return nil, &jobs.Error{Kind: jobs.KindConfig, Msg: "the state directory " + s.home + " is open to other users",
			Hint: "set BERTH_HOME to a directory of its own, or, if nobody else needs this one: chmod 700 " + s.home}
	}
	if err := checkAbove(s.home); err != nil {
		return nil, err
	}
	if err := makeDir(filepath.Join(s.home, "jobs")); err != nil {
		return nil, openError(err)
	}
	s.index = indexFile(s.home)
	return s, nil
}

// checkAbove refuses a directory below one that everybody may write: somebody
// could move ours away and put another in its place, and job scripts run
// programs from it. A sticky directory such as /tmp keeps names to their
// owners. Who may write for a group, and the owner of a directory above, are
// taken to be trusted: laboratories share directories that way.
func checkAbove(home string) error {
	real, err := filepath.EvalSymlinks(home)
	if err != nil {
		return openError(err)
	}
	// The names that lead there, and the place itself, when links are between.
	for _, path := range []string{home, real} {
		for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
			fi, err := os.Stat(dir)
			if err != nil {
				return openError(err)
			}
			if fi.Mode().Perm()&0o002 != 0 && fi.Mode()&os.ModeSticky == 0 {
				return &jobs.Error{Kind: jobs.KindConfig, Msg: "everybody may write " + dir + ", and so replace the state directory " + home,
					Hint: "set BERTH_HOME to a directory elsewhere, or, if " + dir + " is yours: chmod o-w " + dir}
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return nil
}

func openError(err error) error {
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "make the state directory", Err: err, Hint: "set BERTH_HOME to a directory that you may write and the compute nodes see"}
}

// At returns the ledger at home without looking at the disk; only paths can be
// asked of it before [Open] has made it.
func At(home string) (*Store, error) {
	if !filepath.IsAbs(home) {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the state directory %q is not an absolute path", home), Hint: "set BERTH_HOME to an absolute path"}
	}
	if err := jobs.CheckText("the path of the state directory", home); err != nil {
		return nil, err
	}
	if strings.ContainsAny(home, ":,") {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "the state directory " + home + " has a ':' or ',' in its path, which container overlays cannot take",
			Hint: "set BERTH_HOME to a directory without them"}
	}
	return &Store{home: filepath.Clean(home)}, nil
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
	return filepath.Join(s.home, "jobs", id[max(0, len(id)-2):], id)
}

// Find returns the one job that a prefix or suffix of an id names.
func (s *Store) Find(word string) (*jobs.Record, error) {
	none := &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("there is no job %q", word), Hint: "berth ps --all lists the jobs"}
	if word == "" {
		return nil, none
	}
	ids, err := s.ids(word)
	if err != nil {
		return nil, err
	}
	switch len(ids) {
	case 0:
		return nil, none
	case 1:
		return s.Load(ids[0])
	}
	const enough = 4
	sort.Strings(ids)
	more := ""
	if len(ids) > enough {
		ids, more = ids[:enough], fmt.Sprintf(" and %d more", len(ids)-enough)
	}
	return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the job id %q is ambiguous: %s%s", word, strings.Join(ids, " "), more), Hint: "give more of the id"}
}

// ids lists the ids of all jobs, or of those that word names. What could not
// be listed is in the error, beside the others.
func (s *Store) ids(word string) ([]string, error) {
	root := filepath.Join(s.home, "jobs")
	shards, err := readNames(root)
	if err != nil {
		return nil, &jobs.Error{Kind: jobs.KindInfra, Msg: "list the jobs", Err: err}
	}
	var out []string
	var errs []error
	for _, shard := range shards {
		dir := filepath.Join(root, shard)
		names, err := readNames(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
			errs = append(errs, &jobs.Error{Kind: jobs.KindInfra, Msg: "list the jobs", Err: err})
		}
		for _, name := range names {
			switch {
			case strings.HasPrefix(name, "."):
				sweep(dir, name)
			case word != "" && !jobs.MatchID(name, word), !jobs.ValidID(name), !strings.HasSuffix(name, shard):
			default:
				out = append(out, name)
			}
		}
	}
	return out, errors.Join(errs...)
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = d.Close() }()
	return d.Readdirnames(-1)
}
