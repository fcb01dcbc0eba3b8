//go:build linux

package guest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCleanEnv(t *testing.T) {
	in := []string{
		"PATH=/bin", "APPTAINER_BIND=/x", "APPTAINERENV_A=1", "SINGULARITY_NAME=y", "SINGULARITYENV_B=2", "BERTH_HOME=/z",
		"BASH_ENV=/rc", "ENV=/rc", "PWD=/wrong", "novalue", "=odd", "APPTAINER=kept", "A=b=c", "EMPTY=",
	}
	if got, want := cleanEnv(in), []string{"PATH=/bin", "APPTAINER=kept", "A=b=c", "EMPTY="}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if len(in) != 14 || in[1] != "APPTAINER_BIND=/x" {
		t.Error("the list given was changed")
	}
}

func TestInHome(t *testing.T) {
	p := place{env: []string{"HOME=/home/x"}}
	for dir, want := range map[string]string{"~": "/home/x", "~/": "/home/x", "~/a b/..c": "/home/x/a b/..c", "~x": "~x", "./~": "./~", "/~": "/~", "": "", "a": "a"} {
		if got := p.inHome(dir); got != want {
			t.Errorf("%q is %q, want %q", dir, got, want)
		}
	}
}

func TestAddEnv(t *testing.T) {
	base := []string{"A=1", "B=2"}
	got, err := addEnv(base, []string{"B=3", "C=x\ny", "B=4", "D="})
	if want := []string{"A=1", "C=x\ny", "B=4", "D="}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q %v", got, err)
	}
	for _, bad := range []string{"secret", "=secret", "A=sec\x00ret", ""} {
		if _, err := addEnv(base, []string{bad}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestSharedTmp has someone else's directory where HOME would be made.
func TestSharedTmp(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "berth-home-test-") //nolint:usetesting // the check is for /tmp itself
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	link := dir + "-link"
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(link) })
	if err := useHome(link); err == nil {
		t.Error("a link that anybody may have made was taken")
	}
	if err := useHome(dir); err != nil {
		t.Error(err)
	}
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("its mode is %v, %v", fi.Mode(), err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(dir, 1234, 1234); err != nil {
			t.Fatal(err)
		}
		if err := useHome(dir); err == nil {
			t.Error("another user's directory was taken")
		}
	}
}

func TestMakeHomeFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := makeHome([]string{"", "relative", "/", filepath.Join(file, "x"), file})
	if err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("got %v", err)
	}
}
