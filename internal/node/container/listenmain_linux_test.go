package container

import (
	"os"
	"testing"
	"time"
)

// envSleep makes this binary a program that does nothing for a minute.
const envSleep = "CONTAINER_SLEEP"

// TestMain makes this binary a listener, see stranger, or one that sleeps.
func TestMain(m *testing.M) {
	if os.Getenv(envSleep) != "" && len(os.Args) == 2 && os.Args[1] == "sleep" {
		time.Sleep(time.Minute)
		return
	}
	if name := os.Getenv("CONTAINER_LISTEN"); name != "" {
		os.Exit(listenForever(name))
	}
	os.Exit(m.Run())
}
