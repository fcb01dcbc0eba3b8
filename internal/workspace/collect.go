package workspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"berth/jobs"
)

// maxRefusals bounds how often a commit is built again without the paths that
// git's fsck refused.
const maxRefusals = 10

// Collect makes the result of the task's work tree of attemptDir, which
// Prepare made and which nothing writes to any more, and writes the bundle,
// the diff and the manifest beside it, the manifest last. When nothing changed
// there is no bundle. It may be repeated.
func (g *Git) Collect(ctx context.Context, attemptDir string, src Source, opts CollectOptions) (Result, error) {
	opts.Limits = opts.Limits.orDefaults()
	if opts.Author == (Identity{}) {
		opts.Author = defaultIdentity
	}
	if opts.Time.IsZero() {
		opts.Time = time.Now()
	}
	gitDir := filepath.Join(attemptDir, GitDir)
	if opts.lend == "" { // else the base's own objects are enough
		if err := g.settleBase(ctx, gitDir, src); err != nil {
			return Result{}, fmt.Errorf("collect the result: %w", err)
		}
	}
	if err := g.checkBranch(ctx, gitDir, opts.Branch); err != nil {
		return Result{}, err
	}
	work, err := g.openWork(attemptDir)
	if err != nil {
		return Result{}, fmt.Errorf("collect the result: %w", err)
	}
	defer work.Close()
	var base tree
	live := opts.Bundle != ""
	if live {
		base, err = g.baseTree(ctx, gitDir, src.Base)
	} else {
		base, err = g.readTree(ctx, gitDir, src.Base, "-l")
	}
	if err != nil {
		return Result{}, fmt.Errorf("collect the result: %w", err)
	}
	artifacts, err := ParseScope(opts.Artifacts)
	if err != nil {
		return Result{}, err
	}
	seen, err := g.walk(ctx, work, gitDir, base, opts.Ignore, artifacts)
	if err != nil {
		return Result{}, fmt.Errorf("collect the result: %w", err)
	}
	before := seen.kinds[Unreadable]
	if live {
		seen.live()
	}
	delta := seen.delta(ctx, work, base, len(src.Base), opts.Limits)
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	if live && seen.kinds[Unreadable] > before {
		return Result{}, fmt.Errorf("collect the result: %w", ErrChanging)
	}
	c := &collector{g: g, src: src, opts: opts, attempt: attemptDir, gitDir: gitDir, work: work, base: base, seen: seen, sizes: map[string]int64{}}
	res, err := c.build(ctx, delta)
	if err != nil {
		return Result{}, fmt.Errorf("collect the result: %w", err)
	}
	return res, nil
}

// delta is what has to be done to the base's tree.
type delta struct {
	remove []string
	put    []found
}

func (d delta) empty() bool { return len(d.remove) == 0 && len(d.put) == 0 }

// without leaves paths at the base's version.
func (d delta) without(paths map[string]bool) delta {
	return delta{
		remove: slices.DeleteFunc(slices.Clone(d.remove), func(p string) bool { return paths[p] }),
		put:    slices.DeleteFunc(slices.Clone(d.put), func(f found) bool { return paths[f.path] }),
	}
}

// live says that what was seen may be written to while it is read.
func (s *survey) live() {
	for p, f := range s.tracked {
		f.live = true
		s.tracked[p] = f
	}
	for i := range s.fresh {
		s.fresh[i].live = true
	}
}

// delta compares what was seen with the base, and applies the limits. A file
// is only read when it has the size it has in the base: so a task cannot make
// it read more than the base holds.
func (s *survey) delta(ctx context.Context, work *os.Root, base tree, idLen int, limits Limits) delta {
	var d delta
	for _, p := range slices.Sorted(maps.Keys(base.entries)) {
		if _, there := s.tracked[p]; !there && !s.keeps(p) {
			d.remove = append(d.remove, p)
		}
	}
	var total int64
	put := func(f found) {
		switch {
		case f.sizeBytes > limits.FileBytes:
			s.skipFile(f.path, f.sizeBytes, TooLarge,
				fmt.Sprintf("%d bytes are more than a result may have in one file (%d)", f.sizeBytes, limits.FileBytes))
		case total+f.sizeBytes > limits.TotalBytes:
			s.skipFile(f.path, f.sizeBytes, TooLarge, fmt.Sprintf("the changed files together exceed %d bytes", limits.TotalBytes))
		default:
			total += f.sizeBytes
			d.put = append(d.put, f)
		}
	}
	var compare []found
	for _, p := range slices.Sorted(maps.Keys(s.tracked)) {
		f := s.tracked[p]
		switch {
		case f.mode == modeGitlink:
		case mayBeSame(f, base.entries[p], limits):
			compare = append(compare, f)
		default:
			put(f)
		}
	}
	for _, h := range hashAll(ctx, work, compare, idLen) {
		switch {
		case h.err != nil:
			s.skip(h.path, Unreadable, "cannot be read: "+reason(h.err))
		case h.id != base.entries[h.path].id:
			put(h.found)
		}
	}
	for i, f := range s.fresh {
		if i == limits.NewFiles {
			s.skipFile(f.path, f.sizeBytes, TooMany, fmt.Sprintf("there are more than %d new files; ignore some with .gitignore", limits.NewFiles))
			for _, f := range s.fresh[i+1:] {
				s.unlisted++
				s.count(TooMany, 1, f.sizeBytes)
			}
			break
		}
		put(f)
	}
	return d
}

// mayBeSame says whether only the content can tell that a path is not as it is
// in the base.
func mayBeSame(f found, base treeEntry, limits Limits) bool {
	switch {
	case f.mode != base.mode:
		return false
	case f.mode == modeLink: // not every file system knows their sizes
		return true
	case base.size < 0:
		return f.sizeBytes <= limits.FileBytes
	}
	return f.sizeBytes == base.size
}

// collector builds and writes a result.
type collector struct {
	g       *Git
	src     Source
	opts    CollectOptions
	attempt string
	gitDir  string
	work    *os.Root
	base    tree
	seen    *survey
	sizes   map[string]int64 // of what was put into the commit
	tree    string           // of the base; "" until a commit was made
	env     []string         // where git finds objects, and puts those of a commit; nil is in gitDir
}

// build makes the commit and its bundle, leaving out what git's own check
// refuses, and writes the files.
func (c *collector) build(ctx context.Context, d delta) (Result, error) {
	res := Result{SchemaVersion: ManifestVersion, Base: c.src.Base, Branch: c.opts.Branch,
		Files: []Change{}, OutOfScope: []Path{}, Apart: c.seen.apart}
	var err error
	for try := 0; !d.empty(); try++ {
		if res.Commit, res.Tree, d, err = c.commit(ctx, d); err != nil {
			return Result{}, err
		}
		if res.Tree == c.tree {
			break
		}
		if c.opts.Bundle == "" { // else no one is told of them
			if res.Files, err = c.changes(ctx, res.Commit); err != nil {
				return Result{}, err
			}
		}
		refused, err := c.bundle(ctx, res)
		if err != nil && (len(refused) == 0 || try == maxRefusals) {
			return Result{}, err
		}
		if err == nil {
			res.Changed = true
			break
		}
		d = c.leaveOut(d, Refused, refused)
	}
	if !res.Changed {
		if res.Tree = c.tree; res.Tree == "" {
			if res.Tree, err = c.g.line(ctx, call{gitDir: c.gitDir, args: []string{"rev-parse", "--verify", c.src.Base + "^{tree}"}}); err != nil {
				return Result{}, err
			}
		}
	}
	return c.finish(ctx, res)
}

// leaveOut takes paths out of the delta and reports them.
func (c *collector) leaveOut(d delta, kind Kind, why map[string]string) delta {
	out := map[string]bool{}
	for _, p := range slices.Sorted(maps.Keys(why)) {
		c.seen.skip(p, kind, why[p])
		out[p] = true
	}
	return d.without(out)
}

// finish completes the result and writes the diff and the manifest.
func (c *collector) finish(ctx context.Context, res Result) (Result, error) {
	bundle := c.bundleFile()
	if !res.Changed {
		res.Commit, res.Files = "", []Change{}
	}
	if !res.Changed && c.opts.lend == "" {
		if err := os.Remove(bundle); err != nil && !errors.Is(err, os.ErrNotExist) {
			return Result{}, err
		}
	}
	if c.opts.Bundle != "" {
		res.Omitted = c.seen.omitted(jobs.OfBranch)
		return res, nil
	}
	var found [3][]string
	for i := range res.Files {
		if err := ctx.Err(); err != nil {
			return Result{}, err
		}
		f := &res.Files[i]
		if f.Status != Deleted {
			f.SizeBytes = c.sizes[string(f.Path)]
		}
		if f.Status != Deleted && f.Mode == modeLink {
			target, err := c.work.Readlink(string(f.Path))
			if err != nil {
				return Result{}, err
			}
			f.Target, f.Escapes = Path(target), escapes(string(f.Path), target)
		}
		for _, p := range []Path{f.OldPath, f.Path} {
			if p != "" && !c.opts.Scope.Covers(string(p)) {
				f.OutOfScope = true
				res.OutOfScope = append(res.OutOfScope, p)
			}
		}
		if text, outside, first := f.lookAt(c.opts.Scope); text != "" {
			found[first] = append(found[first], text)
			if outside != "" && c.opts.Scope.Covers(string(outside)) { // else it is outside already
				f.OutOfScope = true
				res.OutOfScope = append(res.OutOfScope, outside)
			}
		}
		res.Insertions += f.Insertions
		res.Deletions += f.Deletions
	}
	res.LookAt = looked(found)
	slices.SortFunc(c.seen.skipped, func(a, b Skipped) int { return strings.Compare(string(a.Path), string(b.Path)) })
	res.Skipped, res.SkippedMore = append([]Skipped{}, c.seen.skipped...), c.seen.unlisted
	res.SkippedKinds, res.Omitted = c.seen.kinds, c.seen.omitted(jobs.OfBranch)
	if err := c.diff(ctx, res); err != nil {
		return Result{}, err
	}
	manifest, err := res.manifest()
	if err != nil {
		return Result{}, err
	}
	return res, writeWhole(filepath.Join(c.attempt, ManifestFile), func(f *os.File) error {
		_, err := f.Write(manifest)
		return err
	})
}
