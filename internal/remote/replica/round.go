package replica

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"berth/internal/link/transfer"
	"berth/internal/sys/disk"
	"berth/jobs"
	"berth/jobs/store"

	"golang.org/x/sys/unix"
)

// roundBudget is how much one round brings, so that a link that breaks costs no
// more than that.
const roundBudget = 32 << 20

// Round brings the copies of records up to date, all in one execution unless
// there is much to bring. The error of a record that could not be brought up to
// date is at its index; what has come in before stays, and changes nothing that
// was known.
func (s *Site) Round(ctx context.Context, recs []*jobs.Record) []error {
	return s.rounds(ctx, recs, false)
}

// Follow has the program on the cluster take the next step of the jobs, as it does
// there for every job, and then does what [Site.Round] does. The error of a job says
// that its step failed; a job without a record there is [jobs.KindNotFound].
func (s *Site) Follow(ctx context.Context, recs []*jobs.Record) []error {
	return s.rounds(ctx, recs, true)
}

func (s *Site) rounds(ctx context.Context, recs []*jobs.Record, follow bool) []error {
	recs = slices.Clone(recs) // a record is loaded again when it gets another attempt
	errs := make([]error, len(recs))
	homes := map[string][]int{}
	for i, r := range recs {
		if r.Current() != nil {
			homes[r.Spec.LoginHome] = append(homes[r.Spec.LoginHome], i)
		}
	}
	for home, list := range homes {
		act := follow
		for len(list) > 0 {
			list = s.some(ctx, home, recs, list, errs, act)
			act = false
		}
	}
	return errs
}

// some is one execution. It returns those of which there is more.
func (s *Site) some(ctx context.Context, home string, recs []*jobs.Record, list []int, errs []error, follow bool) (more []int) {
	in := &receiver{s: s, ctx: ctx, recs: map[string]*incoming{}, follow: follow}
	ask := roundAsk{Version: version, Home: home, Budget: roundBudget}
	for _, i := range list {
		j, err := standing(recs[i])
		if err != nil {
			errs[i] = err
			continue
		}
		ask.Jobs = append(ask.Jobs, j)
		if follow {
			ask.Follow = append(ask.Follow, j.ID)
		}
		in.recs[recs[i].Spec.ID] = &incoming{rec: recs[i], have: j.Have, hold: map[string][]byte{}}
	}
	r, w := io.Pipe()
	read := make(chan error, 1)
	go func() {
		err := in.all(bufio.NewReaderSize(r, 64<<10))
		_ = r.CloseWithError(errors.Join(err, errDone))
		read <- err
	}()
	err := s.node(ctx, roundTime, []string{verbRound}, jsonInput(ask), w)
	_ = w.Close()
	// What makes no sense is why the link was closed, then.
	var nonsense *jobs.Error
	if rerr := <-read; rerr != nil && (err == nil || errors.As(rerr, &nonsense)) {
		err = rerr
	}
	for _, i := range list {
		got := in.recs[recs[i].Spec.ID]
		switch {
		case got == nil:
		case got.err != nil:
			errs[i] = got.err
		case !got.closed && err == nil:
			errs[i] = s.nonsense(nil)
		case !got.closed:
			errs[i] = err
		case got.next:
			if recs[i], errs[i] = store.LoadDir(recs[i].Dir); errs[i] == nil {
				more = append(more, i)
			}
		case got.more && got.moved > 0:
			more = append(more, i)
		case got.more:
			errs[i] = s.nonsense(errors.New("it has more and sends nothing"))
		}
	}
	return more
}

var errDone = errors.New("the answer was read")

// standing tells what stands here of a record's files.
func standing(r *jobs.Record) (haveJob, error) {
	a := r.Current()
	give, err := store.AllowFiles(r.Dir)
	if err != nil {
		return haveJob{}, err
	}
	j := haveJob{ID: r.Spec.ID, Attempt: a.N, Have: map[string]int64{}, Give: give}
	for _, f := range files {
		path := pathOf(r, f)
		fi, err := os.Lstat(path)
		if f.kind == final && errors.Is(err, os.ErrNotExist) {
			fi, err = os.Lstat(partOf(path))
		}
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return j, err
		}
		j.Have[f.name] = fi.Size()
		if given[f.name] && f.kind == once {
			b, err := os.ReadFile(path)
			if err != nil {
				return j, err
			}
			j.Give[f.name] = b
		}
	}
	return j, nil
}

func pathOf(r *jobs.Record, f file) string {
	if f.name == store.FileCancel {
		return filepath.Join(r.Dir, f.name)
	}
	return filepath.Join(r.Current().Dir, f.name)
}

// partOf is a file that has not come in whole yet.
func partOf(path string) string {
	return filepath.Join(filepath.Dir(path), ".part-"+filepath.Base(path))
}

// artifacts brings the files that the task's patterns name, once. The record of
// the attempt's end says how much that is.
func (s *Site) artifacts(ctx context.Context, rec *jobs.Record, exit *jobs.ExitRecord) error {
	dir := rec.Current().Dir
	to := filepath.Join(dir, dirArtifacts)
	if _, err := os.Lstat(to); err == nil {
		return nil
	}
	if lacksSpace(dir, exit) {
		return nil // [NotHere] says so
	}
	tmp, err := os.MkdirTemp(dir, ".new-"+dirArtifacts)
	if err != nil {
		return err
	}
	defer func() { _ = disk.RemoveTree(tmp) }()
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		limit := &atMost{r: r, left: artifactBytes(exit)}
		_, _, err := transfer.Unpack(ctx, limit, tmp, transfer.Options{})
		_ = r.CloseWithError(errors.Join(err, errDone))
		done <- err
	}()
	err = s.node(ctx, longTime, []string{verbArtifacts, "--home", rec.Spec.LoginHome, "--job", rec.Spec.ID}, nil, w)
	_ = w.Close()
	if uerr := <-done; err == nil || errors.Is(err, errDone) {
		err = uerr
	}
	if err == nil {
		err = onlyFiles(tmp)
	}
	if err == nil {
		err = os.Rename(tmp, to)
	}
	if err != nil {
		if _, serr := os.Lstat(to); serr == nil {
			return nil // another process was faster
		}
		return fmt.Errorf("fetch the artifacts of job %s: %w", jobs.Short(rec.Spec.ID), err)
	}
	return nil
}

// artifactBytes is what the stream of the artifacts may take: what the record
// says that there are, with the headers of a tar file. A record of an earlier berth
// does not say it; its runner collected less than that.
func artifactBytes(exit *jobs.ExitRecord) int64 {
	const (
		each  = 16 << 10 // a header, names as long as they may be, a directory, padding
		early = 5 << 30
	)
	if exit.ArtifactFiles == 0 {
		return early
	}
	return int64(exit.ArtifactBytes) + int64(exit.ArtifactFiles)*each + 1<<20
}

// lacksSpace tells whether the artifacts have no room in the file system of a
// directory, of which some is left to others. What was a hole there is none here.
func lacksSpace(dir string, exit *jobs.ExitRecord) bool {
	var st unix.Statfs_t
	if exit.ArtifactFiles == 0 || unix.Statfs(dir, &st) != nil || st.Blocks == 0 {
		return false
	}
	block := uint64(st.Bsize)
	left := st.Bavail * block
	return uint64(artifactBytes(exit))+min(st.Blocks*block/20, 1<<30) > left
}

// atMost fails when a stream goes on behind its limit.
type atMost struct {
	r    io.Reader
	left int64
}

func (a *atMost) Read(b []byte) (int, error) {
	n, err := a.r.Read(b)
	if a.left -= int64(n); a.left < 0 {
		return 0, errors.New("there are more artifacts than its record says")
	}
	return n, err
}

// onlyFiles refuses what a runner does not collect.
func onlyFiles(dir string) error {
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !d.Type().IsRegular() {
			rel, _ := filepath.Rel(dir, path)
			err = fmt.Errorf("%q is not a file", rel)
		}
		return err
	})
}
