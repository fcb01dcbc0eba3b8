package store

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"time"

	"berth/jobs"
)

// The index makes listings fast: it keeps the records of jobs that wait or have
// ended, so that three stats take the place of some thirty system calls and of
// reading JSON. It is this host's own, is checked against the ledger whenever
// it is read, and may be deleted at any time.
//
// All files of a record are written once, so what was read stays true as long
// as no name was added to its directories, and a new name changes their
// modification time. Times may be coarse, so a directory that was changed a
// moment ago is read again.
type index struct {
	rows  map[string]*row
	stale int // rows that were in the file and are of no use
}

// row is a record with one attempt; more are rare, and read each time. The
// fields are exported for encoding/gob.
type row struct {
	ID     string
	Stamps stamps
	Record *jobs.Record
}

// stamps are of a job's directory, of its attempts, of the first attempt.
type stamps [3]stamp

// stamp changes whenever a name is added to a directory.
type stamp struct {
	Inode   uint64
	Changed int64
}

const (
	// indexFrom is the number of jobs from which on an index is worth it.
	indexFrom = 100
	// settled is how old the last change of a directory must be before its
	// time is trusted to show the next one: more than any file system's
	// resolution, and than the clocks of a file server and a host differ.
	settled = time.Minute
	// indexHead begins the file.
	indexHead = "berth index 1\n"
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

// loadIndex reads the index. Whatever is wrong with it, without it a listing
// is only slower.
func (s *Store) loadIndex() *index {
	idx := &index{rows: map[string]*row{}}
	if s.index == "" {
		return idx
	}
	b, err := readOwn(s.index)
	if err != nil {
		return idx
	}
	rows, ok := decodeIndex(b, s.home)
	if !ok {
		idx.stale = math.MaxInt32
		return idx
	}
	for _, r := range rows {
		idx.rows[r.ID] = r
	}
	return idx
}

// readOwn reads a file that nobody else can have written: what stands in the
// index counts as much as the ledger.
func readOwn(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st, ok := fi.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() || fi.Mode().Perm()&0o022 != 0 {
		return nil, fs.ErrPermission
	}
	b := make([]byte, fi.Size())
	_, err = io.ReadFull(f, b)
	return b, err
}

// loadIndexed reads a record, from the index where that holds. The row is nil
// when the record is not for the index.
func (s *Store) loadIndexed(id string, idx *index, now time.Time) (*jobs.Record, *row, error) {
	dir := s.JobDir(id)
	// The times before the content: a change in between shows the next time.
	at, stamped := stampsOf(dir)
	if r := idx.rows[id]; r != nil && stamped && r.Stamps == at {
		return r.Record, r, nil
	}
	rec, err := LoadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	a := rec.Current()
	if !stamped || len(rec.Attempts) != 1 || a.Claim != nil && a.Exit == nil || !at.before(now.Add(-settled)) {
		return rec, nil, nil // it may change at any moment; a beat changes no directory
	}
	return rec, &row{ID: id, Stamps: at, Record: rec}, nil
}

func stampsOf(dir string) (at stamps, ok bool) {
	for i, d := range []string{dir, filepath.Join(dir, dirAttempts), AttemptDir(dir, 1)} {
		fi, err := os.Lstat(d)
		if err != nil {
			return at, false
		}
		st, ok := fi.Sys().(*syscall.Stat_t)
		if !ok {
			return at, false
		}
		at[i] = stamp{Inode: st.Ino, Changed: fi.ModTime().UnixNano()}
	}
	return at, true
}

// before tells whether the last change of each directory was before t.
func (at stamps) before(t time.Time) bool {
	for _, s := range at {
		if s.Changed >= t.UnixNano() {
			return false
		}
	}
	return true
}

// saveIndex replaces the index when enough has changed to be worth the write.
// Two processes that do so at once do no harm: either file is whole and true.
func (s *Store) saveIndex(old *index, rows []*row) {
	if s.index == "" || len(rows) < indexFrom {
		return
	}
	kept, fresh := 0, 0
	for _, r := range rows {
		if r == nil {
			continue
		}
		kept++
		if old.rows[r.ID] != r {
			fresh++
		}
	}
	if gone := len(old.rows) - (kept - fresh) + old.stale; fresh+gone <= len(rows)/32 {
		return
	}
	b, err := encodeIndex(rows, s.home)
	if err != nil {
		return
	}
	dir := filepath.Dir(s.index)
	if os.MkdirAll(dir, 0o700) != nil {
		return
	}
	f, err := os.CreateTemp(dir, ".index-*")
	if err != nil {
		return
	}
	_, err = f.Write(b)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), s.index)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
}

// indexed is the content of the file. Form is that of the program that wrote
// it: one with other fields would read zeros for what it does not find.
type indexed struct {
	Home string
	Form uint32
	Rows []*row
}

// form is a checksum of the fields of a row and of all that it holds.
func form() uint32 {
	var b bytes.Buffer
	describe(&b, reflect.TypeFor[row](), map[reflect.Type]bool{})
	return crc32.ChecksumIEEE(b.Bytes())
}

func describe(b *bytes.Buffer, t reflect.Type, seen map[reflect.Type]bool) {
	fmt.Fprintln(b, t, t.Kind())
	if seen[t] {
		return
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		describe(b, t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			fmt.Fprintln(b, t.Field(i).Name)
			describe(b, t.Field(i).Type, seen)
		}
	default:
	}
}

func encodeIndex(rows []*row, home string) ([]byte, error) {
	x := indexed{Home: home, Form: form()}
	for _, r := range rows {
		if r != nil {
			x.Rows = append(x.Rows, r)
		}
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(x); err != nil {
		return nil, err
	}
	head := binary.BigEndian.AppendUint32([]byte(indexHead), crc32.ChecksumIEEE(b.Bytes()))
	return append(head, b.Bytes()...), nil
}

// decodeIndex reads what encodeIndex wrote. The checksum tells a torn file, and
// home another ledger's.
func decodeIndex(b []byte, home string) ([]*row, bool) {
	b, ok := bytes.CutPrefix(b, []byte(indexHead))
	if !ok || len(b) < 4 || binary.BigEndian.Uint32(b) != crc32.ChecksumIEEE(b[4:]) {
		return nil, false
	}
	var x indexed
	if err := gob.NewDecoder(bytes.NewReader(b[4:])).Decode(&x); err != nil || x.Home != home || x.Form != form() {
		return nil, false
	}
	return x.Rows, true
}
