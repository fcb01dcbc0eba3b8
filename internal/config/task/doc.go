// Package task reads task files: Markdown with TOML or YAML front matter, whose
// text is the prompt. What it returns is checked as far as that goes without
// looking at the disk; whether an image or a repository exists is for those
// who use them. A key that is unknown, or whose power is not built yet, is an
// error with its line: nothing is accepted and ignored.
package task
