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
// A directory that others may enter, or that belongs to another user, is
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
	if err := s.Trusted(); err != nil {
		return nil, err
	}
	if err := makeDir(filepath.Join(s.home, "jobs")); err != nil {
		return nil, openError(err)
	}
	s.index = indexFile(s.home)
	return s, nil
}

func openError(err error) error {
	return &jobs.Error{Kind: jobs.KindInfra, Msg: "make the state directory", Err: err,
		Hint: "set BERTH_HOME to a directory that you may write and the compute nodes see"}
}

// At returns the ledger at home without looking at the disk; only paths can be
// asked of it before [Open] has made it.
func At(home string) (*Store, error) {
	if !filepath.IsAbs(home) {
		return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the state directory %q is not an absolute path", home),
			Hint: "set BERTH_HOME to an absolute path"}
	}
	if err := jobs.CheckText("the path of the state directory", home); err != nil {
		return nil, err
	}
	if strings.ContainsAny(home, ":,") {
		return nil, &jobs.Error{Kind: jobs.KindUsage,
			Msg:  "the state directory " + home + " has a ':' or ',' in its path, which container overlays cannot take",
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

// Templates is the directory of new ext3 images, see [TemplatesIn].
func (s *Store) Templates() string { return TemplatesIn(s.home) }

// HintNoExec is what to do about a state directory from which no program can be run.
const HintNoExec = "set BERTH_HOME to a private directory without noexec that all nodes see, " +
	"such as one of the project's (examples/profiles/noexec-home.toml)"

// TemplatesIn is where new ext3 images are kept ready in a state directory.
func TemplatesIn(home string) string { return filepath.Join(home, "ext3") }

// Asked is where the programs of schedulers are counted that were started.
func (s *Store) Asked() string { return AskedIn(s.home) }

// AskedIn is the same in a state directory.
func AskedIn(home string) string { return filepath.Join(home, "asked") }

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
	if word == "" {
		return s.one(word, nil)
	}
	ids, err := s.ids(word)
	if err != nil {
		return nil, err
	}
	return s.one(word, ids)
}

// one loads the job that a word names, of these ids.
func (s *Store) one(word string, ids []string) (*jobs.Record, error) {
	switch len(ids) {
	case 0:
		return nil, &jobs.Error{Kind: jobs.KindNotFound, Msg: fmt.Sprintf("there is no job %q", word), Hint: "berth ps --all lists the jobs"}
	case 1:
		return s.Load(ids[0])
	}
	const enough = 4
	sort.Strings(ids)
	more := ""
	if len(ids) > enough {
		ids, more = ids[:enough], fmt.Sprintf(" and %d more", len(ids)-enough)
	}
	return nil, &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("the job id %q is ambiguous: %s%s", word, strings.Join(ids, " "), more),
		Hint: "give more of the id"}
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
