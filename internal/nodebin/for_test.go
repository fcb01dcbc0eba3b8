package nodebin

import (
	"crypto/sha256"
	"encoding/hex"
	"runtime"
	"testing"
)

func TestFor(t *testing.T) {
	data, sum, ok := For(runtime.GOOS, runtime.GOARCH)
	if !ok || len(data) == 0 {
		t.Fatalf("%d bytes, %v", len(data), ok)
	}
	if s := sha256.Sum256(data); hex.EncodeToString(s[:]) != sum {
		t.Errorf("the sum %s is another's", sum)
	}
	for _, c := range [][2]string{{"plan9", runtime.GOARCH}, {runtime.GOOS, "pdp11"}, {"linux", "../x"}, {"", ""}} {
		if data, sum, ok := For(c[0], c[1]); ok || data != nil || sum != "" {
			t.Errorf("%v has a program", c)
		}
	}
	if got := Name("0123456789abcdef"); got != "berth-node-0123456789ab" {
		t.Error(got)
	}
}
