//go:build cluster

package cluster

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"
	"time"
)

//go:embed testdata/nolocks.pl
var nolocks string

// Where no file can be locked (ENOLCK, for berth, e2fsck, fuse2fs and the
// container program alike) overlays work as anywhere: one writer at a time, and
// what jobs change is kept.
func TestNoLocks(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	s.ok(t, "cat >"+d+"/nolocks.pl <<'EOF'\n"+nolocks+"EOF")
	without := "perl " + d + "/nolocks.pl "
	if a := s.sh(t, without+"flock -n "+d+"/lock true"); a.code == 0 || !strings.Contains(a.err, "No locks available") {
		t.Fatalf("there are locks: %+v", a)
	}
	if a := s.sh(t, without+`python3 -c 'import fcntl; fcntl.lockf(open("`+d+`/lock", "w"), fcntl.LOCK_EX)'`); a.code == 0 || !strings.Contains(a.err, "No locks available") {
		t.Fatalf("there are locks: %+v", a)
	}
	home := "export BERTH_HOME=" + d + "/state; "
	ok := func(text string) string {
		t.Helper()
		return s.ok(t, home+"cd "+d+"; "+strings.ReplaceAll(text, "berth ", without+"berth "))
	}
	for driver, create := range map[string]string{"ext3": "--driver ext3 --size 200MiB", "fuse": "--driver fuse"} {
		run := fmt.Sprintf("berth run --scheduler local --image %s --overlay %s -- ", s.image, driver)
		ok("berth overlay create " + create + " " + driver)
		ok(run + `'rm -r /usr/share/doc/gzip; mkdir /usr/share/doc/gzip; echo kept >/usr/share/doc/gzip/new'`)
		if out := ok(run + `'ls -A /usr/share/doc/gzip'`); out != "new" {
			t.Errorf("%s: %q", driver, out)
		}
		ok("for i in 1 2 3; do berth overlay snapshot " + driver + " --as s$i --wait & done; wait")
		if out := ok("berth overlay show " + driver + " | grep -c ^snapshot"); out != "3" {
			t.Errorf("%s: %s snapshots", driver, out)
		}
		ok("berth overlay restore " + driver + " s2 && berth overlay check " + driver + " && berth overlay fork " + driver + " other && berth overlay rm other")
		// One writer.
		began := time.Now()
		hold := fmt.Sprintf("rm -f go; berth run --scheduler local --image %s --overlay %s --bind %s:/d -- ", s.image, driver, d)
		ok(hold + `'echo one >>/usr/share/doc/gzip/new; until [ -e /d/go ]; do sleep 0.2; done' >log 2>&1 & for i in $(seq 3000); do grep -q 'berth: running' log && berth overlay show ` + driver + ` | grep -q '^in use' && break; sleep 0.1; done
			berth overlay snapshot ` + driver + ` && exit 9
			(sleep 1; touch go) & berth run --scheduler local --image ` + s.image + ` --overlay ` + driver + ` --overlay-wait 5m --cpus 1 -- 'echo two >>/usr/share/doc/gzip/new'; wait`)
		if out := ok(run + `'cat /usr/share/doc/gzip/new'`); out != "kept\none\ntwo" {
			t.Errorf("%s, after %s: %q", driver, time.Since(began), out)
		}
	}
	ok("berth overlay grow ext3 --size 300MiB && berth overlay diff ext3 | grep -q /usr/share/doc/gzip/new && berth overlay rm ext3 fuse")
}
