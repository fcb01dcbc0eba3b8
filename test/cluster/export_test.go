//go:build cluster

package cluster

import (
	"slices"
	"strings"
	"testing"
)

// tinyImage makes a small image at $d/tiny.sif, of programs of the login node,
// with a label, an environment and a runscript.
const tinyImage = `
	r=/tmp/berth-test-$$; mkdir -p $r/bin $r/etc $r/tmp $r/var/tmp $r/proc $r/sys $r/dev $r/root $r/opt/pkg/sub $r/opt/old
	for p in sh cat ls rm mkdir chmod chown ln mv; do cp -L /bin/$p $r/bin/; done
	for l in $(ldd $r/bin/* | grep -o '/lib[^ ]*' | sort -u); do mkdir -p $r${l%/*}; cp -L $l $r$l; done
	echo one >$r/opt/pkg/one; echo two >$r/opt/pkg/sub/two; printf 'a\nb\nc\n' >$r/etc/conf; echo gone >$r/etc/gone; echo x >$r/opt/old/x
	printf 'root:x:0:0::/root:/bin/sh\n' >$r/etc/passwd
	printf 'Bootstrap: localimage\nFrom: %s\n%%labels\n  Maker tester\n%%environment\n  export TINY=yes\n%%runscript\n  echo "run says $TINY"\n' $r >$d/tiny.def
	apptainer -s build $d/tiny.sif $d/tiny.def && rm -rf $r $d/tiny.def`

// changes are made in a container with --fakeroot: a replaced directory, deleted
// files, files of other ids, directories that no one may read.
const changes = `set -e
	rm -r /opt/pkg; mkdir /opt/pkg; echo new >/opt/pkg/new; rm /etc/gone; rm -r /opt/old
	printf 'a\nB\nc\n' >/etc/conf; chmod 700 /root
	mkdir -p /srv/shut /srv/none /srv/five
	echo hi >/srv/shut/f; chown 5:7 /srv/shut/f; chmod 600 /srv/shut/f; chown 9:9 /srv/shut; chmod 700 /srv/shut
	echo q >/srv/none/q; chmod 0 /srv/none/q /srv/none; echo 5 >/srv/five/x; ln /srv/five/x /srv/hard; chmod 500 /srv/five`

const changed = `changed /etc/conf
deleted /etc/gone
deleted /opt/old
added /opt/pkg/new
deleted /opt/pkg/one
deleted /opt/pkg/sub
changed /root
added /srv
added /srv/five
added /srv/five/x
added /srv/hard
added /srv/none
added /srv/none/q
added /srv/shut
added /srv/shut/f`

// An ordinary user lists, exports, imports and squashes what containers have
// left, and removes it, without asking how.
func TestOverlayExport(t *testing.T) {
	s := standard
	s.need(t)
	d := s.dir(t)
	sh := "export d=" + quote(d) + " BERTH_HOME=" + quote(d+"/state") + " TMPDIR=/tmp; cd " + quote(d) + "; "
	s.ok(t, sh+tinyImage)
	inside := func(name, kind, program string) string {
		at, flags := d+"/state/overlays/"+name+"/layer", "--fakeroot "
		if kind == "ext3" { // of which Apptainer makes no root directory with --fakeroot
			at, flags, program = at+".ext3", "", strings.NewReplacer("chown 5:7", "true", "chown 9:9", "true").Replace(program)
		}
		return s.ok(t, "apptainer -s exec "+flags+"--containall --no-home --cwd / --overlay "+at+" "+d+"/tiny.sif sh -c "+quote(program))
	}
	diff := func(name string) string {
		var lines []string // but for mount points, which the container program makes
		for l := range strings.Lines(s.ok(t, sh+"berth overlay diff "+name)) {
			l = strings.ReplaceAll(strings.TrimSpace(l), "\t", " ")
			if !slices.ContainsFunc([]string{"/dev", "/home", "/sys", "/proc", "/tmp", "/var", "/etc/hosts", "/etc/resolv.conf", "/etc/localtime", "/etc/group", "/etc/passwd"}, func(p string) bool { return strings.HasPrefix(strings.SplitN(l, " ", 2)[1], p) }) {
				lines = append(lines, l)
			}
		}
		return strings.Join(lines, "\n")
	}
	look := `ls /opt /opt/pkg; cat /etc/conf /srv/shut/f /srv/none/q /srv/hard; ls /etc/gone /opt/old 2>/dev/null; ls -ldn /srv/shut /srv/shut/f /srv/none /srv/five /root | while read m n u g rest; do echo $m $n $u $g; done`
	for _, kind := range []string{"fuse", "ext3"} {
		s.ok(t, sh+"berth overlay create --image tiny.sif --driver "+kind+" "+kind)
		inside(kind, kind, changes)
		if got := diff(kind); got != changed {
			t.Errorf("%s: diff:\n%s\nwant\n%s", kind, got, changed)
		}
		want := inside(kind, kind, look)
		s.ok(t, sh+"berth overlay export "+kind+" "+kind+".tar && berth overlay import "+kind+".tar again-"+kind)
		if got := diff("again-" + kind); got != changed {
			t.Errorf("%s: diff of the imported one:\n%s", kind, got)
		}
		if kind == "fuse" {
			if got := inside("again-fuse", kind, look); got != want {
				t.Errorf("%s: imported:\n%s\nwant\n%s", kind, got, want)
			}
		}
	}
	// A new image, of files that no one but root of a namespace can read.
	s.ok(t, sh+"berth overlay export fuse new.sif")
	s.want(t, sh+"berth overlay export fuse new.sif", 2, "exists already")
	if got := s.ok(t, "cd "+quote(d)+"; apptainer -s run new.sif; apptainer -s inspect new.sif | grep Maker"); got != "run says yes\nMaker: tester" {
		t.Errorf("the new image: %q", got)
	}
	got := s.ok(t, "cd "+quote(d)+"; apptainer -s exec --containall --no-home --cwd / new.sif sh -c 'ls /opt /opt/pkg; cat /etc/conf /srv/shut/f /srv/hard; ls /etc/gone /opt/old 2>/dev/null; true'")
	if want := "/opt:\npkg\n\n/opt/pkg:\nnew\na\nB\nc\nhi\n5"; got != want {
		t.Errorf("in the new image: %q, want %q", got, want)
	}
	ids := s.ok(t, "cd "+quote(d)+"; unsquashfs -o 36864 -lln new.sif | grep -E 'shut|none' | cut -c1-15 | tr -s ' '")
	if want := "drwx------ 0/0\n---------- 0/0\ndrwx------ 9/9\n-rw------- 5/7"; !strings.Contains(ids, "9/9") || !strings.Contains(ids, "5/7") {
		t.Errorf("owners in the new image: %q, want %q", ids, want)
	}
	// What a task plants where the container program writes leads to no file of
	// this machine.
	s.ok(t, sh+"echo own >victim; chmod 600 victim; berth overlay fork fuse planted; u=state/overlays/planted/layer/upper; mkdir -p $u/etc $u/.singularity.d; ln -sf $d/victim $u/etc/hosts; berth overlay export planted planted.sif")
	s.want(t, sh+"u=state/overlays/planted/layer/upper; ln -sf $d/victim $u/.singularity.d/labels.json; berth overlay export --force planted planted.sif", 78, "/.singularity.d/labels.json")
	if got := s.ok(t, sh+"stat -c %a victim; cat victim; berth overlay rm planted"); got != "600\nown" {
		t.Errorf("a file of this machine: %q", got)
	}
	// Where there is no newuidmap, it is named, and nothing is half done.
	s.ok(t, sh+"mkdir bare; for p in sh apptainer git unsquashfs rm cp; do ln -s $(command -v $p) bare/; done; cp /mnt/share/bin/berth bare/")
	for _, verb := range []string{"diff fuse", "export fuse bare.tar", "export fuse bare.sif"} {
		s.want(t, sh+"PATH=$d/bare berth overlay "+verb, 78, "newuidmap is not here", "/etc/subuid")
	}
	s.want(t, sh+"PATH=$d/bare berth overlay rm again-fuse", 5, "newuidmap is not here")
	if left := s.ok(t, sh+"ls -A; ls -d /tmp/berth-1000-export* /tmp/berth-1000-scratch/*-export* 2>/dev/null || true"); strings.Contains(left, "bare.") || strings.Contains(left, "export-") {
		t.Errorf("left behind: %s", left)
	}
	// What was half removed then is removed now, and so are the others.
	s.ok(t, sh+"berth overlay gc; berth overlay rm fuse ext3 again-ext3")
	if left := s.ok(t, sh+"ls -A state/overlays"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}
