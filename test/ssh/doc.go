// Package ssh tests the backend ssh against real servers: OpenSSH in containers
// of its own, made from the image of scripts/testbed and reached with this
// machine's ssh program. It is built with the tag "cluster" and run by
// scripts/test.
package ssh
