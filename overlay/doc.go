// Package overlay keeps the writable layers of containers: it makes them,
// lends them to one owner at a time, and checks them after a crash.
//
// A layer belongs to the driver that wrote it and to the image it was made
// over: opened by another driver, deleted files come back silently; over
// another image, it means something else. Both stand in the layer's mark, and
// a layer is opened only when both agree. The package knows no jobs: who an
// owner is and whether it is gone is told by the caller.
package overlay
