//go:build berthnode

package nodebin

// A program for the nodes carries no other, nor what would unpack it.
func packed(string) (Program, bool) { return Program{}, false }
