package store

import (
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"berth/internal/sys/disk"
	"berth/jobs"
)

// The index makes listings fast: it keeps the records of jobs that wait or have
// ended, so that three stats take the place of some thirty system calls, and
// tells which of them are at rest, so that a listing of the others does not
// even decode them. It is this host's own, is checked against the ledger
// whenever it is read, and may be deleted at any time. Its file is described in
// indexfile.go.
//
// All files of a record are written once, so what was read stays true as long
// as no name was added to its directories, and a new name changes their
// modification time. Times may be coarse, so a directory that was changed a
// moment ago is read again.
type index struct {
	file   *os.File // nil is no index
	rows   map[string]*row
	chunks []chunk
	// bad tells that something in the file is not what was written.
	bad atomic.Bool
}

// row is of a record with one attempt; more are rare, and read each time.
type row struct {
	id     string
	stamps stamps
	rest   bool // nothing is to be done about the job any more
	// The chunk that the record is in, and its place there.
	chunk, pos uint32
}

// chunk is where some records are in the file. All of them are at rest, or none.
type chunk struct {
	at   int64
	size uint32
	sum  uint32
	once sync.Once
	recs []*jobs.Record // of the first who wanted one
}

// stamps are of a job's directory, of its attempts, of the first attempt.
type stamps [3]stamp

// stamp changes whenever a name is added to a directory.
type stamp struct {
	inode   uint64
	changed int64
}

const (
	// indexFrom is the number of jobs from which on an index is worth it.
	indexFrom = 100
	// settled is how old the last change of a directory must be before its
	// time is trusted to show the next one: more than any file system's
	// resolution, and than the clocks of a file server and a host differ.
	settled = time.Minute
)

// indexFile is where the index of the ledger at home is kept, or "" where
// there is no place for it.
func indexFile(home string) string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	host, err := os.Hostname()
	if err != nil {
		return ""
	}
	name := fmt.Sprintf("index-%s-%08x", jobs.Slug(host), crc32.ChecksumIEEE([]byte(home)))
	return filepath.Join(cache, "berth", name)
}

// loadIndex opens the index. Whatever is wrong with it, without it a listing
// is only slower.
func (s *Store) loadIndex() *index {
	idx := &index{}
	if s.index == "" {
		return idx
	}
	f, size, err := openOwn(s.index)
	if err != nil {
		return idx
	}
	rows, chunks, ok := readTable(f, size, s.home)
	if !ok {
		idx.bad.Store(true)
		_ = f.Close()
		return idx
	}
	idx.file, idx.chunks, idx.rows = f, chunks, make(map[string]*row, len(rows))
	for i := range rows {
		idx.rows[rows[i].id] = &rows[i]
	}
	return idx
}

func (idx *index) close() {
	if idx.file != nil {
		_ = idx.file.Close()
	}
}

// openOwn opens a file that no other user can have written: the index is trusted
// as much as the ledger.
func openOwn(path string) (*os.File, int64, error) {
	f, err := disk.OpenRegular(path)
	if err != nil {
		return nil, 0, err
	}
	fi, err := f.Stat()
	if err == nil {
		st, ok := fi.Sys().(*syscall.Stat_t)
		if ok && int(st.Uid) == os.Geteuid() && fi.Mode().IsRegular() && fi.Mode().Perm()&0o022 == 0 {
			return f, fi.Size(), nil
		}
		err = fs.ErrPermission
	}
	_ = f.Close()
	return nil, 0, err
}

// record returns the record of a row; nil is for the ledger to say.
func (idx *index) record(r *row) *jobs.Record {
	c := &idx.chunks[r.chunk]
	c.once.Do(func() {
		var ok bool
		if c.recs, ok = readChunk(idx.file, c); !ok {
			idx.bad.Store(true)
		}
	})
	return r.in(c.recs)
}

// in finds the record of a row in its chunk.
func (r *row) in(recs []*jobs.Record) *jobs.Record {
	if int(r.pos) >= len(recs) || recs[r.pos].Spec.ID != r.id {
		return nil
	}
	return recs[r.pos]
}

func stampsOf(dir string) (at stamps, ok bool) {
	attempts := dir + "/" + dirAttempts
	for i, d := range [...]string{dir, attempts, attempts + "/" + firstAttempt} {
		fi, err := os.Lstat(d)
		if err != nil {
			return at, false
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok {
			return at, false
		}
		at[i] = stamp{inode: st.Ino, changed: fi.ModTime().UnixNano()}
	}
	return at, true
}

// before tells whether the last change of each directory was before t.
func (at stamps) before(t time.Time) bool {
	for _, s := range at {
		if s.changed >= t.UnixNano() {
			return false
		}
	}
	return true
}
