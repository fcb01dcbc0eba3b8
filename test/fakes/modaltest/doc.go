// Package modaltest is a stand-in for Modal's servers on the loopback device, for
// tests: the two gRPC services, by the official SDK's own stubs, with directories
// for sandboxes and real processes in them.
//
// A sandbox is a directory that is HOME and the working directory of what runs in
// it. It is no container: processes see the whole machine, with this user's
// rights. A sandbox that is named lies at a path that only its name decides, so
// that a restored one is found where the first one was. Files below that
// directory are what snapshots hold.
//
// Limits of life are kept, idle or not; CPU, memory, GPU, network and region are
// recorded for tests and otherwise not looked at. Faults are put in by
// [Server.Inject].
package modaltest
