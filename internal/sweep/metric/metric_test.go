package metric

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"
)

// What is told at once is written whole or not at all.
func TestSay(t *testing.T) {
	file := filepath.Join(t.TempDir(), "metrics")
	if err := os.WriteFile(file, []byte("a=1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for word, code := range map[string]int{
		"": jobs.CodeUsage, "name": jobs.CodeUsage, "=1": jobs.CodeUsage, "a b=1": jobs.CodeUsage, "a\x1b=1": jobs.CodeUsage, "a\x9bb=1": jobs.CodeUsage, "a=\u202e": jobs.CodeUsage, "a=1\nb=2": jobs.CodeUsage,
		"a=\x1b[31m": jobs.CodeUsage, "{a}=1": jobs.CodeUsage, strings.Repeat("n", 101) + "=1": jobs.CodeUsage, "n=" + strings.Repeat("1", 1001): jobs.CodeUsage,
	} {
		if err := Say(file, []string{"ok=1", word}); jobs.CodeOf(err) != code {
			t.Errorf("%q: %v", word, err)
		}
	}
	much := strings.Split(strings.Repeat("n="+strings.Repeat("1", 900)+" ", 5), " ")[:5]
	for _, err := range []error{Say(file, nil), Say("", []string{"a=1"}), Say(file, much)} {
		if jobs.CodeOf(err) != jobs.CodeUsage {
			t.Error(err)
		}
	}
	if err := Say(file+"x", []string{"a=1"}); jobs.CodeOf(err) != jobs.CodeInfra {
		t.Error(err)
	}
	if err := Say(file, []string{"loss=0.5", "what=it is = so", "n="}); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(file); string(b) != "a=1\nloss=0.5\nwhat=it is = so\nn=\n" || err != nil {
		t.Errorf("%q %v", b, err)
	}
}
