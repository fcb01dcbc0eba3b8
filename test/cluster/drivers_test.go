//go:build cluster

package cluster

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// packages changes an image as package managers do, with packages made on the
// spot: dpkg removes a package of the image's and upgrades one of its own that
// replaces a directory of the image's; pip renames directories out of its way,
// with and without an end; npm renames a whole tree and makes links.
const packages = `set -e
deb() { # NAME VERSION
  printf 'Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n' "$1" "$2" >"/tmp/$1/DEBIAN/control"
  dpkg-deb -b "/tmp/$1" "/tmp/$1-$2.deb" >/dev/null
}
dpkg() { command dpkg --force-not-root --force-bad-path --log=/tmp/dpkg.log "$@" >/tmp/dpkg.out 2>&1 || { cat /tmp/dpkg.out; return 1; }; }
mkdir -p /tmp/thing/DEBIAN /tmp/thing/usr/share/doc/gzip /tmp/thing/opt/thing/old /tmp/thing/usr/local/bin
echo one >/tmp/thing/usr/share/doc/gzip/thing; echo one >/tmp/thing/opt/thing/old/file
printf '#!/bin/sh\necho thing\n' >/tmp/thing/usr/local/bin/thing; chmod 755 /tmp/thing/usr/local/bin/thing
deb thing 1
rm -r /usr/share/doc/gzip
dpkg -i /tmp/thing-1.deb
rm -r /tmp/thing/opt/thing/old; echo now a file >/tmp/thing/opt/thing/old; echo two >/tmp/thing/usr/share/doc/gzip/two
rm /tmp/thing/usr/share/doc/gzip/thing
deb thing 2
dpkg -i /tmp/thing-2.deb
dpkg --force-depends --purge ripgrep
lib=$(echo /usr/lib/python3.[0-9]*)
mv "$lib/json" "$lib/~son"; mkdir "$lib/json"; echo 'new = True' >"$lib/json/__init__.py"; rm -r "$lib/~son"
mv "$lib/email" "$lib/~mail"; mv "$lib/~mail" "$lib/email"
mkdir -p /tmp/wheel/wheelthing /tmp/wheel/wheelthing-1.dist-info; echo 'def said(): return "wheel"' >/tmp/wheel/wheelthing/__init__.py
printf 'Metadata-Version: 2.1\nName: wheelthing\nVersion: 1\n' >/tmp/wheel/wheelthing-1.dist-info/METADATA
printf 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n' >/tmp/wheel/wheelthing-1.dist-info/WHEEL
(cd /tmp/wheel && printf 'wheelthing/__init__.py,,\nwheelthing-1.dist-info/METADATA,,\nwheelthing-1.dist-info/WHEEL,,\nwheelthing-1.dist-info/RECORD,,\n' >wheelthing-1.dist-info/RECORD)
if python3 -m pip --version >/dev/null 2>&1; then
  (cd /tmp/wheel && python3 -c 'import shutil; shutil.make_archive("/tmp/w", "zip", ".")' && mv /tmp/w.zip /tmp/wheelthing-1-py3-none-any.whl)
  python3 -m pip install -q --no-index --break-system-packages --root-user-action ignore --prefix /usr/local /tmp/wheelthing-1-py3-none-any.whl
else
  mkdir -p "$lib/dist-packages"; cp -r /tmp/wheel/wheelthing /tmp/wheel/wheelthing-1.dist-info "$lib/dist-packages/" 2>/dev/null || cp -r /tmp/wheel/wheelthing "$lib/"
fi
mkdir -p /usr/lib/node_modules/a/node_modules/b /usr/lib/node_modules/.bin; echo '{"name":"a"}' >/usr/lib/node_modules/a/package.json
ln -s ../a/cli.js /usr/lib/node_modules/.bin/a; echo x >/usr/lib/node_modules/a/cli.js
mv /usr/lib/node_modules/a /usr/lib/node_modules/.a-Xy12; mkdir /usr/lib/node_modules/a; mv /usr/lib/node_modules/.a-Xy12/cli.js /usr/lib/node_modules/a/; rm -r /usr/lib/node_modules/.a-Xy12
cp -r /etc/apt /etc/.apt-new; mv /etc/apt /etc/.apt-Xy12; mv /etc/.apt-new /etc/apt; rm -r /etc/.apt-Xy12
rm -r /usr/share/doc/tar; ln -s gzip /usr/share/doc/tar
`

// look tells what there is, and then the sum of all paths that matter, which is
// to be the same in every container over every driver. Modes are not in it:
// images are unpacked without setuid.
const look = `ls -A /usr/share/doc/gzip /opt/thing; thing; cat /opt/thing/old; readlink /usr/share/doc/tar
command -v rg || echo no rg; dpkg -s ripgrep 2>&1 | head -1
python3 -c 'import json; print(json.new)'; python3 -c 'import email, sys; print("email")'; ls -A /usr/lib/node_modules/a /usr/lib/node_modules/.bin; [ -e /etc/apt/sources.list.d ] && echo apt
find /usr /etc /opt /srv /bin /sbin /lib -xdev '(' -name __pycache__ -o -path /etc/passwd -o -path /etc/group -o -path /etc/hosts -o -path /etc/resolv.conf -o -path /etc/localtime ')' -prune -o '(' -type d -printf '%p/\n' -o -type f -printf '%p %s\n' -o -printf '%p %y %l\n' ')' | sort >/tmp/list
echo "sum $(sha256sum </tmp/list)"
`

// Package managers, on every driver, in jobs with a named overlay: a second job,
// and one after each conversion of it, see the same.
func TestDrivers(t *testing.T) {
	each(t, []site{standard}, func(t *testing.T, s site) {
		d := s.dir(t)
		drivers := []string{"kernel", "fuse", "ext3"}
		run := func(t *testing.T, driver, name, command string) string {
			t.Helper()
			id := s.ok(t, fmt.Sprintf("berth submit --memory 1GiB --profile %s/%s.toml --image %s --overlay %s -- %s", d, driver, s.image, name, quote(command)))
			st := s.wait(t, id, 0)
			if script := s.ok(t, "cat "+st.Dir+"/script.sh"); strings.Contains(script, "--writable") != (driver == "kernel") || strings.Contains(script, "--overlay") == (driver == "kernel") {
				t.Errorf("%s: the script does not show the flags:\n%s", driver, script)
			}
			if !strings.Contains(s.ok(t, "cat "+st.Dir+"/events.jsonl"), "overlay driver "+driver+" (") {
				t.Errorf("%s is not said to be used: %q", driver, st.Notes)
			}
			return s.ok(t, "berth logs "+id)
		}
		sum := regexp.MustCompile(`sum [0-9a-f]{64}`)
		stamp := time.Now().UnixNano()
		var first string
		for _, driver := range drivers {
			s.ok(t, fmt.Sprintf(`echo 'overlay = "%[2]s"' >%[1]s/%[2]s.toml`, d, driver))
			name := fmt.Sprintf("drivers-%s-%d", driver, stamp)
			t.Cleanup(func() { s.sh(t, "berth overlay rm --wait=60s "+name) })
			one := run(t, driver, name, packages+look)
			two := run(t, driver, name, look)
			for _, want := range []string{"/opt/thing:\nold\n\n/usr/share/doc/gzip:\ntwo\n", "\nthing\nnow a file\ngzip\nno rg\n", "\nTrue\nemail\n", "\napt\n"} {
				if !strings.Contains(two, want) {
					t.Errorf("%s: no %q in\n%s", driver, want, two)
				}
			}
			if first == "" {
				first = sum.FindString(one)
			}
			if sum.FindString(one) != first || sum.FindString(two) != first || first == "" {
				t.Errorf("%s: %s and %s, want %s\n%s", driver, sum.FindString(one), sum.FindString(two), first, two)
			}
		}
		// One of them becomes each of the others in turn.
		name := fmt.Sprintf("drivers-kernel-%d", stamp)
		for _, to := range []string{"ext3", "fuse", "kernel"} {
			s.ok(t, "berth overlay convert "+name+" --driver "+to)
			if got := run(t, to, name, look); sum.FindString(got) != first {
				t.Errorf("converted to %s: %s, want %s\n%s", to, sum.FindString(got), first, got)
			}
		}
	})
}

// An overlay is opened by its own driver alone, over its own image, and not by
// a berth that is older than its mark.
func TestDriverRefused(t *testing.T) {
	each(t, []site{standard}, func(t *testing.T, s site) {
		d := s.dir(t)
		name := fmt.Sprintf("refused-%d", time.Now().UnixNano())
		t.Cleanup(func() { s.sh(t, "berth overlay rm --wait=60s --force "+name) })
		run := "berth run --image " + s.image + " --overlay " + name + " "
		s.ok(t, run+"-- 'rm -r /opt; echo x >/opt'")
		// A script that waits has the driver that the overlay had.
		id := s.ok(t, "berth submit --image "+s.image+" --overlay "+name+" --slurm=--begin=now+1hour -- true")
		st := s.status(t, id)
		s.ok(t, "berth overlay convert "+name+" --driver ext3 && scontrol update JobId="+st.NativeID+" StartTime=now")
		if st = s.wait(t, id, 78); !strings.Contains(st.Reason, "was written by the driver ext3, and this job asks for fuse") || !strings.Contains(st.Hint, "submit again") {
			t.Errorf("%s (%s)", st.Reason, st.Hint)
		}
		s.ok(t, run+"-- 'cat /opt'")
		// The same image with another id.
		s.ok(t, "cp "+s.image+" "+d+"/other.sif && printf '\\377\\376\\375' | dd of="+d+"/other.sif bs=1 seek=52 conv=notrunc status=none")
		other := strings.Replace(run, s.image, d+"/other.sif", 1)
		s.want(t, other+"-- true", 78, "overlay "+name+" was made over another image \\("+s.image+"\\)", "berth overlay convert "+name+" --image "+d+"/other.sif")
		s.want(t, "berth overlay convert "+name+" --image "+d+"/other.sif", 78, "what it has deleted stays deleted", "--force")
		s.ok(t, "berth overlay convert "+name+" --image "+d+"/other.sif --force")
		s.ok(t, other+"-- 'cat /opt'")
		s.want(t, run+"-- true", 78, "made over another image")
		s.ok(t, `sed -i 's/"version": 1,/"version": 99,/' $(berth overlay show --json `+name+` | jq -r .overlay.dir)/mark.json`)
		s.want(t, other+"-- true", 78, "was made by a newer berth \\(schema 99\\)", "use that version of berth")
	})
}

// Where directories cannot be layers, as with a setuid Apptainer and without user
// namespaces, doctor finds ext3, jobs with its profile work, and those without
// are told before their task starts.
func TestOnlyExt3(t *testing.T) {
	each(t, []site{standard}, func(t *testing.T, s site) {
		d := s.dir(t)
		s.ok(t, "mkdir -p "+d+`/bin && cat >`+d+`/bin/apptainer <<'END'
#!/bin/bash
last=
for w; do
  [ "$w" != --userns ] && { [ "$last" != --overlay ] || [ ! -d "$w" ]; } || { echo "FATAL:   only root user can use sandbox as overlay" >&2; exit 255; }
  last=$w
done
exec /usr/bin/apptainer "$@"
END
chmod 755 `+d+"/bin/apptainer")
		here := "export PATH=" + d + "/bin:$PATH BERTH_HOME=" + d + "/home XDG_CONFIG_HOME=" + d + "/conf; "
		s.want(t, here+"berth run --scheduler local --image "+s.image+" -- 'echo ran; rm -r /opt'", 78,
			"the overlay driver fuse is not available on login: only root user can use sandbox as overlay", "berth doctor --on-node --write-profile")
		s.sh(t, here+"berth doctor --scheduler local --write-profile found")
		if got := s.ok(t, "cat "+d+"/conf/berth/profiles/found.toml"); !strings.Contains(got, "\noverlay = \"ext3\"\n") {
			t.Fatalf("the profile:\n%s", got)
		}
		if got := s.ok(t, here+"berth run --scheduler local --profile found --image "+s.image+" -- 'rm -r /usr/share/doc/gzip; mkdir /usr/share/doc/gzip; ls -A /usr/share/doc/gzip; echo ran'"); got != "ran" {
			t.Errorf("%q", got)
		}
		s.want(t, here+"berth exec --env e --image "+s.image+" -- true && berth env rm -f e || berth env rm e", 0, "overlay driver ext3 \\(kernel: ")
	})
}
