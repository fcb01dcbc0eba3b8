package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"berth/engine"
	"berth/internal/config"
	"berth/internal/workspace/review"
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) reviewApproveCmd() *cobra.Command {
	var o engine.ApproveOptions
	c := &cobra.Command{
		Use: "approve JOB", Short: "approve a result: this tree, onto this commit",
		Long: `Approve a result. What is approved is the tree that the target branch would have, made of
the job's commit and of what the target is now; berth review merge makes that tree and no
other. Without a review run that succeeded on it, --unchecked has to be said, and where it
has changed what its scope does not cover, --out-of-scope; both are recorded. On a terminal
the first characters of the tree are asked for, unless berth review diff has shown it. The
last verdict on a job counts.
` + exitHelp + `0 approved, 2 it cannot be approved as it stands, 3 no such job or branch, 4 refused
below a process of a job, 5 its branch is not in the repository yet.`,
		Example: "  berth review approve 0a1b2c3d\n  berth review approve 0a1b2c3d --unchecked --note 'docs only'",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, ids []string) error {
			e, rec, err := a.reviewJob(cmd, ids)
			if err != nil {
				return err
			}
			if a.errTTY && isTerminal(a.stdin) {
				o.Confirm = a.confirmTree
			}
			rv, err := e.Approve(cmd.Context(), rec, o)
			if err != nil {
				return err
			}
			a.sayOutside(rec, rv.Outside)
			return a.decided(rv)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Onto, "onto", "", ontoHelp)
	f.StringVar(&o.Note, "note", "", "record `TEXT` with the verdict")
	f.BoolVar(&o.Unchecked, "unchecked", false, "approve without a review run that succeeded")
	f.BoolVar(&o.OutOfScope, "out-of-scope", false, "approve what its scope does not cover, too")
	a.jsonFlag(c)
	return c
}

// sayOutside says what of a result its scope does not cover.
func (a *app) sayOutside(rec *jobs.Record, outside string) {
	if outside != "" {
		a.say("%s; berth review diff %s", outside, jobs.Short(rec.Spec.ID))
	}
}

// treeChars is how much of the tree a person types.
const treeChars = 6

// confirmTree asks a person for the tree, unless its diff was printed.
func (a *app) confirmTree(rv *engine.Review) error {
	a.sayReview(rv)
	in := bufio.NewReader(io.LimitReader(a.stdin, 1000))
	for _, p := range rv.All() {
		if rv.Reviews.Shown[p.Tree] {
			continue
		}
		of := ""
		if len(rv.Record.Spec.Further) > 0 {
			of = " of workspace " + p.Repository()
		}
		a.say("its diff was not shown; to approve it all the same, type the first %d characters of the tree%s:", treeChars, of)
		line, err := in.ReadString('\n')
		if err != nil && line == "" {
			return usage("nothing was typed: not approved")
		}
		if typed := strings.TrimSpace(line); len(typed) < treeChars || !strings.HasPrefix(p.Tree, typed) {
			return &jobs.Error{Kind: jobs.KindUsage, Msg: "that is not the tree: not approved",
				Hint: "berth review diff " + jobs.Short(rv.Record.Spec.ID)}
		}
	}
	return nil
}

// decided says what a verdict binds.
func (a *app) decided(rv *engine.Review) error {
	j := reviewOf(rv)
	if a.json {
		return a.printJSON(map[string]any{"review": j})
	}
	v := rv.Reviews.Verdict()
	rows := [][2]string{{"job", j.Short}, {"verdict", v.Verdict}}
	for _, p := range rv.All() {
		v := p.Reviews.Verdict()
		if len(rv.Record.Spec.Further) > 0 {
			rows = append(rows, [2]string{"workspace", p.Repository()})
		}
		if rows = append(rows, [2]string{"commit", v.Commit}); v.Verdict == jobs.VerdictApprove {
			rows = append(rows, [2]string{"tree", v.Tree}, [2]string{"onto", p.Target() + " " + v.Onto})
		}
	}
	if v.Verdict == jobs.VerdictApprove {
		if v.Unchecked {
			rows = append(rows, [2]string{"checked", "no"})
		}
		if v.OutOfScope {
			rows = append(rows, [2]string{"out of scope", "approved, too"})
		}
		if j.Level == jobs.LevelNone && rv.Record.Sent == nil {
			rows = append(rows, [2]string{"containment", "none: the task had your own rights"})
		}
	}
	if next := nextOf(rv, &j); next != "" && (v.Verdict == jobs.VerdictApprove || rv.Record.Sent != nil) {
		rows = append(rows, [2]string{"next", next})
	}
	return a.rows(rows)
}

func (a *app) reviewRejectCmd() *cobra.Command {
	var note string
	c := &cobra.Command{
		Use: "reject JOB", Short: "reject a result; the note says why",
		Long: `Reject a result: it is not merged, and berth review ls shows it with --all alone. An
approval is taken back by it. The branch stays.
` + exitHelp + `0 rejected, 2 it is merged or has no result, 3 no such job, 4 refused below a process
of a job, 5 its branch is not in the repository yet.`,
		Example: "  berth review reject 0a1b2c3d --note 'the parser must stay streaming'",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, ids []string) error {
			e, rec, err := a.reviewJob(cmd, ids)
			if err != nil {
				return err
			}
			rv, err := e.Reject(cmd.Context(), rec, note)
			if err != nil {
				return err
			}
			return a.decided(rv)
		},
	}
	c.Flags().StringVar(&note, "note", "", "record `TEXT` with the verdict")
	a.jsonFlag(c)
	return c
}

func (a *app) reviewMergeCmd() *cobra.Command {
	var o engine.MergeOptions
	var push string
	c := &cobra.Command{
		Use: "merge JOB", Short: "move the target branch to what was approved",
		Long: `Merge an approved result: its target branch moves to a commit with exactly the approved
tree. Where the branch is still what the task started from, it becomes the result itself;
else a merge commit is made. What its scope does not cover is not merged unless it was
approved with --out-of-scope. When it moved so that the tree would be another one, that is
refused. Where the branch is checked out, index and files move with it: they must be
clean, with no merge, rebase or bisect in between, and nothing of yours in the way.
A merge that was killed goes on when it is said again. No hook is run. With several
workspaces none moves unless all can; then one after the other, and where that is
interrupted it says which have moved, and goes on in the same way.
With --push, or review.push of your configuration, the target is then pushed to that remote
of the repository, as git push does it for you, but without hooks and never by force. It has
a minute; where it fails that is a warning, and what is merged stays.
` + exitHelp + `0 merged, 2 not approved, or refused as it stands; nothing was moved, 3 no such job or
branch, 4 refused below a process of a job, 5 the repository could not be changed, 75
another berth merges it just now, 78 another account than the author's has to approve it.`,
		Example: "  berth review merge 0a1b2c3d\n  berth review merge 0a1b2c3d --no-ff\n  berth review merge 0a1b2c3d --push origin",
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, ids []string) error {
			e, rec, err := a.reviewJob(cmd, ids)
			if err != nil {
				return err
			}
			cfg, err := a.config(cmd)
			if err != nil {
				return err
			}
			remote := cfg.Push()
			if cmd.Flags().Changed("push") {
				if remote = push; remote == config.NoPush {
					remote = ""
				} else if err := checkRemote("--push: ", remote); err != nil {
					return err
				}
			}
			o.Other = cfg.OtherReviews()
			m, err := e.MergeReview(cmd.Context(), rec, o)
			if err != nil {
				return err
			}
			a.sayOutside(rec, engine.OutsideText(rec))
			var pushed []engine.Pushed
			if remote != "" {
				pushed, err = e.PushMerged(cmd.Context(), rec, m, remote)
			}
			if err != nil && cmd.Context().Err() == nil { // what is merged stays merged
				a.say("warning: it is merged, and was not pushed to %s: %v", remote, err)
				err = nil
			}
			for _, p := range pushed {
				if p.Problem != "" {
					a.say("warning: %s of %s is merged, and was not pushed to %s: %s; %s",
						strings.TrimPrefix(p.Ref, "refs/heads/"), p.Repo, remote, p.Problem, p.Hint)
				}
			}
			if a.json {
				return errors.Join(a.printJSON(map[string]any{"merge": m, "pushed": pushed}), err)
			}
			rows := [][2]string{{"job", jobs.Short(rec.Spec.ID)}}
			for _, one := range m.All() {
				if len(rec.Spec.Further) > 0 {
					rows = append(rows, [2]string{"repository", one.Repo})
				}
				target := strings.TrimPrefix(one.Ref, "refs/heads/")
				rows = append(rows, [][2]string{{"merged", target}, {"from", one.Old}, {"to", one.New}, {"tree", one.Tree}}...)
				if one.Worktree != "" {
					rows = append(rows, [2]string{"work tree", one.Worktree})
				}
			}
			return errors.Join(a.rows(append(rows, pushedRows(pushed)...)), err)
		},
	}
	c.Flags().StringVar(&push, "push", "", "then push the target to this `REMOTE` of the repository; none does not")
	c.Flags().BoolVar(&o.NoFF, "no-ff", false, "make a merge commit, also where the branch could become the result itself")
	a.jsonFlag(c)
	return c
}

func checkRemote(where, remote string) error {
	if err := review.CheckRemote(remote); err != nil {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: where + err.Error(), Hint: "git remote -v lists those of a repository"}
	}
	return nil
}

// pushedRows says what has arrived.
func pushedRows(pushed []engine.Pushed) (rows [][2]string) {
	for _, p := range pushed {
		if p.Problem == "" {
			rows = append(rows, [2]string{"pushed", fmt.Sprintf("%s to %s, from %s", strings.TrimPrefix(p.Ref, "refs/heads/"), p.Remote, p.Repo)})
		}
	}
	return rows
}

func (a *app) reviewPushCmd() *cobra.Command {
	c := &cobra.Command{
		Use: "push JOB [REMOTE]", Short: "push a result's branch, before it is merged, for others to look at",
		Long: `Push the branch of a result to a remote of the repository (review.push of your
configuration, if none is named), so that others can look at it there, or it becomes a
request to merge. It is pushed under its own name, as git push does it for you, but without
hooks and never by force; nothing else is. It has a minute for each repository.
A server may run what a branch brings. So a result that was rejected is refused, and one
that has changed what its scope does not cover, such as files of CI, until it is approved.
` + exitHelp + `0 pushed, or there already, 2 it is refused as it stands, or there is no name of a remote,
3 no such job, 4 refused below a process of a job, 5 a remote has not taken it, or the
branch is not in the repository yet.`,
		Example: "  berth review push 0a1b2c3d origin",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, rec, err := a.reviewJob(cmd, args[:1])
			if err != nil {
				return err
			}
			cfg, err := a.config(cmd)
			if err != nil {
				return err
			}
			remote := cfg.Push()
			if len(args) > 1 {
				remote = args[1]
			}
			if remote == "" {
				return usage("berth review push needs the name of a remote, or review.push in the configuration")
			}
			if err := checkRemote("", remote); err != nil {
				return err
			}
			pushed, err := e.PushBranches(cmd.Context(), rec, remote)
			if err != nil && len(pushed) == 0 {
				return err
			}
			failed := err // it was interrupted: what was pushed before is said
			if !a.json {
				if err := a.rows(append([][2]string{{"job", jobs.Short(rec.Spec.ID)}}, pushedRows(pushed)...)); err != nil {
					return err
				}
			}
			for _, p := range pushed {
				if p.Problem != "" {
					failed = errors.Join(failed, &jobs.Error{Kind: jobs.KindInfra, Hint: p.Hint,
						Msg: fmt.Sprintf("%s of %s was not pushed to %s: %s",
							strings.TrimPrefix(p.Ref, "refs/heads/"), p.Repo, remote, p.Problem)})
				}
			}
			if a.json {
				return errors.Join(a.printJSON(map[string]any{"pushed": pushed}), failed)
			}
			return failed
		},
	}
	a.jsonFlag(c)
	return c
}
