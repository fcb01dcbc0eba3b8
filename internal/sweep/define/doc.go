// Package define reads what a sweep is made of: sweep.toml, or a command and rows,
// and makes its tasks one by one, so that a million of them take no more memory
// than their ids. docs/sweeps.md says what people may write.
//
// Nothing is submitted, and nothing written, before every row was seen: a
// complaint names the file and the line.
package define
