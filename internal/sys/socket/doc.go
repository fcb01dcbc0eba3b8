// Package socket makes and finds unix sockets in a private directory of this
// user, whose two sides check each other's user. They are made by hand: package
// net would add its resolver, and much of a MiB, to programs that stay in
// memory.
package socket
