package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"berth/jobs"
)

// Nothing of a notice can add a header, an option or another receiver.
func TestNotifyRefused(t *testing.T) {
	for text, says := range map[string]string{
		"mail = \"a@b\\nBcc: c@d\"":       "notify.mail",
		`mail = "-OQueueDirectory=/tmp"`:  "notify.mail must be one address",
		`mail = "a@b, c@d"`:               "notify.mail must be one address",
		`mail = "Ada <ada@example.org>"`:  "notify.mail must be one address",
		`command = ["./tell"]`:            "relative path",
		`command = [""]`:                  "notify.command",
		`webhook = "https://x.example/y"`: `unknown key "webhook"`,
	} {
		if _, err := parse("/c.toml", []byte("[notify]\n"+text+"\n"), layerUser); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if _, err := parse("/c.toml", []byte("[targets.x]\nscheduler = \"slurm\"\n[targets.x.notify]\nmail = \"a\"\n"), layerUser); err == nil {
		t.Error("a target has it")
	}
}

// The address of a webhook comes from a private file alone, and no error has it.
func TestReadWebhook(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hook")
	for _, c := range []struct {
		text string
		mode os.FileMode
		says string
	}{
		{"https://hooks.example/T0/T0KEN\n", 0o600, ""},
		{"http://127.0.0.1:8080/T0KEN", 0o400, ""},
		{"https://hooks.example/T0KEN", 0o640, "can be read by others"},
		{"http://hooks.example/T0KEN", 0o600, "must hold one line"},
		{"https://hooks.example/T0KEN\nhttps://b/T0KEN", 0o600, "must hold one line"},
		{"", 0o600, "must hold one line"},
	} {
		_ = os.Remove(file)
		if err := os.WriteFile(file, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, c.mode); err != nil {
			t.Fatal(err)
		}
		got, err := ReadWebhook(file)
		switch {
		case c.says == "" && (err != nil || got != strings.TrimSpace(c.text)):
			t.Errorf("%q: %q, %v", c.text, got, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "T0KEN") || jobs.KindOf(err) != jobs.KindConfig):
			t.Errorf("%q: %v", c.text, err)
		}
	}
	if _, err := ReadWebhook(file + ".none"); jobs.KindOf(err) != jobs.KindConfig {
		t.Errorf("%v", err)
	}
}
