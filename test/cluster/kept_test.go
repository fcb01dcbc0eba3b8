//go:build cluster

package cluster

import (
	"regexp"
	"strings"
	"testing"
)

// A job that failed leaves its layer where its task asks for that: from the
// node's own disk to the state directory, usable, and removed by age.
func TestOverlayKept(t *testing.T) {
	s := standard
	s.need(t)
	home := "export BERTH_HOME=" + s.dir(t) + "/state; "
	for _, flags := range []string{"", "--disk 300MiB"} {
		id := s.ok(t, home+"berth submit --keep-failed "+flags+" --image "+s.image+` -- 'rm -r /usr/share/doc/gzip; mkdir /srv/a /srv/z; echo evidence >/srv/a/f; chmod 0500 /srv/a; chmod 000 /srv/z; exit 3'`)
		a := s.sh(t, home+"berth wait "+id)
		if a.code != 1 || !strings.Contains(a.err, "note: the layer is kept as overlay kept/"+id+": berth overlay fork kept/"+id+" NAME") {
			t.Fatalf("%+v", a)
		}
		if out := s.ok(t, home+"berth overlay ls --all | cut -f1; berth overlay diff kept/"+id); !strings.Contains(out, "kept/"+id+"\n") || !strings.Contains(out, "\t/srv/a/f") || !strings.Contains(out, "deleted\t/usr/share/doc/gzip") {
			t.Errorf("%s", out)
		}
		s.ok(t, home+"berth overlay fork kept/"+id+" found-"+id)
		if out := s.ok(t, home+"berth run --image "+s.image+" --overlay found-"+id+" -- 'cat /srv/a/f; ls /usr/share/doc | grep -x gzip || echo gone'"); out != "evidence\ngone" {
			t.Errorf("%q", out)
		}
		if out := s.ok(t, home+"berth overlay gc; berth overlay gc --older 1ns --dry-run"); !regexp.MustCompile(`^layer of job ` + id + `, kept for 0 days\t.*\tfound$`).MatchString(out) {
			t.Errorf("%q", out)
		}
		s.ok(t, home+"berth overlay gc --older 1ns; berth overlay rm found-"+id)
		if out := s.ok(t, home+"berth overlay ls --all"); out != "" {
			t.Errorf("left %s", out)
		}
	}
	// Without asking for it there is nothing.
	s.sh(t, home+"berth run --image "+s.image+" -- 'exit 3'")
	if out := s.ok(t, home+"berth overlay ls --all"); out != "" {
		t.Errorf("left %s", out)
	}
}

// Files of the ids of --fakeroot, and directories that no one may read, are
// copied and removed.
func TestOverlayMappedIDs(t *testing.T) {
	s := standard
	s.need(t)
	home := "export BERTH_HOME=" + s.dir(t) + "/state; cd $BERTH_HOME/overlays 2>/dev/null; "
	s.ok(t, home+"berth overlay create --driver fuse deps")
	s.ok(t, home+"apptainer -s exec --fakeroot --overlay deps/layer "+s.image+" sh -c 'mkdir -p /srv/a/b /srv/z; echo x >/srv/a/b/f; chown -R 4:4 /srv/a; chmod 0500 /srv/a/b; chmod 000 /srv/z'")
	if out := s.ok(t, home+"stat -c %u deps/layer/upper/srv/a; rm -rf deps/layer/upper/srv/a 2>/dev/null || echo refused"); !regexp.MustCompile(`^[0-9]{5,}\nrefused$`).MatchString(out) {
		t.Fatalf("these are no ids of others: %q", out)
	}
	s.ok(t, home+"berth overlay snapshot deps --as one && berth overlay fork deps half && berth overlay restore deps one")
	s.ok(t, home+"rm half/mark.json; touch half/.new-begun")
	if out := s.ok(t, home+"berth overlay gc --dry-run && test -d half && berth overlay gc"); !regexp.MustCompile(`^half made overlay\t.*/half\tfound\nhalf made overlay\t.*\tremoved$`).MatchString(out) {
		t.Errorf("%q", out)
	}
	s.ok(t, home+"berth overlay rm deps")
	if out := s.ok(t, home+"ls -A"); out != "" {
		t.Errorf("left %s", out)
	}
}
