package models

import (
	"encoding/json"
	"testing"
)

// What is played follows from a request alone, in the words of each vendor.
func TestPlay(t *testing.T) {
	const prompt = `"Repair it.\nplay-write: /work/a.py A = 1\nplay-run: make test"`
	for _, tc := range []struct{ name, body, tool, args, text string }{
		{"anthropic", `{"tools":[{"name":"Task"},{"name":"Write"},{"name":"Bash"}],"messages":[{"role":"user","content":` + prompt + `}]}`,
			"Write", `{"content":"A = 1\n","file_path":"/work/a.py"}`, ""},
		{"anthropic, second", `{"tools":[{"name":"Bash"}],"messages":[{"role":"user","content":` + prompt + `},
			{"role":"user","content":[{"type":"tool_result","content":"play-run: nothing"}]}]}`,
			"Bash", `{"command":"make test","description":"as the script says"}`, ""},
		{"anthropic, end", `{"tools":[{"name":"Bash"}],"messages":[{"role":"user","content":[{"type":"text","text":` + prompt + `},{"type":"tool_result"},
			{"type":"tool_result"}]}]}`, "", "", PlayEnd},
		{"openai, without a tool for files", `{"tools":[{"type":"function","name":"exec_command"}],"input":[{"content":[{"text":` + prompt + `}]}]}`,
			"exec_command", `{"cmd":"printf '%s\\n' 'A = 1' \u003e'/work/a.py'"}`, ""},
		{"openai, second", `{"tools":[{"name":"shell"}],"input":[{"text":` + prompt + `},{"type":"function_call_output","output":"x"}]}`,
			"shell", `{"command":["bash","-lc","make test"]}`, ""},
		{"gemini", `{"tools":[{"functionDeclarations":[{"name":"run_shell_command"}]}],"contents":[{"parts":[{"text":` + prompt + `}]},
			{"parts":[{"functionResponse":{"name":"write_file"}}]}]}`,
			"run_shell_command", `{"command":"make test","description":"as the script says"}`, ""},
		{"a title", `{"messages":[{"role":"user","content":` + prompt + `}]}`, "", "", "one two three"},
		{"no script", `{"tools":[{"name":"Bash"}],"messages":[{"role":"user","content":"hello"}]}`, "", "", "one two three"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := Play(Request{Body: []byte(tc.body)})
			if tc.tool == "" {
				if r.Call != nil || r.Text != tc.text {
					t.Errorf("%+v, want %q", r, tc.text)
				}
				return
			}
			if r.Call == nil {
				t.Fatalf("no call: %+v", r)
			}
			if args, _ := json.Marshal(r.Call.Arguments); r.Call.Name != tc.tool || string(args) != tc.args {
				t.Errorf("%s %s, want %s %s", r.Call.Name, args, tc.tool, tc.args)
			}
		})
	}
	if r := Play(Request{Body: []byte(`{"tools":[{"name":"Other"}],"input":` + prompt + `}`)}); r.Status != 400 {
		t.Errorf("no tool is known: %+v", r)
	}
}
