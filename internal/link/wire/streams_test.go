package wire

import (
	"errors"
	"slices"
	"testing"
)

func TestStreams(t *testing.T) {
	theirs := Streams[string]{Most: 2}
	for _, n := range []uint32{3, 7} {
		if err := theirs.Next(n); err != nil {
			t.Fatal(err)
		}
		theirs.Put(n, string(rune('0'+n)))
	}
	if err := theirs.Next(7); err == nil || errors.Is(err, ErrMany) {
		t.Errorf("used before: %v", err)
	}
	if err := theirs.Next(8); !errors.Is(err, ErrMany) || theirs.Last() != 8 {
		t.Errorf("one too many: %v, %d", err, theirs.Last())
	}
	theirs.Remove(3)
	if err := theirs.Next(9); err != nil {
		t.Errorf("another has ended: %v", err)
	}
	wrong := errors.New("wrong")
	for n, want := range map[uint32]error{7: wrong, 3: nil, 9: nil} {
		if err := theirs.Route(Frame{Stream: n}, func(s string, _ Frame) error { return wrong }); !errors.Is(err, want) {
			t.Errorf("stream %d: %v", n, err)
		}
	}

	var ours Streams[uint32]
	self := func(n uint32) uint32 { return n }
	for want := uint32(1); want <= 2; want++ {
		if n, err := ours.Open(self); err != nil || n != want {
			t.Errorf("%d, %v", n, err)
		}
	}
	leaving, gone := errors.New("leaving"), errors.New("gone")
	ours.Refuse(leaving)
	if _, err := ours.Open(self); !errors.Is(err, leaving) || len(ours.All()) != 2 {
		t.Errorf("%v, %d", err, ours.All())
	}
	all := ours.Close(gone)
	slices.Sort(all)
	if _, err := ours.Open(self); !errors.Is(err, gone) || !slices.Equal(all, []uint32{1, 2}) || len(ours.All()) != 0 {
		t.Errorf("%v, %d", err, all)
	}
}
