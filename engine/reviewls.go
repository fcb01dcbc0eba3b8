package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"berth/internal/config/sitefile"
	"berth/internal/sys/disk"
	"berth/internal/workspace"
	"berth/internal/workspace/review"
	"berth/jobs"
	"berth/jobs/store"
)

// ReviewItem is a result in the list of those that wait.
type ReviewItem struct {
	Record  *jobs.Record
	State   ReviewState
	Verdict *jobs.ReviewVerdict // the last one; nil is none
	// Target is the branch that it is for, "" is not known, and Commit the result.
	// With several workspaces they are all targets, with commas between them, and the first commit.
	Target, Commit string
	// Conflicts are the short ids of other results that wait for the same target, with
	// which it conflicts.
	Conflicts []string
	// TargetConflicts are the targets that moved since the task started, and with which the
	// result conflicts now.
	TargetConflicts []string

	ref   string
	onto  string       // the commit that the target has; "" is not known
	files []string     // that it has changed, of one that may conflict with others
	part  *jobs.Record // of one workspace, while they are looked for
}

// ReviewList is what waits for a review or a merge.
type ReviewList struct {
	Items []ReviewItem // oldest first
	// Unforecast is how many pairs were not looked at for conflicts this time.
	Unforecast int
	// Problems are repositories that could not be read, and why.
	Problems []error
}

// mostForecasts bounds how many pairs git merges in one look.
const mostForecasts = 64

// ListReviews lists the results that wait for a review or a merge; with all, those that
// were merged or rejected, too. It asks no scheduler.
func (e *Engine) ListReviews(ctx context.Context, all bool) (*ReviewList, error) {
	recs, lerr := e.Store.List()
	if recs == nil && lerr != nil {
		return nil, lerr
	}
	imported, ierr := e.Store.ListImported()
	recs = append(recs, imported...)
	byRepo, whole := map[string][]*jobs.Record{}, map[string]*jobs.Record{}
	var repos []string
	for _, r := range recs {
		if reviewable(r) != nil {
			continue
		}
		whole[r.Spec.ID] = r
		for _, p := range r.ChangedParts() {
			dir := p.Spec.Workspace.GitDir
			if byRepo[dir] == nil {
				repos = append(repos, dir)
			}
			byRepo[dir] = append(byRepo[dir], p)
		}
	}
	out := &ReviewList{}
	for _, err := range []error{lerr, ierr} {
		if err != nil {
			out.Problems = append(out.Problems, err)
		}
	}
	f := &forecaster{e: e, file: filepath.Join(e.Store.Home(), "conflicts.json"), left: mostForecasts, targets: mostForecasts / 2}
	for _, dir := range repos {
		items, err := e.listRepo(ctx, byRepo[dir], all)
		if err != nil {
			out.Problems = append(out.Problems, repoError(err))
			continue
		}
		if err := f.forecast(ctx, items); err != nil {
			out.Problems = append(out.Problems, repoError(err))
		}
		for _, it := range items {
			out.Items = append(out.Items, *it)
		}
	}
	out.Unforecast = f.skipped
	f.save()
	slices.SortStableFunc(out.Items, func(a, b ReviewItem) int { return strings.Compare(a.Record.Spec.ID, b.Record.Spec.ID) })
	out.Items = joined(out.Items, whole)
	return out, ctx.Err()
}

// joined makes one item of those of a job's workspaces, which follow each other.
func joined(parts []ReviewItem, whole map[string]*jobs.Record) (out []ReviewItem) {
	for _, it := range parts {
		it.Record = whole[it.part.Spec.ID]
		last := len(out) - 1
		if last < 0 || out[last].Record != it.Record {
			out = append(out, it)
			continue
		}
		to := &out[last]
		if !slices.Contains(strings.Split(to.Target, ","), it.Target) {
			to.Target += "," + it.Target
		}
		if it.State == ReviewStale {
			to.State = it.State
		}
		to.TargetConflicts = append(to.TargetConflicts, it.TargetConflicts...)
		to.Conflicts = append(to.Conflicts, it.Conflicts...)
		slices.Sort(to.Conflicts)
		to.Conflicts = slices.Compact(to.Conflicts)
	}
	return out
}

// listRepo are the results of one repository, which git is asked about once or twice.
func (e *Engine) listRepo(ctx context.Context, recs []*jobs.Record, all bool) ([]*ReviewItem, error) {
	repo := e.repoOf(&recs[0].Spec)
	if _, err := os.Stat(repo.Src.Repo); err != nil {
		first := jobs.Short(recs[0].Spec.ID)
		out := &jobs.Error{Kind: jobs.KindInfra, Msg: "the repository of job " + first, Err: err}
		if len(recs) > 1 {
			out.Msg += fmt.Sprintf(" and %d more", len(recs)-1)
		}
		if errors.Is(err, fs.ErrNotExist) {
			out.Hint = "berth rm " + first + ", if it is gone for good"
		}
		return nil, out
	}
	reviews, items, errs := make([]*jobs.Reviews, len(recs)), make([]*ReviewItem, len(recs)), make([]error, len(recs))
	read := make(chan struct{})
	go func() { // while git lists the branches
		defer close(read)
		someAtOnce(len(recs), func(i int) { reviews[i], errs[i] = store.LoadReviews(recs[i].Dir) })
	}()
	refs, err := repo.Branches(ctx)
	<-read
	if err != nil {
		return nil, err
	}
	someAtOnce(len(recs), func(i int) {
		if errs[i] == nil {
			items[i], errs[i] = itemOf(recs[i], reviews[i], refs)
		}
	})
	items = slices.DeleteFunc(items, func(it *ReviewItem) bool {
		return it == nil || !all && (it.State == ReviewMerged || it.State == ReviewRejected || it.Record.Sent != nil && it.Verdict != nil)
	})
	return items, errors.Join(errs...)
}

// someAtOnce does n things that wait for files, a few at a time.
func someAtOnce(n int, do func(i int)) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range min(8, n) {
		wg.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

func itemOf(r *jobs.Record, rs *jobs.Reviews, refs map[string]string) (*ReviewItem, error) {
	refs, err := asSent(r, refs, "")
	if err != nil {
		return nil, err
	}
	rs = rs.Of(r.Spec.Workspace.Name)
	it := &ReviewItem{Record: r, part: r, State: stateOfReview(r, rs, refs), Verdict: rs.Verdict(),
		Commit: r.Current().Result().Commit, ref: targetOf(r, rs)}
	it.Target = strings.TrimPrefix(it.ref, headRefs)
	it.onto = refs[it.ref]
	if it.waits() && it.ref != "" {
		it.files = changedFiles(r.Current().Dir)
	}
	return it, nil
}

// fewWait refuses a task that would make one more result where so many wait for a
// verdict. They are counted by their records alone.
func (e *Engine) fewWait(site *sitefile.File, c Choice) error {
	if c.MaxWaiting == 0 && (site == nil || site.Review.MaxWaiting == 0) {
		return nil
	}
	recs, err := e.Store.List()
	if recs == nil && err != nil {
		return err
	}
	have := 0
	for _, r := range recs {
		if reviewable(r) != nil {
			continue
		}
		if rs, err := store.LoadReviews(r.Dir); err == nil && rs.Verdict() == nil { // what cannot be read is told by berth review ls
			have++
		}
	}
	if err := site.Waiting(have); err != nil {
		return err
	}
	if c.MaxWaiting > 0 && have >= c.MaxWaiting {
		return &jobs.Error{Kind: jobs.KindConfig,
			Msg:  fmt.Sprintf("%d results of your jobs wait for a review, and %d may: %s", have, c.MaxWaiting, c.WaitingBy),
			Hint: "decide some of them first: berth review ls"}
	}
	return nil
}

// waits reports whether it may still be merged.
func (it *ReviewItem) waits() bool { return it.State != ReviewMerged && it.State != ReviewRejected }

// moved reports whether its target has moved since the task started. What another user's
// target is now is not known here.
func (it *ReviewItem) moved() bool {
	return it.part.Sent == nil && it.onto != "" && it.onto != it.part.Spec.Workspace.Base
}

// forecaster finds results that conflict with each other or with a target that has moved:
// those that change the same path, or one below it, are merged by git, without a work tree.
// The answer holds for ever for a pair of commits.
type forecaster struct {
	e       *Engine
	git     *workspace.Borrowed // of the repository that is looked at; nil is not needed yet
	file    string
	known   map[string]bool
	added   bool
	left    int // so many pairs may still be merged
	targets int // and so many of these with targets that moved: pairs have their share
	skipped int
	broken  bool            // the repository that is looked at cannot be read, or borrowed from
	there   map[string]bool // the commits that it has; nil is not known yet
}

// mostKnown bounds the remembered answers: more are forgotten all together.
const mostKnown = 8000

func (f *forecaster) load() {
	if f.known != nil {
		return
	}
	f.known = map[string]bool{}
	b, err := disk.ReadRegular(f.file, 8<<20)
	if err == nil {
		_ = json.Unmarshal(b, &f.known) // what is damaged is found out again
	}
	if len(f.known) > mostKnown {
		f.known = map[string]bool{}
	}
}

func (f *forecaster) save() {
	if b, err := json.Marshal(f.known); err == nil && f.added {
		_ = disk.Replace(f.file, b, 0o600) // it only saves time
	}
}

// forecast marks the items of one repository. With an error, the first of what git could not
// merge, the marks of the others stand.
func (f *forecaster) forecast(ctx context.Context, items []*ReviewItem) error {
	f.load()
	f.broken, f.there = false, nil
	defer func() {
		if f.git != nil {
			_ = f.git.Close()
			f.git = nil
		}
	}()
	var first error
	conflict := func(it *ReviewItem, with string, target bool) bool {
		hit, err := f.conflict(ctx, items, it, with, target)
		first = cmp.Or(first, err)
		return hit
	}
	for i := len(items) - 1; i >= 0; i-- { // the newest are of most interest
		it := items[i]
		if it.waits() && it.moved() && conflict(it, it.onto, true) {
			it.TargetConflicts = []string{it.Target}
		}
	}
	for _, p := range pairsOf(items) {
		if conflict(p.a, p.b.Commit, false) {
			p.a.Conflicts = append(p.a.Conflicts, jobs.Short(p.b.Record.Spec.ID))
			p.b.Conflicts = append(p.b.Conflicts, jobs.Short(p.a.Record.Spec.ID))
		}
	}
	for _, it := range items {
		slices.Sort(it.Conflicts)
	}
	return first
}

// look asks git once which commits of the items of a repository it has.
func (f *forecaster) look(ctx context.Context, items []*ReviewItem) error {
	var ids []string
	for _, it := range items {
		ids = append(ids, it.Commit, it.onto)
	}
	known, err := f.e.git.Known(ctx, sourceOf(items[0].Record.Spec.Workspace), ids)
	f.there = map[string]bool{}
	for _, id := range known {
		f.there[id] = true
	}
	return err
}

// conflict reports whether a result, one of items, conflicts with another commit, as far as
// that may still be found out.
func (f *forecaster) conflict(ctx context.Context, items []*ReviewItem, it *ReviewItem, with string, target bool) (bool, error) {
	key := min(it.Commit, with) + " " + max(it.Commit, with)
	if hit, known := f.known[key]; known {
		return hit, nil
	}
	if f.broken || f.left == 0 || target && f.targets == 0 {
		f.skipped++
		return false, nil
	}
	if f.there == nil {
		if err := f.look(ctx, items); err != nil {
			f.broken = true
			return false, err
		}
	}
	if !f.there[it.Commit] || !f.there[with] { // or not yet: whether they conflict is not known, at each look
		f.skipped++
		return false, nil
	}
	f.left--
	if target {
		f.targets--
	}
	if f.git == nil {
		var err error
		if f.git, err = f.e.git.Borrow(ctx, it.Record.Current().Dir, sourceOf(it.Record.Spec.Workspace)); err != nil {
			f.broken = true
			return false, err
		}
	}
	o, err := review.Merge(ctx, f.git, with, it.Commit)
	if errors.Is(err, fs.ErrNotExist) { // a commit has gone since
		f.skipped++
		return false, nil
	}
	if err != nil {
		return false, err
	}
	f.known[key], f.added = o.Tree == "", true
	return o.Tree == "", nil
}

// pairOf are two results for the same target.
type pairOf struct{ a, b *ReviewItem }

// mostAbove bounds the directories above a path that are looked at, the next ones first.
const mostAbove = 64

// pairsOf are those that may conflict: they change the same path, or one has a file where the
// other has a directory.
func pairsOf(items []*ReviewItem) (pairs []pairOf) {
	at := map[*ReviewItem]int{}
	byPath := map[string][]*ReviewItem{} // of those with the same target
	for i, it := range items {
		at[it] = i
		for _, file := range it.files {
			key := it.ref + "\x00" + file
			byPath[key] = append(byPath[key], it)
		}
	}
	seen := map[pairOf]bool{}
	add := func(a, b *ReviewItem) {
		if at[b] < at[a] {
			a, b = b, a
		}
		if p := (pairOf{a, b}); !seen[p] && a.Commit != b.Commit {
			seen[p] = true
			pairs = append(pairs, p)
		}
	}
	for key, list := range byPath {
		for i, a := range list {
			for _, b := range list[i+1:] {
				add(a, b)
			}
		}
		at := strings.LastIndexByte(key, '/')
		for n := 0; n < mostAbove && at > strings.IndexByte(key, 0); n, at = n+1, strings.LastIndexByte(key[:at], '/') {
			for _, a := range byPath[key[:at]] {
				for _, b := range list {
					add(a, b)
				}
			}
		}
	}
	slices.SortFunc(pairs, func(x, y pairOf) int { // the newest are of most interest
		return cmp.Or(strings.Compare(y.a.Record.Spec.ID, x.a.Record.Spec.ID), strings.Compare(y.b.Record.Spec.ID, x.b.Record.Spec.ID))
	})
	return pairs
}

// changedFiles are the paths of an attempt's result, of renames both; none where the
// manifest cannot be read.
func changedFiles(attemptDir string) []string {
	b, err := os.ReadFile(filepath.Join(attemptDir, workspace.ManifestFile))
	if err != nil {
		return nil
	}
	var m struct {
		Files []struct {
			Path    string `json:"path"`
			OldPath string `json:"old_path"`
		} `json:"files"`
	}
	if json.Unmarshal(b, &m) != nil {
		return nil
	}
	out := make([]string, 0, len(m.Files))
	for _, c := range m.Files {
		out = append(out, c.Path)
		if c.OldPath != "" {
			out = append(out, c.OldPath)
		}
	}
	return out
}
