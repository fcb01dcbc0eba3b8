package session_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"berth/internal/link/session"
	"berth/internal/link/wire"
)

// keeps counts the connections of each room, and those of none, and ends them.
type keeps struct {
	echo

	mu   sync.Mutex
	none int
	all  []*int
}

func (k *keeps) Flow(_ context.Context, _ wire.FlowMessage, f *session.Flow) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f.Room() == nil {
		k.none++
		return
	}
	*f.Room().Keep(func() any { k.all = append(k.all, new(int)); return k.all[len(k.all)-1] }).(*int)++
}

// Connections of one room have one thing for all of them, until its command has ended: what
// comes by its name afterwards is ended unheard, and is never taken for another room's or for that of none.
func TestRoomOf(t *testing.T) {
	k := &keeps{}
	g := offers(t, k)
	var rooms []uint32
	starts := func(start func() error) {
		t.Helper()
		did := make(chan error, 1)
		go func() { did <- start() }()
		f, err := g.in.Next()
		if err = errors.Join(err, <-did); err != nil || f.Type != wire.Start {
			t.Fatalf("%d (%v)", f.Type, err)
		}
		rooms = append(rooms, f.Stream)
	}
	over := make(chan struct{}, 1)
	for range 2 { // as a keeper has them
		var r *session.Relay
		starts(func() (err error) {
			r, err = g.s.Relay([]byte(`{"argv":["true"]}`), func(typ wire.Type, _ []byte) {
				if typ == wire.Exit {
					r.Close()
					over <- struct{}{}
				}
			})
			return err
		})
	}
	starts(func() error {
		_, err := g.s.Start(shell("true"), nil, nil)
		return err
	})
	from := func(room uint32) {
		t.Helper()
		g.last++
		if err := g.out.Message(wire.Flow, g.last, wire.FlowMessage{Credential: "lab", Room: room}); err != nil {
			t.Fatal(err)
		}
		g.next(wire.FlowEnd)
	}
	for _, room := range []uint32{rooms[0], rooms[1], rooms[0], 0, rooms[2], rooms[0], 1 << 20} {
		from(room)
	}
	if err := g.out.Message(wire.Exit, rooms[0], wire.ExitMessage{}); err != nil {
		t.Fatal(err)
	}
	<-over
	from(rooms[0])
	from(rooms[1])
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.all) != 3 || *k.all[0] != 3 || *k.all[1] != 2 || *k.all[2] != 1 || k.none != 1 {
		t.Errorf("%d rooms, %d connections of none: %v", len(k.all), k.none, k.all)
	}
}
