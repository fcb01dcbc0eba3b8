// Package leaks fails the tests of a package that leave goroutines behind.
package leaks

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests of a package and exits. When they have passed and what they
// have started has not ended after a minute, it fails, and says what is left.
func Main(m *testing.M) { goleak.VerifyTestMain(patient{m}) }

// endTime is how long what was told to end may take on a busy machine. What
// looks for goroutines by itself gives them half a second.
const endTime = time.Minute

type patient struct{ tests goleak.TestingM }

// Run runs the tests and waits.
func (p patient) Run() int {
	code := p.tests.Run()
	for until := time.Now().Add(endTime); code == 0 && goleak.Find() != nil && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
	return code
}
