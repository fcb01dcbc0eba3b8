// Package wire is the protocol between a guest and whoever opened its
// environment, over any pair of byte streams.
//
// # Beginning
//
// The client writes [ClientMagic], a nonce of 16 random bytes and a hello
// frame. The guest answers with [GuestMagic], the same nonce and its own hello.
// Both sides skip what stands before the magic, up to [MaxBanner] bytes: the
// start of a container may print anything. The nonce keeps a side from taking
// an echo of old text for the answer; the two magics differ so that a stream
// looped back upon itself is not taken for a guest.
//
// # Frames
//
// A frame is a type (1 byte), a stream (4 bytes), a length (4 bytes, big
// endian) and the payload. Stream 0 is the conversation itself; every command
// has a stream of its own, numbered by the client, never used twice: [Streams]
// holds those under way. The payload is raw bytes for types from [Stdin] on, and a
// JSON object for all others. A raw frame without payload ends its channel.
//
// # Seals
//
// A task can reach the streams: the container program's own process holds
// them, and Linux lets a process open what another one of the same user has
// open. So the client's hello brings a key, which the guest has read before the
// first command runs, and every frame after the two hellos, of both sides, ends
// with a seal, which its length counts: the 16 byte tag of AES-256-GCM without
// a plaintext (GMAC, NIST SP 800-38D) over its header and its payload, with a
// key that is derived for each side and the number of the frame as the nonce.
// Nothing is encrypted. A frame that was forged, repeated, changed, or that misses the one before it ends the
// conversation with [ErrTampered]. Bytes of channels are sealed, too: a forged
// end of a channel, or a command's input that another user has written, would
// not be harmless.
//
// # Versions
//
// A change that an older side would misunderstand raises [Version], and sides
// of different versions do not talk. Unknown fields of messages and unknown
// types of frames are skipped, so that what is only added needs no new version.
// The hellos are not sealed and keep their form, so that sides of different
// versions can say so.
//
// # Flow
//
// Each raw channel of each stream has a window of [Window] bytes. A sender
// never has more than that on its way; the receiver gives credit back when it
// has done with the bytes. So the one who reads frames never has to wait for
// anybody, and a slow channel holds up neither the others nor any message. For
// this to hold, the goroutine that reads frames must not write any.
//
// A side that breaks a rule is not argued with: the error ends the
// conversation.
package wire
