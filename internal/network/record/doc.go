// Package record keeps what a judge has decided: network.jsonl in the directory of an
// attempt or of an environment, and the sums of it.
//
// A supervisor opens a [Log], whose Record is the judge's. A line is written by one
// goroutine behind a buffer, so that a slow disk holds up no flow: what finds the buffer full is
// in the sums alone, and counted. After [MaxLines] there are only sums, which end the
// file. [Log.Watch] takes up the words that the user adds while it runs.
//
// Clients use [Read]. A file may have come from another machine, so what is read is
// bounded and made printable.
package record
