package walls

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"berth/docs"
)

var (
	fileOfDocs = regexp.MustCompile(`docs/[a-z][a-z/-]*\.md`)
	shownHelp  = regexp.MustCompile(`berth help (?:--page )?([a-z][a-z-]*)`)
)

// wrongTopics are what a line of a program's text says about pages that does not help its
// user: a file, which is not beside an installed program, and a command that does not show
// the page.
func wrongTopics(line string) (wrong []string) {
	for _, file := range fileOfDocs.FindAllString(line, -1) {
		wrong = append(wrong, file+" is not there for who has the program: name it by berth help")
	}
	for _, m := range shownHelp.FindAllStringSubmatch(line, -1) {
		p, ok := docs.Find(m[1])
		isCommand := slices.ContainsFunc(docs.Pages(), func(p docs.Page) bool { return slices.Contains(p.Commands, m[1]) })
		switch {
		case ok && !p.User():
			wrong = append(wrong, m[0]+": the page is not part of the program")
		case ok && m[0] != p.Help():
			wrong = append(wrong, m[0]+": the page is shown by "+p.Help())
		case !ok && (!isCommand && m[1] != "topics" || strings.Contains(m[0], "--page")):
			wrong = append(wrong, m[0]+": there is no such page, nor a command that docs/README.md has")
		}
	}
	return wrong
}

// Hints, errors and help name pages by the command that shows them.
func TestTopics(t *testing.T) {
	all, err := scanned()
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for file, words := range all {
		for _, w := range words {
			if strings.HasPrefix(w.text, "//") { // a comment is for who has the sources
				continue
			}
			named += len(shownHelp.FindAllString(w.text, -1))
			for _, wrong := range wrongTopics(w.text) {
				t.Errorf("%s:%d: %s", file, w.line, wrong)
			}
		}
	}
	if named < 30 {
		t.Errorf("%d pages named are too few", named)
	}
}

// A rule that finds nothing would hold for ever.
func TestWrongTopics(t *testing.T) {
	for line, want := range map[string]int{
		"berth help task-file has it": 0, "berth help --page network": 0, "berth help topics": 0, "berth help run": 0, "berth help TOPIC": 0,
		"see docs/network.md": 1, "docs/guides/backend.md": 1, "berth help network": 1, "berth help --page task-file": 1,
		"berth help architecture": 1, "berth help no-such": 1, "berth help --page run": 1,
	} {
		if got := wrongTopics(line); len(got) != want {
			t.Errorf("%q: %q, want %d", line, got, want)
		}
	}
}
