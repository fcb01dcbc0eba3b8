package cli

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"berth/docs"
	"berth/internal/cli/mdtext"
	"berth/internal/sys/run"
	"berth/jobs"

	"github.com/spf13/cobra"
)

// helpCmd is "berth help"; cobra's own exits with 0 when it does not know the
// topic. A word that is a command is the command's help, unless --page says otherwise.
func (a *app) helpCmd() *cobra.Command {
	var page bool
	c := &cobra.Command{
		Use: "help [COMMAND] | help topics | help TOPIC", Short: "show the help of a command, or a page: berth help topics",
		Long: `Show the help of berth, or of one of its commands, as --help does; or a page of the
documentation. "berth help topics" lists the pages. Where a command and a page have the
same name it is the command's help, and --page shows the page. On a terminal a page is
shown through $PAGER, else less.
` + exitHelp + "0 ok, 2 no such command or topic.",
		Example:           "  berth help run\n  berth help env snapshot\n  berth help task-file\n  berth help --page network",
		ValidArgsFunction: completeTopics,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !page {
				topic, err := helpTopic(cmd.Root(), args)
				if err == nil {
					return topic.Help()
				}
				if len(args) != 1 {
					if len(args) > 1 {
						if _, notPage := topicPage(cmd.Root(), args[0]); notPage == nil {
							return usage("a page is one word, got %q", args[1])
						}
					}
					return err
				}
			}
			switch {
			case len(args) == 0 || len(args) == 1 && args[0] == "topics":
				return a.listTopics()
			case len(args) > 1:
				return usage("a page is one word, got %q", args[1])
			}
			p, err := topicPage(cmd.Root(), args[0])
			if err != nil {
				return err
			}
			return a.showPage(cmd.Context(), p)
		},
	}
	c.Flags().BoolVar(&page, "page", false, "show the page of that name, though a command has it, too")
	return c
}

// pagesOf are the words that show the pages about a command, or about the one that it
// is below.
func pagesOf(c *cobra.Command) string {
	if !c.HasParent() {
		return ""
	}
	for c.Parent().HasParent() {
		c = c.Parent()
	}
	var out []string
	for _, p := range docs.Pages() {
		if p.User() && slices.Contains(p.Commands, c.Name()) {
			out = append(out, p.Help())
		}
	}
	return strings.Join(out, ", ")
}

// topicPage is the user page of a topic.
func topicPage(root *cobra.Command, topic string) (docs.Page, error) {
	p, ok := docs.Find(topic)
	if ok && p.User() {
		return p, nil
	}
	e := &jobs.Error{Kind: jobs.KindUsage, Msg: fmt.Sprintf("no command and no topic %q", topic), Hint: "berth help topics"}
	if ok {
		e.Msg = "the page " + p.Name + " is about how berth is built, and not part of the program"
		e.Hint = "it is docs/" + p.File + " of berth's sources; berth help topics lists the others"
		return docs.Page{}, e
	}
	var names []string
	for _, p := range docs.Pages() {
		if p.User() {
			names = append(names, p.Name, path.Base(p.Name))
		}
	}
	if near := nearCommand(root, topic, names...); near != "" {
		e.Hint = "did you mean: berth help " + near
	}
	return docs.Page{}, e
}

// listTopics lists the user pages: on a terminal below what one needs them for.
func (a *app) listTopics() error {
	var rows [][]string
	var b strings.Builder
	need := ""
	for _, p := range docs.Pages() {
		if !p.User() {
			continue
		}
		rows = append(rows, []string{p.Name, p.About})
		if p.Need != need {
			need = p.Need
			b.WriteString(need + ":\n")
		}
		wrap(&b, fmt.Sprintf("  %-16s  %s", p.Name, p.About), strings.Repeat(" ", 20), a.width())
	}
	if !a.tty {
		return a.table(nil, rows)
	}
	b.WriteString("\nberth help TOPIC shows a page; berth help --page TOPIC where a command has that name.\n")
	_, err := a.stdout.Write([]byte(b.String()))
	return err
}

// showPage prints a page, on a terminal through a pager.
func (a *app) showPage(ctx context.Context, p docs.Page) error {
	text, err := p.Text()
	if err != nil {
		return &jobs.Error{Kind: jobs.KindInfra, Msg: "read the page " + p.Name, Err: err}
	}
	pager, ink := a.pager()
	shown, links := mdtext.Render(text, mdtext.Style{Width: min(a.width(), pageWidth), Ink: ink})
	var see []string
	for _, file := range links {
		if other, ok := docs.Find(path.Join(path.Dir(p.File), file)); ok && other.User() && other.Name != p.Name {
			see = append(see, other.Help())
		}
	}
	if len(see) > 0 {
		var b strings.Builder
		wrap(&b, "See also: "+strings.Join(see, ", "), "  ", min(a.width(), pageWidth))
		shown += "\n" + b.String()
	}
	if pager != "" {
		// Ctrl-C is the pager's. Where there is no such program the page is printed.
		end, err := run.OnTerminal(context.WithoutCancel(ctx), jobs.Cmd{
			Argv: []string{"sh", "-c", pager}, Env: pagerEnv(), Stdin: strings.NewReader(shown), Stdout: a.stdout, Stderr: a.stderr,
		})
		if err == nil && end.Code != noProgram {
			return nil
		}
	}
	_, err = a.stdout.Write([]byte(shown))
	return err
}

const (
	// pageWidth is how long the lines of a page are at most.
	pageWidth = 100
	// noProgram is what a shell ends with that does not find the program.
	noProgram = 127
)

// pager is the command line that shows a page, "" where it is printed, and whether what
// is shown may be bold: less alone is known to keep that.
func (a *app) pager() (line string, ink bool) {
	if !a.tty || os.Getenv("TERM") == "dumb" {
		return "", false
	}
	line = cmp.Or(strings.TrimSpace(os.Getenv("PAGER")), "less")
	if _, err := exec.LookPath("less"); line == "cat" || line == "less" && err != nil {
		return "", a.colours()
	}
	program, flags, _ := strings.Cut(line, " ")
	less, set := os.LookupEnv("LESS")
	keeps := filepath.Base(program) == "less" && (!set || strings.ContainsAny(less+flags, "rR"))
	return line, keeps && a.colours()
}

// pagerEnv is the environment of a pager. A less without options keeps bold words, and
// ends by itself where the page fits on the screen, as git has it.
func pagerEnv() []string {
	env := os.Environ()
	if _, ok := os.LookupEnv("LESS"); !ok {
		env = append(env, "LESS=FRX")
	}
	return env
}

// completeTopics offers the commands and the pages.
func completeTopics(cmd *cobra.Command, args []string, _ string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, c := range cmd.Root().Commands() {
		if c.IsAvailableCommand() {
			out = append(out, cobra.CompletionWithDesc(c.Name(), c.Short))
		}
	}
	for _, p := range docs.Pages() {
		if p.User() && !slices.ContainsFunc(cmd.Root().Commands(), func(c *cobra.Command) bool { return c.Name() == p.Name }) {
			out = append(out, cobra.CompletionWithDesc(p.Name, p.About))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
