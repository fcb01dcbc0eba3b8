package mdtext

import (
	"strings"
	"testing"

	"berth/docs"

	"github.com/charmbracelet/x/ansi"
	"github.com/google/go-cmp/cmp"
)

func TestRender(t *testing.T) {
	for name, c := range map[string]struct {
		in, want string
		width    int
		ink      bool
	}{
		"headings and paragraphs": {
			in: "# A *page*\nfirst line\nsecond line of it\n\n\n## Part\n### Below\ntext\n", width: 20,
			want: "A page\n======\n\nfirst line second\nline of it\n\nPart\n----\n\nBelow\n\ntext\n",
		},
		"lists": {
			in: "- one two three\n  four\n- **five** `six`\n  - seven\n1. eight\n10. nine ten", width: 14,
			want: "- one two\n  three four\n- five `six`\n  - seven\n1. eight\n10. nine ten\n",
		},
		"code is kept": {
			in: "text\n```sh\nberth run   *x* # [no](link)\n\n| a | b |\n```\n- item\n\n  ```\n  x\n  ```\n", width: 12,
			want: "text\n    berth run   *x* # [no](link)\n\n    | a | b |\n- item\n\n      x\n",
		},
		"table": {
			in: "| key | what |\n|---|---|\n| `a` | one two three four |\n| `b\\|c` | |\n", width: 20,
			want: "key    what\n-----  -------------\n`a`    one two three\n       four\n`b|c`\n",
		},
		"table that is too wide": {
			in: "| key | meaning | other |\n|---|---|---|\n| `averylongword` | anotherlongword | x |\n", width: 20,
			want: "key: `averylongword`\n    meaning:\n      anotherlongword\n    other:\n      x\n",
		},
		"links": {
			in: "[all](network.md#rules), [`x` [y]](top.md), [Modal](https://modal.com), [https://a.b](https://a.b), [no link], a [1] b", width: 200,
			want: "all, `x` [y], Modal (https://modal.com), https://a.b, [no link], a [1] b\n",
		},
		"pictures":            {in: "![the `x` of y](x.svg) and! [a](b.md)!", width: 80, want: "(picture: the `x` of y) and! a!\n"},
		"marks that are none": {in: "2 * 3 * 4, `*.py` and `**/x`, \\*, 5*, snake_case_word, ``a`b``", width: 200, want: "2 * 3 * 4, `*.py` and `**/x`, *, 5*, snake_case_word, ``a`b``\n"},
		"comments":            {in: "a\n<!-- one -->\n<!-- two\nlines -->\nb\n", width: 80, want: "a\nb\n"},
		"ink": {
			in: "# T `x`\n`a b` **cc dd** *e*", width: 8, ink: true,
			want: "\x1b[1mT x\x1b[22m\n\n\x1b[1ma\x1b[22m \x1b[1mb\x1b[22m \x1b[1mcc\x1b[22m\n\x1b[1mdd\x1b[22m \x1b[4me\x1b[24m\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, _ := Render(c.in, Style{Width: c.width, Ink: c.ink})
			if d := cmp.Diff(c.want, got); d != "" {
				t.Error(d)
			}
		})
	}
	if _, links := Render("[a](b.md) [c](b.md#d) [e](#f) `[g](h.md)` [i](../j.md)", Style{Width: 80}); !cmp.Equal(links, []string{"b.md", "../j.md"}) {
		t.Errorf("links to %q", links)
	}
}

// Every user page can be shown in every width: no word of it is lost, no line is longer than
// asked but for code and words, and no mark of Markdown is left.
func TestPages(t *testing.T) {
	for _, p := range docs.Pages() {
		if !p.User() {
			continue
		}
		source, err := p.Text()
		if err != nil {
			t.Fatal(err)
		}
		wide, _ := Render(source, Style{Width: 100000})
		for _, width := range []int{40, 100} {
			for _, ink := range []bool{false, true} {
				text, _ := Render(source, Style{Width: width, Ink: ink})
				if ink && strings.Contains(ansi.Strip(text), "```") {
					t.Errorf("%s: a fence is left", p.Name)
				}
				for line := range strings.SplitSeq(text, "\n") {
					if strings.Contains(line, "](") && !strings.HasPrefix(line, codeIndent) || strings.HasPrefix(line, "|") {
						t.Errorf("%s, width %d: %q", p.Name, width, line)
					}
					if ansi.StringWidth(line) > width && !strings.HasPrefix(line, codeIndent) && strings.Contains(strings.TrimSpace(line), " ") {
						t.Errorf("%s, width %d: too long: %q", p.Name, width, line)
					}
				}
			}
		}
		text, _ := Render(source, Style{Width: 40})
		left := map[string]bool{}
		for word := range strings.FieldsSeq(text) {
			left[word] = true
		}
		for word := range strings.FieldsSeq(wide) {
			if strings.Trim(word, "-=") != "" && !left[word] && !left[word+":"] { // a header of a table that is too wide
				t.Errorf("%s: %q is lost", p.Name, word)
			}
		}
	}
}
