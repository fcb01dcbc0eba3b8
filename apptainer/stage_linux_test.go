package apptainer

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"berth/jobs"
	"berth/test/fakes/siftest"

	"github.com/google/uuid"
)

// What a node lacks for the moment is told as that, and is tried again; what is
// wrong with the image is not.
func TestUnpackKind(t *testing.T) {
	s, _ := stagerOf(t)
	bin := filepath.Dir(s.Program)
	sif := filepath.Join(t.TempDir(), "x.sif")
	if err := os.WriteFile(sif, siftest.New(uuid.New(), siftest.Superblock(10, 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		build string
		kind  jobs.Kind
		says  string
	}{
		"a full disk":      {"echo 'write_file: failed to write, because No space left on device' >&2; echo 'FATAL:   While performing build: exit status 1' >&2; exit 255", jobs.KindInfra, "exit status 1"},
		"a cut network":    {"echo 'FATAL:   read /net/x.sif: stale file handle' >&2; exit 255", jobs.KindInfra, "stale file handle"},
		"killed":           {"kill -9 $$", jobs.KindInfra, "it was killed"},
		"killed inside":    {"exit 137", jobs.KindInfra, "it was killed"},
		"a damaged image":  {"echo 'FATAL:   could not extract squashfs data' >&2; exit 255", jobs.KindConfig, "could not extract"},
		"nothing unpacked": {"exit 1", jobs.KindConfig, "unpack "},
	} {
		program(t, bin, "apptainer", `test "$1" != build || { `+c.build+`; }`, 0o755)
		a, job := attempting(s.Home, t.TempDir(), "/bin/true", s.Program, sif, "deps", jobs.DriverKernel)
		_, _, err := a.ready(t.Context(), job, filepath.Join(s.Home, "overlays", "deps"))
		if jobs.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "the overlay driver kernel is not available on ") || jobs.HintOf(err) == "" {
			t.Errorf("%s: kind %d, %v (%s)", name, jobs.KindOf(err), err, jobs.HintOf(err))
		}
	}
	for _, no := range []syscall.Errno{syscall.ENOSPC, syscall.EIO, syscall.ESTALE} {
		if err := unpackError("x", &os.PathError{Op: "write", Path: "y", Err: no}); jobs.KindOf(err) != jobs.KindInfra {
			t.Errorf("%v", err)
		}
	}
	if err := unpackError("x", os.ErrNotExist); jobs.KindOf(err) != jobs.KindConfig {
		t.Errorf("%v", err)
	}
}
