package images

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"berth/jobs"
)

// Meter is how far something long is, for a line on a terminal that is written
// again and again. Its zero value takes that line away.
type Meter struct {
	What     string
	Done, Of int64 // bytes; Of is 0 where it is not known
}

func (c *Cache) meter(m Meter) {
	if c.Meter != nil {
		c.Meter(m)
	}
}

// How often it is told what has arrived: to a line that is written again, and
// in lines of their own.
const (
	meterEvery = 250 * time.Millisecond
	linesEvery = 30 * time.Second
)

// watch tells how much has arrived: what the container program has of layers,
// and then how far it is with the file that it makes of them. It does not say
// how much there will be.
func (c *Cache) watch(scratch, made, ref string) (stop func()) {
	layers := workIn(scratch).Cache
	end, ended := make(chan struct{}), make(chan struct{})
	every := meterEvery
	if c.Meter == nil {
		every = linesEvery
	}
	go func() {
		defer close(ended)
		t := time.NewTicker(every)
		defer t.Stop()
		for {
			select {
			case <-end:
				c.meter(Meter{})
				return
			case <-t.C:
			}
			m := Meter{What: "fetching " + ref}
			if fi, err := os.Stat(made); err == nil && fi.Size() > 0 {
				m.What, m.Done = "making an image of "+ref, fi.Size()
			} else {
				m.Done = TreeSize(layers)
			}
			if c.Meter == nil {
				c.Progress(fmt.Sprintf("%s: %v so far", m.What, jobs.Bytes(m.Done&^(1<<20-1))))
				continue
			}
			c.Meter(m)
		}
	}()
	return func() { close(end); <-ended }
}

// TreeSize is how many bytes the files below a directory hold; what cannot be read is left out.
func TreeSize(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if fi, err := d.Info(); err == nil {
				n += fi.Size()
			}
		}
		return nil
	})
	return n
}
