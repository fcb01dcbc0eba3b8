// Package strict reads the files that people write for berth: TOML, and
// Markdown with TOML or YAML front matter. It knows no key of its own; the
// caller takes the keys that it understands, and whatever was not taken is an
// error. Nothing is accepted and ignored, nothing is converted in silence (a
// YAML 1.10 is not the string "1.10"), and every complaint names the file, the
// line and, where there is one, the nearest right spelling.
//
// Reading goes on after a complaint, so that [Doc.Err] tells all of them at
// once, in the order of the file. All errors are *[jobs.Error] of the kind
// usage.
package strict
