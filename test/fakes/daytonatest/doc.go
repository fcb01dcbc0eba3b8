// Package daytonatest is a Daytona for tests: the part of its REST API that berth
// uses, over loopback, whose sandboxes are directories and whose commands are real
// processes on real terminals. It contains nothing.
//
// States change when a client looks, so nothing depends on the time. What a test
// wants to go wrong is told by [Server.Fail].
package daytonatest
