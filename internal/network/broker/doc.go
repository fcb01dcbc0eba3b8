// Package broker carries a task's requests that need a key which the task never sees,
// in the supervisor, outside of the container. A program inside has an address on
// loopback and a placeholder; what it sends there comes to [Broker.Serve].
//
// # A request
//
//   - It has the placeholder, or it is refused (401). The placeholder is made with the
//     broker and worth nothing elsewhere.
//   - Its method and path are allowed (403). Package net/http has parsed it and writes
//     another one, so nothing is in it that two readers understand in two ways.
//   - A request to a model has a body that can be read to its end, in which no key is
//     there twice. The model is one that may be asked, and none of the vendor's own
//     tools is named that the task may not use: these reach the internet for it.
//   - No cap is met.
//   - All headers with keys are taken out, and the key is put into the one header.
//
// It goes to the one upstream over TLS, by a dialer to which the policy of the network
// applies. A redirect is not followed: the program gets it, and follows it without the
// key.
//
// # An answer
//
// Bytes are passed on as they come. Where the key is in them the connection ends before
// its first byte; encodings other than identity are not asked for, so that it would be
// seen. What the answer says of tokens is added up, also while a stream goes on, which
// ends where a cap is exceeded. Where an answer says nothing it is estimated from its
// text. Bodies of requests are never changed.
package broker
