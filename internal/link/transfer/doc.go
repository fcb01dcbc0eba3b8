// Package transfer carries files and trees into environments and out of them,
// as one tar stream (PAX): [Pack] writes it, [Unpack] reads it, the one on this
// machine and the other inside, or the other way round.
//
// A stream that comes out of an environment may be hostile, and so may be what
// stands at its destination when the environment can write there. Unpack
// promises to make, change or replace nothing outside its destination, whatever
// the stream says: it goes through no symbolic link
// below the destination, takes no absolute name and no "..", makes hard links
// only between files of the same stream, drops setuid, setgid and sticky bits,
// and makes no devices. Symbolic links of the stream are made as they are, and
// may lead anywhere: what follows them later is not this package.
//
// Where things go is as cp -a and docker cp have it. The source goes into a
// destination that is a directory, under its own name, and else becomes the
// destination; a source that ends in "/." is its contents. A directory is
// merged with one that is there, which keeps its mode; a file replaces one
// that is there, by a rename; a directory and something else never replace one
// another. Owners are those of whoever unpacks.
//
// Where a stream is a pipe, which it is or has a method Pipe for, the kernel
// moves the contents of large files (splice(2)); the stream is the same. Whoever
// reads such a pipe can hold pages of the files packed, and see what is written
// to them later: Pack gets no pipe with a hostile reader.
//
// When a stream breaks off, what has come in whole stays, as with cp; no part
// of a file stays under its name or another.
package transfer
