// Package egress is a supervisor's side of the network of a place: it has the judge,
// answers the guest's questions, and carries its connections (docs/network.md).
package egress
