// Package docs has the user pages of this directory, for berth help. Which pages there
// are, for whom, and about which commands is the table in README.md: the program reads it,
// and internal/walls compares it with the directory.
package docs

import (
	_ "embed"
	"path"
	"slices"
	"strings"
	"sync"
)

//go:embed README.md
var table string

// ForDevelopers is the need whose pages are about how berth is built. They are not
// part of the program.
const ForDevelopers = "For developers"

// Page is a row of the table.
type Page struct {
	Name  string // of the topic: task-file; guides/NAME in a directory below; protocol of protocol/README.md
	File  string // below docs/
	Need  string // the heading above the row
	About string // one line
	// Commands are those below berth whose help names the page.
	Commands []string
}

// User reports whether the page is for users, so that the program has it.
func (p Page) User() bool { return p.Need != ForDevelopers }

// Help is the command that shows the page. A word that is a command, too, shows that
// one's help; the page is then about this command, and the table says so.
func (p Page) Help() string {
	if slices.Contains(p.Commands, p.Name) {
		return "berth help --page " + p.Name
	}
	return "berth help " + p.Name
}

// Pages returns the rows of the table, in its order. They are read once.
func Pages() []Page { return slices.Clone(read()) }

var read = sync.OnceValue(func() (pages []Page) {
	need := ""
	for line := range strings.SplitSeq(table, "\n") {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			need = title
		}
		link, cells, ok := strings.Cut(strings.TrimPrefix(line, "| ["), ") | ")
		_, file, linked := strings.Cut(link, "](")
		about, commands, whole := strings.Cut(strings.TrimSuffix(cells, "|"), " |")
		if !strings.HasPrefix(line, "| [") || !ok || !linked || !whole {
			continue
		}
		p := Page{Name: strings.TrimSuffix(file, ".md"), File: file, Need: need, About: about}
		if path.Base(p.Name) == "README" {
			p.Name = path.Dir(p.Name)
		}
		p.Commands = strings.FieldsFunc(commands, func(r rune) bool { return strings.ContainsRune(" ,`", r) })
		pages = append(pages, p)
	}
	return pages
})

// Find is the page that a topic names: by its name, by the last part of it, or by its
// file, as other pages and error messages write it (docs/network.md).
func Find(topic string) (Page, bool) {
	topic = strings.TrimSuffix(strings.TrimPrefix(topic, "docs/"), ".md")
	pages := read()
	i := slices.IndexFunc(pages, func(p Page) bool { return p.Name == topic })
	if i < 0 {
		i = slices.IndexFunc(pages, func(p Page) bool { return path.Base(p.Name) == topic })
	}
	if i < 0 {
		return Page{}, false
	}
	return pages[i], true
}
