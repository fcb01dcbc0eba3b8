package keeper

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"berth/internal/link/wire"
	"berth/internal/node/supervise"
	"berth/internal/sys/socket"
)

// keep serves clients until something ends the environment, and closes it.
func (k *keeper) keep(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	all.Go(func() { k.beat(ctx) })
	all.Go(func() { k.watch(ctx) })
	all.Go(func() { k.life.run(ctx) })
	all.Go(func() { k.untilEnds(ctx, k.endNow) })
	all.Go(func() { k.untilExpired(ctx) })
	k.accepting.Go(func() { k.acceptClients(k.listener()) })
	<-k.life.Done()
	why := *k.life.Why()
	k.log.Info("ending", "why", why.text)
	// First no new client is taken: one that has connected and was not yet
	// served is told so.
	k.mu.Lock()
	k.closed = true
	listening := k.socket
	k.mu.Unlock()
	if !why.fenced {
		listening.Remove()
	}
	for conn := listening.Waiting(); conn != nil; conn = listening.Waiting() {
		_, _ = conn.WriteString(greeting(sayEnding))
		_ = conn.Close()
	}
	_ = listening.Close()
	for _, c := range k.everyone() {
		socket.ShutRead(c.conn)
	}
	k.endAll(why)
	cancel()
	all.Wait()
	k.accepting.Wait()
	if why.fenced {
		k.opening.End = nil // a container by that name may be the other one's
	}
	k.closeBox()
	if !why.fenced {
		k.destroy()
	}
	k.info.Phase, k.info.Ended, k.info.Why, k.info.Inside = phaseEnded, time.Now().UTC(), why.text, nil
	// The directory may be another environment's by now.
	if !why.fenced && k.lease.Stands() {
		k.endUsage(why.stopped)
		k.saveInfo()
	}
}

// endAll ends what runs, and lets all clients know how.
func (k *keeper) endAll(why ending) {
	if !why.broken {
		ctx, cancel := context.WithTimeout(context.Background(), k.times.grace+10*time.Second)
		if left, err := k.box.Session().End(ctx, k.times.grace); err != nil || left > 0 {
			k.log.Warn("not all could be ended", "left", left, "err", err)
		}
		cancel()
	}
	// What the guest has told is on its way; what it has not told by now
	// stays unknown.
	late, cancel := context.WithTimeout(context.Background(), k.times.flush)
	defer cancel()
	for _, c := range k.everyone() {
		for _, s := range c.streams.All() {
			if _, ok := s.(*relay); ok && !why.broken {
				select {
				case <-s.wait():
				case <-late.Done():
				}
			}
			s.lose(why.text)
		}
	}
	if why.broken || !k.bg.settle(late) {
		_ = k.box.Session().Close() // now it stays unknown how they ended
		k.bg.settle(context.Background())
	}
	for _, c := range k.everyone() {
		for _, s := range c.streams.All() {
			if r, ok := s.(*request); ok && r.req.Op != wire.KeepStop {
				select {
				case <-s.wait():
				case <-late.Done():
				}
			}
		}
	}
	close(k.told)
}

func (k *keeper) saveInfo() {
	if err := k.info.save(k.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		k.log.Warn("keeper.json could not be written", "err", err)
	}
}

// closeBox makes sure that nothing of the container is left, and gives back
// what it was made of.
func (k *keeper) closeBox() {
	if k.box != nil {
		k.box.Close()
	}
	k.egress.Load().Close()
	supervise.GiveBack(k.scratch, func() error {
		if k.opening == nil || k.opening.Close == nil {
			return nil
		}
		if err := k.opening.Close(); err != nil {
			return fmt.Errorf("what the environment was made of could not be given back: %w", err)
		}
		return nil
	}, k.note)
}
