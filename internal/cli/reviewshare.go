package cli

import (
	"fmt"
	"slices"
	"strings"

	"berth/engine"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// reviewTranscript prints the events of the agent whose result is reviewed.
func (a *app) reviewTranscript(rec *jobs.Record) error {
	some, err := a.transcript(rec, "")
	if err == nil && !some {
		short := jobs.Short(rec.Spec.ID)
		return &jobs.Error{Kind: jobs.KindNotFound, Msg: "there is no transcript of job " + short, Hint: "berth review show " + short}
	}
	return err
}

func (a *app) reviewExportCmd() *cobra.Command {
	var o engine.ExportOptions
	c := &cobra.Command{
		Use: "export JOB [FILE]", Short: "write a file by which another user decides, or your verdict for them",
		Long: `Write what there is to decide of a result to a new file (review-JOB.tar): its branch, what
the record says of its checks, the task's prompt and what its agent said. Another user
takes it in with berth review import, on another machine too, approves or rejects it, and
exports it again: then the file has the verdict alone, which you import.
The file has mode 0600, and no path, variable or credential of the record. What the task
read may stand in its transcript: --no-transcript leaves that out.
` + exitHelp + `0 written, 2 there is no result or verdict, or the file is there, 3 no such job, branch or directory,
5 its branch is not in the repository yet.`,
		Example: "  berth review export 0a1b2c3d\n  berth review export 0a1b2c3d /shared/for-bob.tar --no-transcript",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, rec, err := a.reviewJob(cmd, args[:1])
			if err != nil {
				return err
			}
			file := "review-" + jobs.Short(rec.Spec.ID) + ".tar"
			if rec.Sent != nil {
				file = "verdict-" + jobs.Short(rec.Spec.ID) + ".tar"
			}
			if len(args) > 1 {
				if file = args[1]; file == "-" {
					return &jobs.Error{Kind: jobs.KindUsage, Msg: "a review is not written to the standard output",
						Hint: "name a file: berth review export JOB FILE"}
				}
			}
			x, err := e.ExportReview(cmd.Context(), rec, file, o)
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"export": x})
			}
			rows := [][2]string{{"file", x.File}, {"holds", x.Kind}, {"sha256", x.SHA256}, {"commit", x.Commit}, {"tree", x.Tree}}
			if x.Verdict != "" {
				rows = append(rows, [2]string{"verdict", x.Verdict})
			}
			if x.Transcript {
				rows = append(rows, [2]string{"transcript", "in it, with all that the agent said and read: --no-transcript leaves it out"})
			}
			return a.rows(append(rows, [2]string{"next", "berth review import FILE, by the other user"}))
		},
	}
	c.Flags().StringVar(&o.Onto, "onto", "", ontoHelp)
	c.Flags().BoolVar(&o.NoTranscript, "no-transcript", false, "leave out what the agent said")
	a.jsonFlag(c)
	return c
}

func (a *app) reviewImportCmd() *cobra.Command {
	var o engine.ImportOptions
	var repos []string
	c := &cobra.Command{
		Use: "import FILE", Short: "take in another user's result to decide on, or their verdict on yours",
		Long: `Take in a file of berth review export. A result becomes a review of yours, with its branch
in the repository that you are in (--repo); it has to have the commits that it is built on.
One of several repositories has the others named, too: --repo lib=../lib.
Show, diff, approve and reject work on it, and berth review export writes the verdict for
its author. A verdict on a job of yours is recorded beside your own; the last one counts.
All of the file is checked, and it is still a statement: nothing in it is signed.
` + exitHelp + `0 taken in, 2 the file is none, is wrong or is about another result, 3 no such file or
job, 4 refused below a process of a job, 5 the repository could not be changed.`,
		Example: "  berth review import review-0a1b2c3d.tar --repo ~/project\n  berth review import verdict-0a1b2c3d.tar",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.engine()
			if err != nil {
				return err
			}
			if o.Repo, o.Repos, err = reposOf(repos); err != nil {
				return err
			}
			rv, err := e.ImportReview(cmd.Context(), args[0], o)
			if err != nil {
				return err
			}
			j := reviewOf(rv)
			if a.json {
				return a.printJSON(map[string]any{"review": j})
			}
			rows := [][2]string{{"job", j.Short}, {"name", j.Name}}
			if v := rv.Reviews.Verdict(); v != nil {
				rows = append(rows, [2]string{"verdict", a.verdictText(v)}, [2]string{"review", string(j.Review)})
			} else {
				rows = append(rows, [2]string{"author", j.Author + ": their own word"})
				for _, p := range rv.All() {
					if rv.Record.Sent.Several() {
						rows = append(rows, [2]string{"workspace", p.Repository()})
					}
					rows = append(rows, [2]string{"branch", fmt.Sprintf("%s (%.12s)", p.Branch(), p.Commit)}, [2]string{"tree", p.Tree})
				}
				rows = append(rows, [2]string{"problem", j.Problem})
			}
			return a.rows(append(filled(rows), [2]string{"next", nextOf(rv, &j)}))
		},
	}
	c.Flags().StringArrayVar(&repos, "repo", nil,
		"a directory in the repository `DIR` that a result is decided in (default: the current one), or NAME=DIR of its workspace NAME")
	c.Flags().StringVar(&o.Onto, "onto", "", "the `BRANCH` that a verdict may be for (default: the one that the task started from)")
	c.Flags().BoolVar(&o.Replace, "replace", false, "forget an earlier import of the same job, with its verdicts")
	a.jsonFlag(c)
	return c
}

// reposOf are the directories of --repo: that without a name, and the others by their names.
func reposOf(words []string) (first string, others map[string]string, err error) {
	others = map[string]string{}
	for _, w := range words {
		name, dir, named := strings.Cut(w, "=")
		if !named || jobs.CheckWorkspaceName(name) != nil {
			name, dir = "", w
		}
		had := first != ""
		if name != "" {
			_, had = others[name]
		}
		if had || dir == "" {
			return "", nil, &jobs.Error{Kind: jobs.KindUsage, Msg: "--repo " + jobs.Printable(w) + ": one directory for each repository",
				Hint: "--repo DIR of the first one, and --repo NAME=DIR of each other one"}
		}
		if name == "" {
			first = dir
		} else {
			others[name] = dir
		}
	}
	return first, others, nil
}

// filled leaves out the rows without a value.
func filled(rows [][2]string) [][2]string {
	return slices.DeleteFunc(rows, func(r [2]string) bool { return r[1] == "" })
}
