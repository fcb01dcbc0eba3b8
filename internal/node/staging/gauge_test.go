//go:build linux

package staging

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// What takes longer than a moment is told, with how much is done, and its end; what is short is not.
func TestGauge(t *testing.T) {
	defer func(after, every time.Duration) { gaugeAfter, gaugeEvery = after, every }(gaugeAfter, gaugeEvery)
	gaugeAfter, gaugeEvery = 0, 0
	n, img := fresh(t)
	sif := img.Path
	fi, err := os.Stat(sif)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var told []string
	n.Meter = func(what string, done, of int64) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, fmt.Sprintf("%s %d/%d", what, done, of))
	}
	tells := func(form Form) []string {
		t.Helper()
		told = nil
		if err := stage(t, n, img, form).Close(); err != nil {
			t.Fatal(err)
		}
		return told
	}
	if got, want := tells(SIF), fmt.Sprintf("copying %s to this node %d/%d", sif, fi.Size(), fi.Size()); len(got) < 2 || got[len(got)-2] != want || got[len(got)-1] != " 0/0" {
		t.Errorf("of a copy %q, and not %q", got, want)
	}
	n.Unpack = func(_ context.Context, _, root, _ string) error {
		if err := os.Mkdir(root, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, "five"), []byte("12345"), 0o600); err != nil {
			return err
		}
		want := "unpacking " + sif + " 5/0"
		for range 3000 {
			mu.Lock()
			all := strings.Join(told, "\n")
			mu.Unlock()
			if strings.Contains(all, want) {
				return nil
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("while five bytes are there: %q", told)
		return nil
	}
	if got := tells(Unpacked); got[len(got)-1] != " 0/0" {
		t.Errorf("the end of an unpacking: %q", got)
	}
	gaugeAfter = time.Hour
	meter := n.Meter
	n, img = fresh(t)
	n.Meter = meter
	if got := append(tells(SIF), tells(Unpacked)...); len(got) > 0 {
		t.Errorf("of what is short: %q", got)
	}
}
