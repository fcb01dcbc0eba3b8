package cli

import (
	"io"
	"os"

	"berth/internal/sweep"
	"berth/internal/sweep/look"
	"berth/jobs"

	"github.com/spf13/cobra"
)

func (a *app) sweepCollectCmd() *cobra.Command {
	var csvFile, linesFile, files, where string
	c := &cobra.Command{
		Use: "collect [SWEEP] --csv FILE | --jsonl FILE", Short: "make one table of what tasks have found",
		Long: `Make one table of a sweep: for each task its parameters, how it ended, and what it has
found. Results are the last value of each metric (lines NAME=VALUE in $BERTH_METRICS), lines
of its standard output that are JSON objects, and JSON files.

Files are named by --collect, here or when the sweep was submitted: a path below the
directory in which tasks ran, in which {lr} is a parameter, {task} the number and {id} the id,
and whose last part may have * ? [. Without any of these a file belongs to the task whose
whole id ($BERTH_TASK) stands in its name. A file has 1 MiB at most, and no symbolic link is
followed out of the directory; what is left out is counted and said.

A task with several objects has several rows, one without any has one. FILE is replaced as a
whole; - is the standard output.

` + whereHelp + "\n" + sweepExit,
		Example: "  berth sweep collect lr --csv lr.csv\n  berth sweep collect lr --jsonl - --where 'state == \"ok\"' --collect 'results/{lr}.json'",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if csvFile == "" && linesFile == "" || csvFile == "-" && linesFile == "-" {
				return &jobs.Error{Kind: jobs.KindUsage, Msg: "collect needs --csv FILE or --jsonl FILE, of which one may be -",
					Hint: "berth sweep collect --csv table.csv"}
			}
			if a.json && (csvFile == "-" || linesFile == "-") {
				return usage("--json and a table both stand on stdout")
			}
			s, f, err := foldSweep(args)
			if err != nil {
				return err
			}
			if files == "" {
				files = s.Spec.Collect
			}
			holds := func(look.Row) (bool, error) { return true, nil }
			if where != "" {
				if holds, err = look.Where(where); err != nil {
					return err
				}
			}
			l := look.New(s, f)
			defer l.Close()
			col, err := look.NewCollector(l, files)
			if err != nil {
				return err
			}
			defer col.Close()
			if err := a.writeTables(col, l.All(), holds, csvFile, linesFile); err != nil {
				return err
			}
			for _, x := range col.Examples {
				a.say("left out: %s", x)
			}
			if more := col.LeftOut - len(col.Examples); more > 0 {
				a.say("left out: %d more", more)
			}
			if a.json {
				return a.printJSON(map[string]any{"sweep": s.Spec.Name, "rows": col.Rows, "files": col.Files, "left_out": col.LeftOut,
					"left_out_first": emptyNot(col.Examples)})
			}
			a.say("%s", jobs.Plural(col.Rows, "row"))
			return nil
		},
	}
	c.Flags().StringVar(&csvFile, "csv", "", "write a CSV table to `FILE`")
	c.Flags().StringVar(&linesFile, "jsonl", "", "write a line of JSON for each row to `FILE`")
	c.Flags().StringVar(&files, "collect", "", "`PATTERN` of files with results (default: what the sweep was submitted with)")
	c.Flags().StringVar(&where, "where", "", "only tasks for which `EXPR` is true")
	a.jsonFlag(c)
	return c
}

// writeTables writes the lines, and makes the other table of them.
func (a *app) writeTables(col *look.Collector, all sweep.Numbers, holds func(look.Row) (bool, error), csvFile, linesFile string) error {
	dir := ""
	for _, name := range []string{linesFile, csvFile} {
		if name == "" || name == "-" {
			continue
		}
		var err error
		if dir, err = look.Beside(name); err != nil {
			return err
		}
	}
	tmp, err := os.CreateTemp(dir, ".berth-collect-*")
	if err != nil {
		return &jobs.Error{Kind: jobs.KindUsage, Msg: "write the table", Err: err}
	}
	defer func() {
		_ = tmp.Close()
		_ = os.Remove(tmp.Name())
	}()
	params, values, err := col.Lines(tmp, all, holds)
	if err != nil {
		return err
	}
	write := func(name string, fill func(io.Writer) error) error {
		if _, err := tmp.Seek(0, io.SeekStart); err != nil {
			return err
		}
		switch name {
		case "":
			return nil
		case "-":
			return fill(a.stdout)
		}
		return look.WriteFile(name, fill)
	}
	if err := write(linesFile, func(w io.Writer) error { _, err := io.Copy(w, tmp); return err }); err != nil {
		return err
	}
	return write(csvFile, func(w io.Writer) error { return look.CSV(tmp, w, params, values) })
}
