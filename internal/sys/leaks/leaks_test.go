package leaks

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

type leaky func()

func (l leaky) Run() int { l(); return 0 }

// What ends a little late is waited for, and nothing that has ended.
func TestPatient(t *testing.T) {
	end := make(chan struct{})
	own := goleak.IgnoreCurrent()
	if code := (patient{leaky(func() {
		go func() { <-end }()
		time.AfterFunc(2*time.Second, func() { close(end) })
	})}).Run(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	select {
	case <-end:
	default:
		t.Error("it was not waited for")
	}
	if err := goleak.Find(own); err != nil {
		t.Error(err)
	}
}
