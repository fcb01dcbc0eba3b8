// Package door is the proxy door: a proxy on the loopback inside, in the guest, for
// programs that honour the variables of one (docs/network.md). One port understands
// HTTP CONNECT, plain HTTP with a whole URL, and SOCKS5; the first bytes say which.
// It decides nothing, resolves nothing and dials nothing: it reads what a program
// wants and hands that on. It does not use package net, which is a tenth of the guest's
// program.
//
// # In the guest
//
// It is made where commands have their network: in the room, or in the container
// where there is no room. Both have a loopback of their own.
//
//	d, err := door.Listen()
//	// The variables go over those of the image, but for GIT_SSH_COMMAND, and under
//	// those of a command.
//	for _, v := range d.Env(room != nil) { place.set(...) }
//	go d.Serve(func(r door.Request, c door.Conn) {
//		// a flow to the judge: r.Host, r.Port and r.Proxy; with r.Answer, its decision
//	})
//
// The flow has the connection until it returns. It reads there what the program says
// to the server, with all that was read before. A Request with Proxy has no Answer, and
// the judge's has none then either: it reads the whole request, and answers in HTTP. All
// other requests are answered once with the decision, before a byte goes to the program;
// one whose flow ends without it is answered with Unavailable.
//
// Programs that resolve names themselves ask for the addresses that the room has
// given to names: a flow may look these up there.
package door
