package docker

import (
	"slices"
	"strings"
	"testing"
)

// TestChanges: what "diff" says, without what is not the task's.
func TestChanges(t *testing.T) {
	c := container{}
	c.Mounts = append(c.Mounts, struct {
		Type, Name, Source, Destination string

		RW bool
	}{Destination: "/.berth/node"}, struct {
		Type, Name, Source, Destination string

		RW bool
	}{Destination: "/home/alice/"})
	got := c.changes("A /.berth\nA /.berth/node\nC /home\nA /home/alice\nA /home/bob\nC /etc\nC /etc/passwd\nD /etc/issue\nC /empty\nA /deep\nA /deep/f\nA /a\nbreak\nX /y\n")
	want := "added /home/bob|changed /etc/passwd|deleted /etc/issue|changed /empty|added /deep|added /deep/f|added /a"
	if !slices.Equal(got, strings.Split(want, "|")) {
		t.Errorf("%q", got)
	}
	if got := c.changes(""); len(got) != 0 {
		t.Errorf("of nothing: %q", got)
	}
}
