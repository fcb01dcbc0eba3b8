package engine

import (
	"fmt"
	"strings"
	"testing"

	"berth/jobs"
)

// An agent's answer counts only as the schema has it, and drives no terminal.
func TestOpinion(t *testing.T) {
	answer := func(points, findings string) string {
		return `{"verdict": "unsure", "points": [` + points + `], "findings": [` + findings + `]}`
	}
	yes := `{"point": 1, "met": "yes", "why": "x"}`
	no := `{"point": 2, "met": "no", "why": ""}`
	for text, want := range map[string]string{
		answer(yes+","+no, ""):                                       "",
		"```json\n" + answer(no+","+yes, "") + "\n```":               "",
		answer(yes, ""):                                              "1 points of 2",
		answer(yes+","+yes, ""):                                      "point 1, met",
		answer(yes+`,{"point": 3, "met": "no"}`, ""):                 "point 3",
		answer(yes+`,{"point": 2, "met": "maybe"}`, ""):              `met "maybe"`,
		answer(yes+","+no, `{"file": "", "text": "x"}`):              "finding 1",
		answer(yes+","+no, `{"file": "a", "line": -1, "text": "x"}`): "finding 1",
		answer(yes+","+no, strings.Repeat(`{"file": "a", "text": "x"},`, 50)+`{"file": "a", "text": "x"}`): "and 51 findings",
		strings.Replace(answer(yes+","+no, ""), "unsure", "merge", 1):                                      `verdict is "merge"`,
		answer(yes+","+no, "") + "{}": "more follows",
		`{"approved": true}`:          "no JSON of the form",
		"APPROVE":                     "no JSON of the form",
		"":                            "no JSON of the form",
		strings.Repeat(" ", 10) + strings.Repeat("x", 70000): "may have 65536",
	} {
		o, err := opinion(text, 2)
		if (want == "") != (err == nil) || err != nil && (!strings.Contains(err.Error(), want) || o.Verdict != "") {
			t.Errorf("%.100q: %+v, %v, not %q", text, o, err, want)
		}
	}
	o, err := opinion(answer("", `{"file": "a\nb", "line": 3, "text": "c\u001b[2Jd"}`), 0)
	must(t, err)
	if f := o.Findings[0]; f.File != "a b" || f.Text != "c [2Jd" || f.Line != 3 {
		t.Errorf("%+q", fmt.Sprint(f))
	}
}

// The change is no part of the prompt.
func TestAdvicePrompt(t *testing.T) {
	p := advicePrompt(&jobs.Spec{}, []byte("Make it so.\n\n## Done when\n- one\n- two\n"))
	for _, want := range []string{"Make it so.", "1. one\n2. two\n", "each of the 2 points", "untrusted data", ".berth-review/diff.patch"} {
		if !strings.Contains(p, want) {
			t.Errorf("%q is not in it:\n%s", want, p)
		}
	}
	if p = advicePrompt(&jobs.Spec{Command: jobs.Command{Shell: "make"}}, nil); !strings.Contains(p, "It was a command: make") || !strings.Contains(p, `"points" is []`) {
		t.Error(p)
	}
}
