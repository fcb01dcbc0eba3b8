package walls

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode"

	"berth/docs"
)

// Each page below docs/ is in the table of docs/README.md once, and each row is a page.
// What docs/changes has are fragments of a release.
func TestPagesOfDocs(t *testing.T) {
	listed := map[string]int{"README.md": 1}
	for _, p := range docs.Pages() {
		listed[p.File]++
		if p.Need == "" || p.About == "" || len(p.About) > 90 {
			t.Errorf("docs/README.md: the row of %s has no heading above it, no text or a long one: %q", p.File, p.About)
		}
	}
	found := map[string]bool{}
	for _, file := range markdown(t) {
		if page, ok := strings.CutPrefix(file, "docs/"); ok && !strings.HasPrefix(page, "changes/") {
			found[page] = true
			if listed[page] != 1 {
				t.Errorf("docs/%s has %d rows in docs/README.md, want one", page, listed[page])
			}
		}
	}
	for page := range listed {
		if !found[page] {
			t.Errorf("docs/README.md has a row of docs/%s, and there is no such page", page)
		}
	}
	if len(found) < 30 {
		t.Errorf("%d pages are too few", len(found))
	}
}

// Each link of a page to a file of the repository, and to a heading in one, leads somewhere.
func TestLinksOfDocs(t *testing.T) {
	count := 0
	for _, file := range markdown(t) {
		for _, target := range linksOf(t, file) {
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			count++
			to, heading, _ := strings.Cut(target, "#")
			if to = path.Join(path.Dir(file), to); strings.HasPrefix(target, "#") {
				to = file
			}
			if _, err := os.Stat(filepath.Join(top, to)); err != nil || strings.HasPrefix(to, "../") {
				t.Errorf("%s: a link to %s: there is no such file", file, target)
			} else if heading != "" && !slices.Contains(anchorsOf(t, to), heading) {
				t.Errorf("%s: a link to %s: there is no such heading", file, target)
			}
		}
	}
	if count < 200 {
		t.Errorf("%d links are too few", count)
	}
}

// The other tests would hold for ever if nothing was found.
func TestReadingOfDocs(t *testing.T) {
	dir := t.TempDir()
	text := "# The *first* [part](a.md), `b_c` & d\n```\n# no heading [no](link.md)\n```\n`[no](code.md)` [yes](d.md#e) [`f`](../g)\n## Twice\n## Twice\n"
	if err := os.WriteFile(filepath.Join(dir, "a.md"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := filepath.Rel(top, filepath.Join(dir, "a.md"))
	if err != nil {
		abs, _ := filepath.Abs(top)
		file, _ = filepath.Rel(abs, filepath.Join(dir, "a.md"))
	}
	if got, want := linksOf(t, file), []string{"a.md", "d.md#e", "../g"}; !slices.Equal(got, want) {
		t.Errorf("links %q, want %q", got, want)
	}
	if got, want := anchorsOf(t, file), []string{"the-first-part-b_c--d", "twice", "twice-1"}; !slices.Equal(got, want) {
		t.Errorf("headings %q, want %q", got, want)
	}
}

// markdown are the repository's files of text, from its top, without what tests and
// tools have of their own.
func markdown(t *testing.T) (files []string) {
	t.Helper()
	err := filepath.WalkDir(top, func(file string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != top && (strings.HasPrefix(name, ".") || slices.Contains([]string{"testdata", "dist", "node_modules"}, name)):
			return fs.SkipDir
		case strings.HasSuffix(name, ".md") && !d.IsDir():
			rel, err := filepath.Rel(top, file)
			files = append(files, rel)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var (
	codeSpan = regexp.MustCompile("`[^`]*`")
	linkTo   = regexp.MustCompile(`\]\(([^)\s]+)\)`)
)

// prose are the lines of a page outside of code.
func prose(t *testing.T, file string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, file))
	if err != nil {
		t.Fatal(err)
	}
	fenced := false
	for line := range strings.SplitSeq(string(text), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		} else if !fenced {
			lines = append(lines, line)
		}
	}
	return lines
}

func linksOf(t *testing.T, file string) (targets []string) {
	t.Helper()
	for _, line := range prose(t, file) {
		for _, m := range linkTo.FindAllStringSubmatch(codeSpan.ReplaceAllString(line, "``"), -1) {
			targets = append(targets, m[1])
		}
	}
	return targets
}

var anchorsRead sync.Map // of a file, its anchors

// anchorsOf are the anchors of a page's headings, as GitHub and hugo make them.
func anchorsOf(t *testing.T, file string) (anchors []string) {
	t.Helper()
	if known, ok := anchorsRead.Load(file); ok {
		return known.([]string)
	}
	seen := map[string]int{}
	for _, line := range prose(t, file) {
		title := strings.TrimLeft(line, "#")
		if title == line || !strings.HasPrefix(title, " ") {
			continue
		}
		title = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`).ReplaceAllString(strings.TrimSpace(title), "$1")
		anchor := strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, title)
		n := seen[anchor]
		if seen[anchor]++; n > 0 {
			anchor += "-" + string(rune('0'+n))
		}
		anchors = append(anchors, anchor)
	}
	anchorsRead.Store(file, anchors)
	return anchors
}
