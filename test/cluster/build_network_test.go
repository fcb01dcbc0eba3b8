//go:build cluster && linux

package cluster

import (
	"strings"
	"testing"
)

// A build without a network has a loopback alone, and one with a list reaches what is on it and
// nothing else, by both doors, in each way in which its %post is root.
func TestImageBuildNetwork(t *testing.T) {
	s := standard
	s.need(t)
	s.disturb(t) // it changes the nodes' name server
	s.internet(t)
	d := s.dir(t)
	env := "export BERTH_HOME=" + d + "/state XDG_CONFIG_HOME=" + d + "/config; cd " + d + "\n"
	build := func(name, post, flags, want string) {
		t.Helper()
		s.ok(t, env+tiny+"cat >>tiny.def <<'END'\n    cat /proc/net/dev >/devices\n"+post+"\nEND\n"+
			"sed -i 's|^%post|    /mnt/share/bin/probe /probe\\n    /mnt/share/internet/ca.pem /ca.pem\\n\\n%post|' tiny.def")
		path := strings.TrimSpace(s.want(t, env+"berth image build tiny.def --name "+name+" --slurm --nodelist=c1 "+flags, 0).out)
		if got := s.ok(t, "apptainer exec "+path+" cat /devices /seen | grep -v '|' | cut -d: -f1"); got != want {
			t.Errorf("%s: it saw %q", name, got)
		}
	}
	const ask = `    export SSL_CERT_FILE=/ca.pem; : >/seen
    for door in proxy transparent; do
        [ $door = proxy ] || unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
        for site in allowed other; do
            /probe -get https://$site.test/ >/out 2>&1 && echo $door $site works >>/seen || echo $door $site fails >>/seen
        done
    done`
	const list = "lo\nproxy allowed works\nproxy other fails\ntransparent allowed works\ntransparent other fails"
	const none = "lo\nproxy allowed fails\nproxy other fails\ntransparent allowed fails\ntransparent other fails"
	build("list", ask, "--allow allowed.test", list)
	if got := s.ok(t, env+"berth network show $(basename state/jobs/*/*) | cut -f2-4 | sort -u"); !strings.Contains(got, "build\tallow\tallowed.test") || !strings.Contains(got, "build\tdeny\tother.test") {
		t.Errorf("recorded: %q", got)
	}
	build("none", ask, "--network none", none)
	for _, e := range s.arrived(t) {
		if strings.Contains(e.Name, "other") {
			t.Errorf("arrived: %+v", e)
		}
	}

	// What cannot be held is refused before anything is built.
	s.want(t, env+"printf 'Bootstrap: docker\nFrom: debian:12\n' >base.def; berth image build --network none base.def", 78, "begins with docker debian:12, which a build without a network cannot fetch", "Bootstrap: localimage")
	s.want(t, env+"printf 'Bootstrap: scratch\n%%setup\n  true\n' >setup.def; berth image build --allow pypi.org setup.def", 78, "line 2 of the definition begins a section that runs on the node itself")

	// Without ids of one's own, %post is root alone, over an unpacked base.
	ids := func(from, to string) {
		if a := s.on(t, "c1", "root", "sed", "-i", "s/^"+from+":/"+to+":/", "/etc/subuid", "/etc/subgid"); a.code != 0 {
			t.Error(a.err)
		}
	}
	ids("alice", "other-user")
	t.Cleanup(func() { ids("other-user", "alice") })
	build("alone", ask, "--allow allowed.test", list)
	s.bare(t, "c1", "ls -d /tmp/berth-1000-image-* /tmp/berth-1000-scratch/*-image-* 2>/dev/null; ps -u alice -o args= | grep -F 'guest --room' | grep -v grep")
}
