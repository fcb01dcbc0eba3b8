package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Intake brings the commit of a result into the user's repository as the new
// branch, from a bundle that Collect wrote.
//
// The bundle is unpacked and checked in a quarantine beside it first: the
// commit must be the result's, with its tree and the base as only parent, and
// complete. While it fails, it leaves nothing in the user's repository, and what
// those have left that were killed at it goes. The branch is created and never moved; when it is there with the
// same commit, that is success, so Intake may be repeated.
func (g *Git) Intake(ctx context.Context, src Source, bundle, branch string, res Result) (err error) {
	if !res.Changed || !isObjectID(res.Commit) {
		return fmt.Errorf("take in branch %q: the result has no commit: %w", branch, ErrInvalid)
	}
	if res.Base != src.Base {
		return fmt.Errorf("take in branch %q: the result is of base %s and not of %s: %w", branch, res.Base, src.Base, ErrRejected)
	}
	sweepTagged(filepath.Dir(bundle), quarantinePrefix, false)
	sweepTagged(filepath.Join(src.Repo, "objects"), incomingPrefix, false)
	if err := g.checkSource(ctx, src); err != nil {
		return err
	}
	if err := g.checkBranch(ctx, src.Repo, branch); err != nil {
		return err
	}
	if done, err := g.branchState(ctx, src, branch, res.Commit); done || err != nil {
		return err
	}
	if err := askSpace(src, branch, bundle); err != nil {
		return err
	}
	q, err := g.openQuarantine(ctx, filepath.Dir(bundle), src, src.Repo)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	if err := q.load(ctx, bundle); err != nil {
		return &Error{Kind: ErrRejected, Err: err, Msg: fmt.Sprintf("the bundle of branch %q cannot be taken in: %v", branch, err)}
	}
	if err := q.verify(ctx, res); err != nil {
		return err
	}
	if err := q.Give(ctx, res.Commit, "^"+res.Base); err != nil {
		return noSpace(src, branch, fmt.Errorf("store the objects of branch %q in %q: %w", branch, src.Repo, err))
	}
	return g.createBranch(ctx, src, branch, res.Commit)
}

// plainBranch are names that git accepts for certain, as berth's own are.
var plainBranch = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*(/[A-Za-z0-9][A-Za-z0-9-]*)+$`)

// checkBranch says whether git accepts the name of a branch.
func (g *Git) checkBranch(ctx context.Context, gitDir, branch string) error {
	if plainBranch.MatchString(branch) {
		return nil
	}
	err := g.run(ctx, call{gitDir: gitDir, args: []string{"check-ref-format", "refs/heads/" + branch}})
	if exitCode(err) == 1 || err == nil && strings.HasPrefix(branch, "-") || strings.Contains(branch, "\x00") {
		return fmt.Errorf("%q is not a possible name of a branch: %w", branch, ErrInvalid)
	}
	return err
}

// verify checks that the quarantine holds exactly what the result says.
func (q *quarantine) verify(ctx context.Context, res Result) error {
	reject := func(format string, a ...any) error {
		return &Error{Kind: ErrRejected, Msg: fmt.Sprintf("the bundle of branch %q is not the result: ", res.Branch) + fmt.Sprintf(format, a...)}
	}
	kind, err := q.g.line(ctx, call{gitDir: q.Dir, args: []string{"cat-file", "-t", res.Commit}})
	if err != nil || kind != "commit" {
		return reject("it has no commit %s", res.Commit)
	}
	raw, err := q.g.output(ctx, call{gitDir: q.Dir, args: []string{"cat-file", "commit", res.Commit}})
	if err != nil {
		return fmt.Errorf("read commit %s: %w", res.Commit, err)
	}
	var tree string
	var parents []string
	header, _, _ := bytes.Cut(raw, []byte("\n\n"))
	for line := range strings.SplitSeq(string(header), "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "tree":
			tree = value
		case "parent":
			parents = append(parents, value)
		}
	}
	if tree != res.Tree {
		return reject("commit %s has the tree %s and not %s", res.Commit, tree, res.Tree)
	}
	if !slices.Equal(parents, []string{res.Base}) {
		return reject("commit %s has the parents %q and not %s alone", res.Commit, parents, res.Base)
	}
	err = q.g.run(ctx, call{gitDir: q.Dir, args: []string{"rev-list", "--objects", "--quiet", res.Commit, "^" + res.Base}})
	if err != nil {
		return reject("it is not complete: %v", err)
	}
	return nil
}

// branchState says whether the branch is there with the commit; it is an error
// when the name is taken otherwise.
func (g *Git) branchState(ctx context.Context, src Source, branch, commit string) (bool, error) {
	have, err := g.refs(ctx, src, "refs/heads/"+branch)
	if err != nil {
		return false, err
	}
	if id, ok := have["refs/heads/"+branch]; ok {
		if id == commit {
			return true, nil
		}
		return false, &Error{Kind: ErrBranchExists,
			Msg: fmt.Sprintf("branch %q exists in %q and is another commit (%s)", branch, src.Repo, id),
			Tip: "rename it, then repeat: git branch -m " + branch + " " + branch + "-old"}
	}
	for ref := range have { // a branch below the name
		other := strings.TrimPrefix(ref, "refs/heads/")
		return false, collision(src, branch, other)
	}
	for d := path.Dir(branch); d != "."; d = path.Dir(d) {
		above, err := g.refs(ctx, src, "refs/heads/"+d)
		if err != nil {
			return false, err
		}
		if _, ok := above["refs/heads/"+d]; ok {
			return false, collision(src, branch, d)
		}
	}
	return false, nil
}

func collision(src Source, branch, other string) error {
	return &Error{Kind: ErrBranchExists,
		Msg: fmt.Sprintf("branch %q cannot be made in %q: git allows no such name beside branch %q", branch, src.Repo, other),
		Tip: "rename that branch, then repeat: git branch -m " + other + " " + strings.ReplaceAll(other, "/", "-") + "-old"}
}

// refs gives the ref of a name and those below it.
func (g *Git) refs(ctx context.Context, src Source, name string) (map[string]string, error) {
	out, err := g.output(ctx, call{gitDir: src.Repo, args: []string{"for-each-ref", "--format=%(objectname) %(refname)", name}})
	if err != nil {
		return nil, fmt.Errorf("list the branches of %q: %w", src.Repo, err)
	}
	refs := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if id, ref, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ok {
			refs[ref] = id
		}
	}
	return refs, nil
}

// createBranch creates the ref in one step that fails when it is there.
func (g *Git) createBranch(ctx context.Context, src Source, branch, commit string) error {
	in := strings.NewReader("create refs/heads/" + branch + " " + commit + "\n")
	err := g.run(ctx, call{gitDir: src.Repo, stdin: in, args: []string{"update-ref", "--no-deref", "--stdin"}})
	if err == nil {
		return nil
	}
	// Another process may have been faster.
	if done, serr := g.branchState(ctx, src, branch, commit); done || serr != nil {
		return serr
	}
	return fmt.Errorf("create branch %q in %q: %w", branch, src.Repo, err)
}
