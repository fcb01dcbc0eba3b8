package jobs

import (
	"slices"
	"strings"
)

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
	// Resume is the command with which it goes on with a session of its own, in which
	// [SessionWord] is the id; empty is that it has none.
	Resume Command `json:"resume,omitzero"`
	// Session is that with which the first attempt goes on: of the job of which this one is
	// another try. "" is a new one.
	Session string `json:"session,omitempty"`
}

// SessionWord stands for the id of a session in [Agent].Resume.
const SessionWord = "{session}"

// IsSession reports whether an agent's word can be the id of a session. It comes from the
// task, and becomes an argument: it is never an option, a path, or a part of one.
func IsSession(id string) bool {
	if id == "" || len(id) > 128 || id[0] == '-' || id[0] == '.' || strings.Contains(id, "..") {
		return false
	}
	return !strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	})
}

// ResumeWith returns the command that goes on with a session; false is that the agent has
// none, or that the id cannot be one.
func (a *Agent) ResumeWith(id string) (Command, bool) {
	if a.Resume.Empty() || !IsSession(id) {
		return Command{}, false
	}
	c := Command{Shell: strings.ReplaceAll(a.Resume.Shell, SessionWord, id), Argv: slices.Clone(a.Resume.Argv)}
	for i, w := range c.Argv {
		c.Argv[i] = strings.ReplaceAll(w, SessionWord, id)
	}
	return c, true
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
	Version string `json:"version,omitempty"`
	Model   string `json:"model,omitempty"`
	Session string `json:"session,omitempty"`
	// Continued is the session with which it went on, and NewSession why it began one though
	// it had worked on this task before. Both are "" where it had not.
	Continued  string    `json:"continued,omitempty"`
	NewSession string    `json:"new_session,omitempty"`
	Turns      int       `json:"turns,omitempty"`
	Usage      *Usage    `json:"usage,omitempty"`
	Tools      []ToolUse `json:"tools,omitempty"`
	Denied     []string  `json:"denied,omitempty"` // tools that it was not allowed to use
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
	s := Plural(int64(u.Turns), "turn") + ", " + Plural(int64(calls), "tool call")
	if u.Usage != nil {
		_, spent, _ := strings.Cut(u.Usage.String(), ", ")
		s += ", " + spent
	}
	if len(u.Denied) > 0 {
		s += ", was denied " + strings.Join(u.Denied, ", ")
	}
	return s
}

// Sessions says what became of an earlier session of it, in one line; "" is that there was
// none.
func (u *AgentUse) Sessions() string {
	switch {
	case u.Continued != "":
		return "went on with " + u.Continued
	case u.NewSession != "":
		return "a new one: " + u.NewSession
	}
	return ""
}

// ToolUse is how often a tool was called, and for how long in all.
type ToolUse struct {
	Name    string  `json:"name"`
	Calls   int     `json:"calls"`
	Failed  int     `json:"failed,omitempty"`
	Seconds float64 `json:"seconds"`
}
