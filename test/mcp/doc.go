// Package mcp tries berth mcp as others use it: the protocol's public conformance suite goes
// over its streamable HTTP, and the program of an agent, whose model is played, works in an
// environment through it. scripts/test.d/mcp installs both programs and runs it.
package mcp
