package docker

import (
	"strings"
	"testing"

	"berth/jobs"
)

// A machine without a GPU of the kind that is asked for is said with what helps.
func TestNoGPU(t *testing.T) {
	for text, hint := range map[string]string{
		`could not select device driver "" with capabilities: [[gpu]]`:                                        "install the NVIDIA container toolkit",
		`error gathering device information while adding custom device "/dev/kfd": no such file or directory`: "no GPU of AMD",
	} {
		if kind, got := startTrouble(text); kind != jobs.KindConfig || !strings.Contains(got, hint) || !strings.Contains(got, "leave gpu out") {
			t.Errorf("%s: %v %q", text, kind, got)
		}
	}
}
