package jobs

import "strings"

// Agent is what a job has of the adapter of its agent: what the node needs to read its
// events and to understand its end. It holds no secret. As a task file has it, it is the
// name and what the task wants, and the configuration settles the rest.
type Agent struct {
	Name string `json:"name"`
	From string `json:"from,omitempty"` // the user's file; "" is built in
	// Events is the format of what it writes, see package agents.
	Events string `json:"events"`
	Tells  Tells  `json:"tells,omitzero"`
	// Exit says what its exit codes mean: "53" is "turns".
	Exit map[string]string `json:"exit,omitempty"`
	// Home are files that its HOME gets before it begins, by their paths there.
	Home  map[string]string `json:"home,omitempty"`
	Model string            `json:"model,omitempty"` // that was asked for; "" is its own choice
	// Versions are the first and the last one that it was tried with, VersionArgv is how
	// it prints its own.
	Versions    []string `json:"versions,omitempty"`
	VersionArgv []string `json:"version_argv,omitempty"`
	// OwnSandbox is whether its own sandbox is left on; nil is not said. Sandbox says what
	// became of it, for the receipt.
	OwnSandbox *bool  `json:"own_sandbox,omitempty"`
	Sandbox    string `json:"sandbox,omitempty"`
}

// Tells is when the events of an agent tell what it has used: [TellsEach], [TellsEnd],
// or "" for never.
type Tells struct {
	Turns  string `json:"turns,omitempty"`
	Tokens string `json:"tokens,omitempty"`
	USD    string `json:"usd,omitempty"`
}

// When events tell it.
const (
	TellsEach = "each" // as it goes, so that a cap can be held
	TellsEnd  = "end"  // with the last one
)

// AgentUse is what an agent has done, by its own events.
type AgentUse struct {
	Version string    `json:"version,omitempty"`
	Model   string    `json:"model,omitempty"`
	Session string    `json:"session,omitempty"`
	Turns   int       `json:"turns,omitempty"`
	Usage   *Usage    `json:"usage,omitempty"`
	Tools   []ToolUse `json:"tools,omitempty"`
	Denied  []string  `json:"denied,omitempty"` // tools that it was not allowed to use
	// Reason is why it says that it ended; "" is by itself.
	Reason string `json:"reason,omitempty"`
	// Lines that were no events, events of an unknown kind, and lines too long to be read.
	Text    int `json:"text_lines,omitempty"`
	Unknown int `json:"unknown_events,omitempty"`
	Long    int `json:"long_lines,omitempty"`
}

// String says it in one line: "4 turns, 12 calls of tools, 34k tokens, 0.05 USD".
func (u *AgentUse) String() string {
	calls := 0
	for _, t := range u.Tools {
		calls += t.Calls
	}
	s := plural(int64(u.Turns), "turn") + ", " + plural(int64(calls), "tool call")
	if u.Usage != nil {
		_, spent, _ := strings.Cut(u.Usage.String(), ", ")
		s += ", " + spent
	}
	if len(u.Denied) > 0 {
		s += ", was denied " + strings.Join(u.Denied, ", ")
	}
	return s
}

// ToolUse is how often a tool was called, and for how long in all.
type ToolUse struct {
	Name    string  `json:"name"`
	Calls   int     `json:"calls"`
	Failed  int     `json:"failed,omitempty"`
	Seconds float64 `json:"seconds"`
}
