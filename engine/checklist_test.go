package engine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChecklist(t *testing.T) {
	for name, c := range map[string]struct {
		prompt string
		want   []CheckItem
	}{
		"none":               {prompt: "Fix it.\n\n- not a check\n"},
		"another heading":    {prompt: "# Done\n- a\n# Done whenever\n- b\n"},
		"boxes and bullets":  {"Fix.\n\n## Done when\n\n- [ ] a\n- [x] b\n* c\n1. d\n2) e\n", []CheckItem{{"a", 5, false}, {"b", 6, true}, {"c", 7, false}, {"d", 8, false}, {"e", 9, false}}},
		"any case, a colon":  {"### DONE WHEN: ###\n- a", []CheckItem{{"a", 2, false}}},
		"ends":               {"## Done when\n- a\n### first\n- b\n## Notes\n- c\n", []CheckItem{{"a", 2, false}, {"b", 4, false}}},
		"notes of a review":  {"# Done when\n- a\n\n## Notes from review\n\n- b\n", []CheckItem{{"a", 2, false}}},
		"goes on":            {"# Done when\n- a\n  more\nand more\n\nnot\n- b\n", []CheckItem{{"a more and more", 2, false}, {"b", 7, false}}},
		"below a point":      {"# Done when\n- a\n  - a1\n", []CheckItem{{"a", 2, false}, {"a1", 3, false}}},
		"in a fence":         {"```\n# Done when\n- x\n```\n# Done when\n- a\n~~~\n- no\n~~~\n- b\n", []CheckItem{{"a", 6, false}, {"b", 10, false}}},
		"Windows":            {"# Done when\r\n- a\r\n", []CheckItem{{"a", 2, false}}},
		"text, no list":      {prompt: "# Done when\nall is well\n"},
		"cannot act":         {"# Done when\n- a\x1b[2J\n", []CheckItem{{"a [2J", 2, false}}},
		"two of them":        {"# Done when\n- a\n# x\n# Done when\n- b\n", []CheckItem{{"a", 2, false}, {"b", 5, false}}},
		"a rule is no point": {prompt: "# Done when\n---\n***\n"},
	} {
		if d := cmp.Diff(c.want, Checklist(c.prompt)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	many := Checklist("# Done when\n" + strings.Repeat("- "+strings.Repeat("x", 5000)+"\n", 1000))
	if len(many) != maxCheckItems || len(many[0].Text) > maxCheckText+3 {
		t.Errorf("%d points, the first of %d bytes", len(many), len(many[0].Text))
	}
}
