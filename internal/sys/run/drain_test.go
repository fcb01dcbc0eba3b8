package run

import (
	"bytes"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestDrainStandsStill has a drain that comes to each of its reads after their
// time, as on a machine that lets it stand still: what the pipe holds comes out.
func TestDrainStandsStill(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }() // someone else has it open
	if _, err := w.Write(make([]byte, 60000)); err != nil {
		t.Fatal(err)
	}
	d := NewDrain(r)
	d.Ended()
	d.silence = -time.Second
	var got bytes.Buffer
	err = d.Copy(&got)
	if err != nil || got.Len() != 60000 {
		t.Errorf("%d bytes, %v", got.Len(), err)
	}
}

// TestDrainLate has what another process writes shortly after the end of the first.
func TestDrainLate(t *testing.T) {
	for range 20 {
		var all sync.WaitGroup
		for range 100 {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			d := NewDrain(r)
			d.silence = time.Minute
			var got bytes.Buffer
			all.Go(func() {
				if err := d.Copy(&got); err != nil || got.String() != "inlate" {
					t.Errorf("%q, %v", got.String(), err)
				}
			})
			all.Go(func() {
				_, _ = w.WriteString("in")
				d.Ended()
				runtime.Gosched()
				_, _ = w.WriteString("late")
				_ = w.Close()
			})
		}
		all.Wait()
	}
}
