package run

import (
	"bytes"
	"os"
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
	defer func() { _ = w.Close() }() // somebody else has it open
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
