// Package mcp serves berth to agents by the Model Context Protocol: tools that are bound
// to one environment, tools about jobs, their records as resources, and a prompt for task
// files. It is a face: what it does is the engine's, and each tool is a call or two of it.
//
// Whoever calls is a model, and may be hostile. Without [Options.Run] and
// [Options.Submit] there is no tool that changes anything; a submission is a [Request],
// which waits until a person has confirmed it outside of the model; no tool approves or
// merges. docs/mcp.md says what a hostile model may try, and what stops it.
package mcp
