package cli_test

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// guides are pages that a person follows from top to bottom, and so does a script for each.
var guides = filepath.Join("..", "..", "docs", "guides")

// alsoFollowed are pages of reference whose commands are run from their text as well, seen from there.
var alsoFollowed = []string{"../backend-protocol.md", "../laptop.md", "../mpi-gpu.md"}

// guideStep is what a page has its reader do: write a file, or enter a command.
type guideStep struct {
	line           int
	file, text     string // of a file
	command, shown string // of a command
}

// notRun is a block that the page marks, for a reader of its source, as one that no test can run.
type notRun struct {
	line   int
	reason string
}

var (
	guideFence = regexp.MustCompile("^```([a-z]*)(?: title=(\\S+))?$")
	guideMark  = regexp.MustCompile(`^<!-- not run: (.+) -->$`)
	guideLink  = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
)

// readGuide reads the fenced blocks of a page. A block "console" has commands behind "$ ", which a
// "\" at the end continues, and what each shows; one with "title=FILE" is that file, which the text before
// it names. Any other block needs the comment "not run: REASON" in the line before it.
func readGuide(page string) (steps []guideStep, marked []notRun, err error) {
	lines := strings.Split(page, "\n")
	for i := 0; i < len(lines); i++ {
		if !strings.HasPrefix(lines[i], "```") {
			continue
		}
		begin := i
		end := slices.Index(lines[begin+1:], "```")
		head := guideFence.FindStringSubmatch(lines[begin])
		if end < 0 || head == nil {
			return nil, nil, fmt.Errorf("%d: a block that does not end, or %q", begin+1, lines[begin])
		}
		body := lines[begin+1 : begin+1+end]
		i += 1 + end
		mark := guideMark.FindStringSubmatch(lines[max(0, begin-1)])
		switch {
		case mark != nil:
			marked = append(marked, notRun{begin + 1, mark[1]})
		case head[2] != "":
			if !strings.Contains(strings.Join(lines[max(0, begin-3):begin], "\n"), "`"+head[2]+"`") {
				return nil, nil, fmt.Errorf("%d: the reader is not told that this is `%s`", begin+1, head[2])
			}
			steps = append(steps, guideStep{line: begin + 1, file: head[2], text: strings.Join(body, "\n") + "\n"})
		case head[1] == "console" && len(body) > 0 && strings.HasPrefix(body[0], "$ "):
			steps = append(steps, consoleSteps(body, begin+2)...)
		default:
			return nil, nil, fmt.Errorf("%d: a block that is neither run nor marked: <!-- not run: REASON -->", begin+1)
		}
	}
	return steps, marked, nil
}

func consoleSteps(body []string, line int) (steps []guideStep) {
	continued := false
	for i, l := range body {
		command, begins := strings.CutPrefix(l, "$ ")
		switch {
		case continued:
			steps[len(steps)-1].command += "\n" + l
		case begins:
			steps = append(steps, guideStep{line: line + i, command: command})
		default:
			steps[len(steps)-1].shown += l + "\n"
		}
		continued = (begins || continued) && strings.HasSuffix(l, `\`)
	}
	return steps
}

// guideCmd is "guide PAGE": one shell follows the page. Each command has to succeed, unless "echo $?" comes next,
// and to write what the page shows: "..." is anything in a line, a line "..." any lines, blanks are as good as tabs.
func guideCmd(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: guide PAGE")
	}
	page, err := os.ReadFile(filepath.Join(guides, args[0]))
	ts.Check(err)
	steps, _, err := readGuide(string(page))
	ts.Check(err)
	dir := ts.MkAbs(filepath.Join(ts.Getenv("WORK"), ".guide"))
	ts.Check(os.Mkdir(dir, 0o700))
	shell := "exec 2>&1\n"
	for i, s := range steps {
		path := filepath.Join(dir, strconv.Itoa(i))
		ts.Check(os.WriteFile(path, []byte(s.text+s.command), 0o600))
		if s.file != "" {
			shell += fmt.Sprintf("mkdir -p \"$(dirname '%s')\" && cp %s '%s'", s.file, path, s.file)
		} else {
			shell += fmt.Sprintf("text=$(cat %s); (exit $ended); eval \"$text\"", path)
		}
		shell += "\nended=$?; printf '\\036%d\\n' $ended\n"
	}
	path := filepath.Join(dir, "page")
	ts.Check(os.WriteFile(path, []byte("ended=0\n"+shell), 0o600))
	ts.Check(ts.Exec("bash", path))
	outputs := regexp.MustCompile(`\x1e(\d+)\n`).Split(ts.ReadFile("stdout"), -1)
	codes := regexp.MustCompile(`\x1e(\d+)\n`).FindAllStringSubmatch(ts.ReadFile("stdout"), -1)
	if len(codes) != len(steps) {
		ts.Fatalf("%s: %d steps of %d were made: %s", args[0], len(codes), len(steps), ts.ReadFile("stdout"))
	}
	for i, s := range steps {
		told := i+1 < len(steps) && steps[i+1].command == "echo $?"
		if (codes[i][1] != "0") != told {
			ts.Fatalf("%s:%d: %s: exit code %s\n%s", args[0], s.line, s.command, codes[i][1], outputs[i])
		}
		if got, want := guideText(ts, outputs[i]), guideText(ts, s.shown); !shownPattern(want).MatchString(got) {
			ts.Fatalf("%s:%d: %s\nwrote\n%sand the page shows\n%s", args[0], s.line, s.command, outputs[i], s.shown)
		}
	}
}

// guideText is output without what differs from run to run, and from a terminal to a pipe.
func guideText(ts *testscript.TestScript, s string) (plain string) {
	for line := range strings.Lines(plainText(ts, s)) {
		plain += strings.Join(strings.Fields(line), " ") + "\n"
	}
	return plain
}

func shownPattern(shown string) *regexp.Regexp {
	pattern := `\A`
	for line := range strings.Lines(shown) {
		if line == "...\n" {
			pattern += `(?:.*\n)*?`
			continue
		}
		pattern += strings.ReplaceAll(regexp.QuoteMeta(line), regexp.QuoteMeta("..."), ".*")
	}
	return regexp.MustCompile(pattern + `\z`)
}

// TestGuides reads every page: its blocks are run by a script of TestScripts or marked, and its links lead to files.
func TestGuides(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(guides, "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal("there are no pages", err)
	}
	front, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Clone(alsoFollowed)
	for _, path := range pages {
		names = append(names, filepath.Base(path))
	}
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(guides, name))
		if err != nil {
			t.Fatal(err)
		}
		steps, marked, err := readGuide(string(text))
		if err != nil {
			t.Errorf("%s:%v", name, err)
			continue
		}
		for _, m := range marked {
			t.Logf("%s:%d is not run: %s", name, m.line, m.reason)
		}
		script := filepath.Join("testdata", "script", "guide_"+strings.ReplaceAll(strings.TrimSuffix(filepath.Base(name), ".md"), "-", "_")+".txtar")
		if b, err := os.ReadFile(script); len(steps) > 0 && (err != nil || !strings.Contains("\n"+string(b), "\nguide "+name+"\n")) {
			t.Errorf("%s: no script %s follows it (%v)", name, script, err)
		}
		if to := path.Join("docs/guides", name); !strings.Contains(string(front), "("+to+")") {
			t.Errorf("README.md does not lead to %s", to)
		}
		for _, link := range guideLink.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(guides, filepath.Dir(name), link[1])); err != nil {
				t.Errorf("%s: a link that leads nowhere: %v", name, err)
			}
		}
	}
}

// TestReadGuide holds that nothing of a page is passed over.
func TestReadGuide(t *testing.T) {
	const fence = "```"
	steps, marked, err := readGuide("Write `a.txt`:\n\n" + fence + "toml title=a.txt\nx = 1\n" + fence + "\n" +
		fence + "console\n$ echo \\\n  a\na\n$ true\n" + fence + "\n" +
		"<!-- not run: no cluster -->\n" + fence + "\nsrun\n" + fence + "\n")
	want := []guideStep{{line: 3, file: "a.txt", text: "x = 1\n"}, {line: 7, command: "echo \\\n  a", shown: "a\n"}, {line: 10, command: "true"}}
	if err != nil || !slices.Equal(steps, want) || !slices.Equal(marked, []notRun{{13, "no cluster"}}) {
		t.Errorf("%+v, %+v, %v", steps, marked, err)
	}
	for _, bad := range []string{
		fence + "\nsrun\n" + fence, fence + "sh\n$ true\n" + fence, fence + "console\ntrue\n" + fence, fence + "console\n$ true\n",
		fence + "toml title=b\n" + fence,
	} {
		if steps, _, err := readGuide(bad); err == nil {
			t.Errorf("%q is taken: %+v", bad, steps)
		}
	}
	p := shownPattern("a ... b\n...\nend\n")
	if !p.MatchString("a x y b\nend\n") || !p.MatchString("a  b\nmore\nend\n") || p.MatchString("a b\nend\nmore\n") || p.MatchString("a x b\n") {
		t.Error("a pattern takes other output than it shows, or not its own")
	}
}
