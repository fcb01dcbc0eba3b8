// Package ttystream is an exact stream of bytes both ways over a terminal, for
// services that give a program inside nothing better. One side is inside, on
// the terminal; the other holds what the service makes of the terminal's other
// end, such as a WebSocket.
//
// # Beginning
//
// The side inside sets the terminal raw and writes [Ready], a text that depends
// on a nonce in its arguments and so stands in no echo of them, and then all 256
// values of a byte. What comes before it, such as a shell's prompt, is skipped
// up to a bound. The side outside answers with the same 256 values and goes on
// at once. So a terminal, or a proxy, that changes or drops a byte is found
// before anything depends on it.
//
// # Frames
//
// A frame is a type (1 byte), a length (2 bytes, big endian) and a payload.
// There is no check of it beyond that: what travels in it, package wire, seals
// everything, and a stream that breaks there is opened again.
//
// # Flow
//
// Services differ in what they do when a terminal is not read fast enough:
// some drop the reader once a few hundred pieces wait. So neither side ever has
// more than [Window] bytes on its way, small frames counted as a piece of a
// terminal's buffer, and the reader gives credit as the bytes are taken. The
// goroutine that reads frames never waits for whoever takes them.
//
// When the terminal's other end is gone without a word, nothing here sees it:
// whoever uses the stream pings.
package ttystream
